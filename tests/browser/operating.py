"""Something for operators to look at: queues, workers, jobs and schedules, and their pages."""

import uuid

from django.urls import reverse
from django.utils import timezone

from django_jobs.backends.base import AttemptRecord
from django_jobs.backends.home import store_now
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.db.clock import for_people
from django_jobs.models import (
    AdminSchedule,
    Job,
    JobAttempt,
    JobState,
    OperatorEvent,
    QueueControl,
    QueueMinute,
    ScheduleTick,
    Worker,
    schedule_key,
)
from django_jobs.operations.cancel import cancel
from django_jobs.operations.queues import limit_queue, pause_queue
from django_jobs.worker.duties import Presence
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

MINUTE = 60 * SECOND
EXPOSED = {
    "SCHEDULE_HANDLERS": ["testproject.shop.jobs.send_receipt"],
    # A broker, of which the admin knows no more than what it shows of its queues.
    "BACKENDS": {
        "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
        "broker": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
    },
    "QUEUES": {"default": {}, "mail": {}, "reports": {}, "shipping": {"BACKEND": "broker"}},
}


def stock():
    """A site at work; what its pages are about."""
    Presence(backends["database"], "mail:3,default:1").write()
    waiting = send_receipt.enqueue(order_id=4711)
    for number in range(4):
        send_receipt.enqueue(order_id=4712 + number)
    doomed.using(delay=3600).enqueue()
    running = doomed.using(max_retries=3).enqueue()
    (lease,) = backends["database"].fetch(["default"], 1, 60)
    backends["database"].nack(lease, 0, attempt=failed_run())
    backends["database"].fetch(["default"], 1, 60)
    die(doomed.prepare())
    cancelled = doomed.using(delay=60).enqueue()
    cancel(cancelled.id, by="ada", reason="the order was cancelled")
    for number in range(3):
        send_receipt.using(queue="shipping").enqueue(order_id=4800 + number)
    doomed.using(queue="shipping", delay=600, priority=5).enqueue()
    history()
    reason = "the gateway is down until 06:00, says their status page"
    pause_queue("mail", by="grace", reason=reason)
    limit_queue("reports", {"rate_limit": "60/m", "concurrency": 4}, by="ada")
    schedule = AdminSchedule.objects.create(
        name="nightly-receipts", expression="30 2 * * *", timezone="Europe/Paris",
        handler="testproject.shop.jobs.send_receipt", queue="mail",
        payload={"args": [4711], "kwargs": {}}, description="Receipts that nobody asked for yet.",
        changed_at=timezone.now(),
    )  # fmt: skip
    ticks()
    return {
        "job": waiting.id,
        "running": running.id,
        "result": cancelled.id,
        "schedule": schedule.pk,
    }


def failed_run():
    now = store_now("default")
    return AttemptRecord(
        number=1, outcome="failed", started_at=now - 4 * SECOND, finished_at=now - SECOND,
        error_type="smtplib.SMTPServerDisconnected",
        error_message="Connection unexpectedly closed", worker="web-1:4711",
    )  # fmt: skip


def ticks():
    """What became of the schedule lately."""
    day = 24 * 60 * MINUTE
    for ago, outcome, reason in (
        (4, "succeeded", ""), (3, "dead", ""),
        (2, "none", "it was paused: the shop is closed"), (1, "succeeded", ""),
    ):  # fmt: skip
        at = (store_now("default") // day - ago) * day + 90 * MINUTE
        ScheduleTick.objects.create(
            key=schedule_key("nightly-receipts"), name="nightly-receipts", tick=at,
            decision="skipped" if reason else "enqueued", outcome=outcome, reason=reason,
            decided_at=for_people(at + SECOND // 3), decided_by="web-1:4711",
            job_id=None if reason else uuid.uuid4(),
        )  # fmt: skip


def freshen():
    """The worker lives, and so does the lease of what it runs."""
    now = store_now("default")
    Worker.objects.update(seen=now - 3 * SECOND)
    running = Job.objects.filter(state=JobState.RUNNING)
    running.update(leased_at=now - 8 * SECOND, lease_expires=now + 22 * SECOND)


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
    attempt = JobAttempt.objects.get(job_id=stocked["running"])
    event = OperatorEvent.objects.get(action="pause")
    return {
        "overview": page("overview_changelist"),
        "queues-list": page("queuecontrol_changelist"),
        "queue-detail": page("queuecontrol_change", queue.pk),
        "queue-pause": page("queuecontrol_pause") + "?ids=database/reports",
        "queue-resume": page("queuecontrol_resume") + "?ids=database/mail",
        "queue-limit": page("queuecontrol_limit") + "?ids=database/reports",
        "workers-list": page("worker_changelist"),
        "worker-detail": page("worker_change", worker.pk),
        "worker-drain": page("worker_drain") + f"?ids={worker.pk}",
        "jobs-list": page("job_changelist"),
        "why-not-running": page("job_change", stocked["job"]),
        "job-running": page("job_change", stocked["running"]),
        "job-cancel": page("job_cancel") + f"?ids={stocked['job']}&ids={stocked['running']}",
        "broker-jobs": page("job_broker") + "?backend=broker&queue=shipping",
        "attempts-list": page("jobattempt_changelist"),
        "attempt-detail": page("jobattempt_change", attempt.pk),
        "events-list": page("operatorevent_changelist"),
        "event-detail": page("operatorevent_change", event.pk),
        "results-list": page("jobresult_changelist"),
        "result-detail": page("jobresult_change", stocked["result"]),
        "schedules-list": page("schedulestate_changelist"),
        "schedule-detail": page("schedulestate_change", key),
        "schedule-pause": page("schedulestate_pause", key),
        "schedule-resume": page("schedulestate_resume", key),
        "schedule-run": page("schedulestate_run", key),
        "schedule-add": page("adminschedule_add"),
        "schedules-own-list": page("adminschedule_changelist"),
        "schedule-edit": page("adminschedule_change", stocked["schedule"]),
    }
