"""``atomic=True``: the handler's rows and the ack commit together, or neither does."""

import subprocess
import sys

import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import Snooze, job
from django_jobs.exceptions import InvalidOption, NotSupported
from django_jobs.handlers.base import JobTimeout
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState
from django_jobs.telemetry import events
from django_jobs.worker import process_once
from testproject.shop.models import Order
from tests.conftest import RUN_ON
from tests.integration.missing import without_table

pytestmark = pytest.mark.django_db(transaction=True)
MEMORY = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}
seen = []


def place(email="a@example.com"):
    return Order.objects.create(email=email, total=1)


@job(key="atomic.order", atomic=True, timeout=5)
def order():
    place()
    seen.append(connection.in_atomic_block)
    return "placed"


@job(key="atomic.fail", atomic=True, timeout=5, max_retries=1, retry="none")
def fail():
    place()
    raise ValueError("after the write")


@job(key="atomic.snooze", atomic=True, timeout=5)
def snooze():
    place()
    raise Snooze(60)


@job(key="atomic.steal", atomic=True, timeout=9, takes_context=True)
def lose_the_lease(context):
    """Another process takes the job while this one runs it."""
    if RUN_ON != "sqlite":  # its one write lock would keep the other process waiting
        place("before@example.com")
    seen.append(steal(context.id))
    place("after@example.com")


@job(key="atomic.swallow", atomic=True, timeout=5)
def swallow_a_broken_transaction():
    place()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")
    except DatabaseError:
        connection.needs_rollback = True


@job(key="atomic.left-open", atomic=True, timeout=5)
def leave_a_block_open():
    place()
    transaction.atomic().__enter__()
    place("inside@example.com")


@job(key="atomic.hooks", atomic=True, timeout=5)
def with_hooks(kind, robust):
    place()
    seen.append("ran")

    def hook():
        seen.append("hook")
        raise HOOK_ERRORS[kind]

    transaction.on_commit(hook, robust=robust)
    with transaction.atomic():
        transaction.on_commit(lambda: seen.append("next hook"))


HOOK_ERRORS = {
    "value": ValueError("of a hook"),
    "database": OperationalError("of a hook"),
    "exit": SystemExit("of a hook"),
    "interrupt": KeyboardInterrupt("of a hook"),
    "timeout": JobTimeout(1),
}


@job(key="atomic.late")
async def coroutine():
    pass


environment_of_the_thief = {}


def steal(job_id):
    command = [sys.executable, "-m", "tests.integration.worker.labour.thief", job_id]
    done = subprocess.run(
        command, env=environment_of_the_thief, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _fresh(site_environment):
    seen.clear()
    environment_of_the_thief.clear()
    environment_of_the_thief.update(site_environment)


@pytest.fixture
def told_events():
    heard = []
    events.subscribe(heard.append)
    yield heard
    events.unsubscribe(heard.append)


def test_the_handlers_rows_and_the_ack_commit_together():
    handle = order.enqueue()
    assert process_once().status == "acked"
    assert seen == [True]
    assert Order.objects.count() == 1
    assert (handle.status, handle.result()) == ("succeeded", "placed")
    assert not Job.objects.exists()


def test_a_failure_leaves_no_row_and_is_settled_all_the_same():
    fail.enqueue()
    assert process_once().status == "requeued"
    assert Job.objects.get().attempts == 1
    assert process_once().status == "dead-lettered"
    assert not Order.objects.exists()
    assert FailedJob.objects.get().error_message == "after the write"
    assert JobAttempt.objects.count() == 2


def test_a_snooze_leaves_no_row_either():
    snooze.enqueue()
    assert process_once().status == "snoozed"
    assert not Order.objects.exists()
    assert Job.objects.get().attempts == 0


def test_a_transaction_that_the_handler_broke_is_a_failure_and_leaves_no_row():
    swallow_a_broken_transaction.enqueue()
    assert process_once().status == "dead-lettered"
    assert not Order.objects.exists()
    assert FailedJob.objects.get().reason == "exhausted"
    order.enqueue()
    assert process_once().status == "acked"


def test_a_block_that_the_handler_left_open_is_a_failure_and_leaves_no_row():
    leave_a_block_open.enqueue()
    report = process_once()
    assert (report.status, Order.objects.count()) == ("dead-lettered", 0)
    assert "left an atomic() block open" in FailedJob.objects.get().error_message
    assert not Job.objects.exists()
    order.enqueue()
    assert process_once().status == "acked"
    assert Order.objects.count() == 1


def test_h3_when_another_process_takes_the_lease_before_the_ack_no_row_is_left(monkeypatch):
    if RUN_ON == "sqlite":  # else the transaction has the write lock before the handler begins
        connection.ensure_connection()  # which sets the mode of the settings
        monkeypatch.setattr(connections["default"], "transaction_mode", "DEFERRED")
    handle = lose_the_lease.enqueue()
    report = process_once()
    (token,) = seen
    assert (report.status, report.job_id) == ("lease-lost", handle.id)
    assert not Order.objects.exists()
    row = Job.objects.get()
    assert (row.state, row.lease_token, row.attempts) == (JobState.RUNNING, token, 0)
    assert not JobResult.objects.exists()
    assert not FailedJob.objects.exists()


def test_without_atomic_the_rows_of_a_lost_lease_stay_and_the_settle_is_lost():
    handle = lose_the_lease.using(atomic=False).enqueue()
    report = process_once()
    assert (report.status, report.job_id) == ("lease-lost", handle.id)
    assert Order.objects.filter(email="after@example.com").exists()
    assert Job.objects.get().lease_token == seen[0]


def failing_commit(monkeypatch, *, committed):
    """The next commit is not answered, having come through or not."""
    real = BaseDatabaseWrapper._commit
    fails = [True]
    told = []

    def commit(self):
        # Only the joint transaction has an order in it when it ends.
        if fails and self.alias == connection.alias and seen:
            fails.clear()
            told.append("unanswered")
            if committed:
                real(self)
            raise OperationalError("the connection broke")
        return real(self)

    monkeypatch.setattr(BaseDatabaseWrapper, "_commit", commit)
    return told


def test_a_commit_that_came_through_unanswered_is_acked(monkeypatch):
    handle = order.enqueue()
    told = failing_commit(monkeypatch, committed=True)
    assert process_once().status == "acked"
    assert told == ["unanswered"]
    assert (Order.objects.count(), handle.status) == (1, "succeeded")
    assert not FailedJob.objects.exists()


def test_a_commit_that_did_not_come_through_is_a_failure(monkeypatch):
    handle = order.enqueue()
    told = failing_commit(monkeypatch, committed=False)
    assert process_once().status == "dead-lettered"
    assert told == ["unanswered"]
    assert (Order.objects.count(), handle.status) == (0, "dead")


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in HOOK_ERRORS if kind != "timeout"])
def test_a_hook_that_raises_after_the_commit_changes_nothing(kind, robust, told_events):
    handle = with_hooks.enqueue(kind, robust)
    assert process_once().status == "acked"
    assert seen == ["ran", "hook", "next hook"]
    assert (Order.objects.count(), handle.status) == (1, "succeeded")
    (event,) = [event for event in told_events if isinstance(event, events.CommitHookFailed)]
    assert (event.error, event.job_id, event.attempt) == (HOOK_ERRORS[kind], handle.id, 1)
    order.enqueue()
    assert process_once().status == "acked"


def test_even_a_timeout_out_of_a_hook_leaves_the_job_done():
    handle = with_hooks.enqueue("timeout", False)
    assert process_once().status == "acked"
    assert (Order.objects.count(), handle.status) == (1, "succeeded")


def test_a_hook_is_not_called_when_the_commit_fails(monkeypatch, told_events):
    handle = with_hooks.enqueue("value", False)
    told = failing_commit(monkeypatch, committed=False)
    assert process_once().status == "dead-lettered"
    assert told == ["unanswered"]
    assert seen == ["ran"]
    assert (Order.objects.count(), handle.status) == (0, "dead")
    assert not [event for event in told_events if isinstance(event, events.CommitHookFailed)]


def test_in_a_transaction_of_the_caller_hooks_are_the_callers(told_events):
    handle = with_hooks.enqueue("value", False)

    def callers():
        with transaction.atomic():
            assert process_once().status == "acked"
            assert seen == ["ran"]

    with pytest.raises(ValueError, match="of a hook"):
        callers()
    assert seen == ["ran", "hook"]
    assert (Order.objects.count(), handle.status) == (1, "succeeded")
    assert not [event for event in told_events if isinstance(event, events.CommitHookFailed)]


# -- what cannot be had ------------------------------------------------------------------------


def test_a_coroutine_is_refused():
    with pytest.raises(InvalidOption, match="needs a plain function"):
        coroutine.using(atomic=True).enqueue()


def test_a_backend_that_keeps_its_jobs_elsewhere_is_refused(settings):
    settings.DJANGO_JOBS = {"BACKENDS": {"memory": MEMORY}, "DEFAULT_BACKEND": "memory"}
    with pytest.raises(NotSupported, match="in the handler's own database"):
        order.enqueue()


@pytest.mark.only_on("sqlite")
@pytest.mark.parametrize("timeout", [10, 11, None])
def test_on_sqlite_a_timeout_has_to_be_below_a_third_of_the_lease(timeout):
    with pytest.raises(InvalidOption, match="a timeout below 10 seconds"):
        order.using(timeout=timeout).enqueue()
    assert order.using(timeout=9.9).enqueue().created


@pytest.mark.only_on("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("timeout", [10, 4000, None])
def test_elsewhere_an_atomic_job_may_take_as_long_as_any(timeout):
    assert order.using(timeout=timeout).enqueue().created


def test_a_table_that_is_missing_at_the_settle_is_no_verdict_on_the_job():
    order.enqueue()
    with without_table(JobResult):
        report = process_once()
    assert report.status == "requeued"
    job = Job.objects.get()
    assert (job.state, job.attempts, job.crashes, job.suspect) == (JobState.READY, 0, 0, False)
    assert not any(model.objects.exists() for model in (Order, FailedJob, JobAttempt))
    assert process_once().status == "acked"
    assert Order.objects.count() == 1
