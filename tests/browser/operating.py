"""Something for operators to look at: queues, workers, jobs and schedules, and their pages."""

from django.urls import reverse
from django.utils import timezone

from django_jobs import operations
from django_jobs.backends.base import AttemptRecord
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.models import AdminSchedule, QueueControl, QueueMinute, Worker, schedule_key
from django_jobs.operations.database import store_now
from django_jobs.worker.presence import Presence
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

MINUTE = 60 * SECOND
EXPOSED = {"SCHEDULE_HANDLERS": ["testproject.shop.jobs.send_receipt"]}


def stock():
    """A site at work; what its pages are about."""
    Presence(backends["database"], "mail:3,default:1").tell()
    waiting = send_receipt.enqueue(order_id=4711)
    for number in range(4):
        send_receipt.enqueue(order_id=4712 + number)
    doomed.using(delay=3600).enqueue()
    running = doomed.using(max_retries=3).enqueue()
    (lease,) = backends["database"].fetch(["default"], 1, 60)
    backends["database"].nack(lease, 0, attempt=failed_run())
    backends["database"].fetch(["default"], 1, 60)
    die(doomed.prepare())
    called_off = doomed.using(delay=60).enqueue()
    operations.cancel(called_off.id, by="ada", reason="the order was cancelled")
    history()
    reason = "the gateway is down until 06:00, says their status page"
    operations.pause_queue("mail", by="grace", reason=reason)
    operations.limit_queue("reports", {"rate_limit": "60/m", "concurrency": 4}, by="ada")
    schedule = AdminSchedule.objects.create(
        name="nightly-receipts", expression="30 2 * * *", timezone="Europe/Paris",
        handler="testproject.shop.jobs.send_receipt", queue="mail",
        payload={"args": [4711], "kwargs": {}}, description="Receipts that nobody asked for yet.",
        changed_at=timezone.now(),
    )  # fmt: skip
    return {
        "job": waiting.id,
        "running": running.id,
        "result": called_off.id,
        "schedule": schedule.pk,
    }


def failed_run():
    now = store_now("default")
    return AttemptRecord(
        number=1, outcome="failed", started_at=now - 4 * SECOND, finished_at=now - SECOND,
        error_type="smtplib.SMTPServerDisconnected",
        error_message="Connection unexpectedly closed", worker="web-1:4711",
    )  # fmt: skip


def history():
    """Runs of the last hour, more of them lately."""
    minute = store_now("default") // MINUTE
    QueueMinute.objects.bulk_create(
        QueueMinute(
            backend="database", queue="mail", minute=minute - ago,
            succeeded=40 - ago // 2 + 7 * (ago % 5), retried=ago % 4, dead=int(ago % 17 == 0),
        )
        for ago in range(1, 60)
    )  # fmt: skip


def pages(stocked):
    """The paths of all pages that operators use, by name."""
    queue = QueueControl.objects.get(queue="mail")
    worker = Worker.objects.get()

    def page(name, *args):
        return reverse(f"admin:django_jobs_{name}", args=args)

    key = schedule_key("nightly-receipts")
    return {
        "overview": page("overview_changelist"),
        "queues-list": page("queuecontrol_changelist"),
        "queue-detail": page("queuecontrol_change", queue.pk),
        "queue-pause": page("queuecontrol_pause") + "?ids=database/reports",
        "queue-limit": page("queuecontrol_limit") + "?ids=database/reports",
        "workers-list": page("worker_changelist"),
        "worker-detail": page("worker_change", worker.pk),
        "worker-drain": page("worker_drain") + f"?ids={worker.pk}",
        "jobs-list": page("job_changelist"),
        "why-not-running": page("job_change", stocked["job"]),
        "job-running": page("job_change", stocked["running"]),
        "results-list": page("jobresult_changelist"),
        "result-detail": page("jobresult_change", stocked["result"]),
        "schedules-list": page("schedulestate_changelist"),
        "schedule-detail": page("schedulestate_change", key),
        "schedule-pause": page("schedulestate_pause", key),
        "schedules-own-list": page("adminschedule_changelist"),
        "schedule-edit": page("adminschedule_change", stocked["schedule"]),
    }
