"""The sync backend: jobs run inside their enqueue, and what becomes of them can be looked up."""

import logging
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from django_jobs import Cancel, Retry, Snooze, job
from django_jobs.backends import sync
from django_jobs.exceptions import JobFailed, NotSupported
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from testproject.shop.models import Order

BACKEND = "django_jobs.backends.sync.SyncBackend"
calls = []


@job(key="sync.add", takes_context=True)
def add(context, a, b=1):
    calls.append(context.attempt)
    return a + b


@job(key="sync.flaky", max_retries=3, retry="exponential", takes_context=True)
def flaky(context, successes_at):
    calls.append(context.attempt)
    if context.attempt < successes_at:
        raise Retry(3600) if context.attempt == 2 else ConnectionError("nobody at home")
    return context.attempt


@job(key="sync.snooze", takes_context=True)
def snooze(context, times=10**6):
    calls.append(context.attempt)
    if len(calls) <= times:
        raise Snooze(60, "later")


@job(key="sync.cancel")
def cancel():
    raise Cancel("not wanted")


@job(key="sync.break")
def break_the_transaction(swallow):
    try:
        Order.objects.create(pk=Order.objects.get().pk, email="again@example.com", total=1)
    except IntegrityError:
        if not swallow:
            raise


@job(key="sync.outer")
def outer():
    return add.enqueue(20).result()


@job(key="sync.hurt", timeout=0.3)
def hurt(how):
    Order.objects.count()
    if how == "fails":
        raise ValueError(how)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 'slow', {'pg_sleep' if how == 'postgresql' else 'SLEEP'}(2)")


@pytest.fixture(autouse=True)
def site(settings, db):
    def use(**options):
        settings.DJANGO_JOBS = {
            "BACKENDS": {"sync": {"BACKEND": BACKEND, "OPTIONS": options}},
            "DEFAULT_BACKEND": "sync",
        }

    calls.clear()
    use()
    return use


def test_a_job_has_run_when_its_enqueue_returns():
    handle = add.enqueue(1, b=2)
    assert (handle.status, handle.result(), calls) == ("succeeded", 3, [1])
    assert not Job.objects.exists()


def test_a_failed_attempt_is_repeated_at_once_whatever_delay_was_asked_for():
    handle = flaky.enqueue(4)
    assert (calls, handle.result()) == ([1, 2, 3, 4], 4)
    assert sorted(JobAttempt.objects.values_list("number", flat=True)) == [1, 2, 3]


def test_h26_spent_retries_are_seen_and_make_a_dead_letter(caplog):
    handle = flaky.enqueue(99)
    assert (calls, handle.status) == ([1, 2, 3, 4], "dead")
    with pytest.raises(JobFailed, match="nobody at home"):
        handle.result()
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.attempts, dead.backend) == ("exhausted", 4, "sync")
    (record,) = [one for one in caplog.records if one.levelno == logging.CRITICAL]
    assert (record.key, record.job_id) == ("job.dead", handle.id)


def test_a_cancelled_job_says_so():
    assert cancel.enqueue().status == "cancelled"
    assert JobResult.objects.get().output == "not wanted"


@pytest.mark.parametrize(
    "options", [{"delay": 5}, {"run_at": timedelta(seconds=5)}], ids=["delay", "run_at"]
)
def test_what_would_have_to_wait_is_refused(options):
    with pytest.raises(NotSupported, match="has no delay"):
        add.using(**options).enqueue(1)
    assert calls == []
    assert not Job.objects.exists()


def test_what_would_have_to_wait_runs_at_once_where_that_is_asked_for(site):
    site(RUN_DELAYED_AT_ONCE=True)
    assert add.using(delay=3600).enqueue(1).result() == 2
    # Also its retries: the job keeps its place, and so its signed schedule.
    assert flaky.using(run_at=timedelta(hours=1)).enqueue(3).result() == 3


def test_a_snooze_cannot_wait_and_is_a_dead_letter_that_is_told(caplog):
    handle = snooze.enqueue()
    assert (calls, handle.status) == ([1], "dead")
    assert FailedJob.objects.get().reason == "cannot-wait"
    assert [r.reason for r in caplog.records if r.levelno == logging.CRITICAL] == ["cannot-wait"]


def test_a_snooze_is_run_again_at_once_where_that_is_asked_for_but_not_for_ever(site, caplog):
    site(RUN_DELAYED_AT_ONCE=True)
    assert snooze.enqueue(5).status == "succeeded"
    assert calls == [1] * 6
    calls.clear()
    assert snooze.enqueue().status == "dead"
    assert len(calls) == sync.MOST_SNOOZES
    assert [r.reason for r in caplog.records if r.levelno == logging.CRITICAL] == ["cannot-wait"]


def test_a_job_may_enqueue_another():
    assert outer.enqueue().result() == 21


def test_an_enqueue_that_is_rolled_back_leaves_nothing():
    with transaction.atomic():
        add.enqueue(1)
        flaky.enqueue(99)
        assert FailedJob.objects.exists()
        transaction.set_rollback(True)
    assert calls == [1, 1, 2, 3, 4]
    for table in (Job, JobResult, JobAttempt, FailedJob):
        assert not table.objects.exists()


@pytest.mark.parametrize("swallow", [True, False])
def test_an_error_in_the_handler_does_not_break_the_callers_transaction(swallow):
    with transaction.atomic():
        Order.objects.create(email="mine@example.com", total=1)
        handle = break_the_transaction.enqueue(swallow)
        assert handle.status == ("succeeded" if swallow else "dead")
        Order.objects.create(email="also@example.com", total=1)
        assert not connection.needs_rollback
    assert Order.objects.count() == 2


# -- the caller's connection ---------------------------------------------------------------------


def test_a_prepared_job_that_is_enqueued_again_runs_once_and_when_it_was_rolled_back_too():
    prepared = add.using(result_ttl=0).prepare(1)
    with transaction.atomic():
        prepared.enqueue()
        transaction.set_rollback(True)
    assert prepared.enqueue().created
    assert not prepared.enqueue().created
    assert calls == [1, 1]  # one of them was undone


@pytest.mark.django_db(transaction=True)
def test_a_job_that_fails_leaves_the_callers_session_alone():
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE of_the_caller (a INT)")
        assert hurt.enqueue("fails").status == "dead"
        cursor.execute("SELECT count(*) FROM of_the_caller")
        assert cursor.fetchone() == (0,)
        cursor.execute("DROP TABLE of_the_caller")


@pytest.mark.django_db(transaction=True)
@pytest.mark.only_on("postgres", "mariadb", "mysql")
def test_a_timeout_inside_a_query_leaves_the_caller_a_sound_connection():
    dead = hurt.enqueue(connection.vendor)
    assert FailedJob.objects.get(job_id=dead.id).reason == "timed-out"
