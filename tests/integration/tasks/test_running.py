"""What happens around a run of a task: context, return values, failures and signals."""

import dataclasses
import pickle
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from django_jobs.exceptions import InvalidResult, ResultNotKept, ResultUnavailable
from django_jobs.handlers.base import JobContext
from django_jobs.ids import new_id
from django_jobs.models import FailedJob, Job, JobResult
from django_jobs.tasks import JobsBackend, results
from django_jobs.tasks.compat import TaskResultStatus, signals
from django_jobs.wire.envelope import Terms
from django_jobs.worker import process_once
from testproject.shop.models import Order
from tests.integration.tasks.chores import tasks as chores

pytestmark = pytest.mark.django_db(databases=["default", "other"])
READY, RUNNING, FAILED, SUCCESSFUL = (
    TaskResultStatus.READY,
    TaskResultStatus.RUNNING,
    TaskResultStatus.FAILED,
    TaskResultStatus.SUCCESSFUL,
)


def ran(task, *args, **kwargs):
    """The result of a task after everything that was due has been run."""
    result = task.enqueue(*args, **kwargs)
    while process_once():
        pass
    result.refresh()
    return result


@contextmanager
def receiving(*names):
    """What the signals told while the block ran: name, sender, status, exception in the air."""
    told = []

    def receiver_of(name):
        def receive(sender, task_result, **_kwargs):
            told.append((name, sender, task_result.status, sys.exc_info()[0], task_result))

        return receive

    receivers = {name: receiver_of(name) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver)
    try:
        yield told
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)


# -- return values -----------------------------------------------------------------------------


def test_a_return_value_is_kept_as_plain_json():
    result = ran(chores.returns_bytes_and_tuples)
    assert result.return_value == {"bytes": "abc", "tuple": [1, 2], "range": [0, 1]}


def test_a_coroutine_is_awaited():
    assert ran(chores.aecho, "x").return_value == "x"


@pytest.mark.parametrize(
    ("task", "args", "why"),
    [
        (chores.returns_a_date, (), r"value\[0\] is of type date, which is not JSON; use plain"),
        (chores.areturns_a_date, (), "value is of type date, which is not JSON; use plain values"),
        (chores.returns_nan, (), "value is nan, which JSON cannot carry"),
        (chores.returns, (300_000,), "300,002 bytes as JSON, MAX_RESULT_BYTES allows 262,144"),
    ],
)
def test_a_task_that_is_done_does_not_fail_for_what_it_returns(task, args, why):
    with receiving("task_finished") as told:
        result = ran(task, *args)
    assert (result.status, result.attempts, result.errors) == (SUCCESSFUL, 1, [])
    ((_, _, status, _, finished),) = told
    assert status == SUCCESSFUL
    for one in (result, finished, pickle.loads(pickle.dumps(result))):  # noqa: S301 - our own
        with pytest.raises(ResultNotKept, match=f"{result.id} succeeded, but .* not kept: .*{why}"):
            _ = one.return_value
        with pytest.raises(ValueError, match=why):  # what Django raises where there is no value
            _ = one.return_value


def test_a_task_that_returns_work_nobody_has_done_fails():
    result = ran(chores.returns_a_generator)
    assert (result.status, result.errors[0].exception_class) == (FAILED, InvalidResult)
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_handle_and_a_page_say_why_a_return_value_is_not_kept(admin_client):
    handle = chores.dated_job.enqueue()
    assert process_once().status == "acked"
    with pytest.raises(ResultNotKept, match="value is of type date") as refused:
        handle.result()
    assert isinstance(refused.value, ResultUnavailable)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)  # noqa: S301 - our own
    page = admin_client.get(reverse("admin:django_jobs_jobresult_change", args=[handle.id])).text
    assert "not kept: value is of type date, which is not JSON" in page


def test_the_largest_result_is_kept():
    assert len(ran(chores.returns, 262_142).return_value) == 262_142


def test_a_plain_job_keeps_its_own_rule_for_return_values():
    handle = chores.plain_job.enqueue("ab")
    assert process_once("mail").status == "acked"
    assert handle.result() == "abab"


# -- the context -------------------------------------------------------------------------------


def test_the_context_shows_the_result_of_the_run():
    result = ran(chores.told, "an argument")
    assert result.return_value == [result.id, 1, "RUNNING", 0, "default"]


@pytest.mark.parametrize("run_after", [None, datetime(2026, 1, 1, tzinfo=UTC)])
def test_the_task_of_the_context_has_what_it_was_enqueued_with(run_after):
    task = chores.options.using(
        priority=7, queue_name="reports", backend="reports", run_after=run_after
    )
    result = ran(task)
    shown = None if run_after is None else str(run_after)
    assert result.return_value == [7, "reports", "reports", shown]
    assert (result.task.priority, result.task.run_after) == (7, run_after)


def test_so_it_has_a_length_of_time_after_which_it_was_to_run():
    terms = Terms(job="echo", queue="mail", backend="database", site="shop", delay=90.0)
    payload = {"args": [], "kwargs": {}}
    context = JobContext(id=new_id(), payload=payload, name="echo", queue="mail", terms=terms)
    told = results.running(chores.echo, context).result.task
    assert (told.queue_name, told.run_after) == ("mail", timedelta(seconds=90))


def test_the_context_of_a_retry_knows_what_went_before():
    result = ran(chores.third_time_lucky)
    assert result.return_value == [2, 3]
    assert result.attempts == 3


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "kind"), [(chores.exits, SystemExit), (chores.interrupts, KeyboardInterrupt)]
)
def test_what_would_end_a_program_fails_a_task(task, kind):
    result = ran(task)
    assert (result.status, result.errors[0].exception_class) == (FAILED, kind)


def test_an_exception_class_inside_of_a_class_is_found():
    (error,) = ran(chores.misses).errors
    assert error.exception_class_path == "testproject.shop.models.Order.DoesNotExist"
    assert error.exception_class is Order.DoesNotExist
    assert pickle.loads(pickle.dumps(error)) == error  # noqa: S301 - our own
    for path in ("testproject.shop.models.Order.gone", "testproject.shop.models.Order.objects"):
        lost = dataclasses.replace(error, exception_class_path=path)
        with pytest.raises(ImportError):
            _ = lost.exception_class


def test_each_failed_attempt_leaves_its_error():
    result = ran(chores.fails, "boom")
    assert (result.status, result.attempts) == (FAILED, 2)
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
    assert all(error.traceback.endswith("ValueError: boom\n") for error in result.errors)
    assert result.enqueued_at <= result.started_at < result.last_attempted_at < result.finished_at


def test_odd_characters_in_an_exception_are_shown_as_escapes():
    (error,) = ran(chores.odd).errors
    assert r"NUL \x00, half a pair \ud800, a bell \x07 and ünïcode" in error.traceback


def test_an_exception_that_is_not_to_be_retried_is_not():
    result = ran(chores.picky)
    assert (result.status, result.attempts) == (FAILED, 1)
    assert result.errors[0].exception_class is LookupError


def test_an_atomic_task_commits_with_its_result():
    result = ran(chores.order, "ann@example.com")
    assert result.return_value is True
    assert Order.objects.filter(email="ann@example.com").exists()


# -- signals -----------------------------------------------------------------------------------

EVERY = ("task_enqueued", "task_started", "task_finished")


def test_signals_tell_of_a_task_that_succeeds():
    with receiving(*EVERY) as told:
        result = ran(chores.add, 1)
    assert [one[:4] for one in told] == [
        ("task_enqueued", JobsBackend, READY, None),
        ("task_started", JobsBackend, RUNNING, None),
        ("task_finished", JobsBackend, SUCCESSFUL, None),
    ]
    assert {one[4].id for one in told} == {result.id}
    assert told[-1][4].return_value == 1
    assert told[-1][4].finished_at is not None


def test_a_task_that_runs_inside_its_enqueue_is_told_of_in_order_and_once(settings):
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {"sync": {"BACKEND": "django_jobs.backends.sync.SyncBackend"}},
        "DEFAULT_BACKEND": "sync",
    }
    with receiving(*EVERY) as told:
        chores.add.enqueue(1)
    assert [one[0] for one in told] == list(EVERY)


def test_the_end_of_a_coroutine_is_told_too():
    with receiving("task_finished") as told:
        ran(chores.aecho, "x")
    assert [(one[2], one[4].return_value) for one in told] == [(SUCCESSFUL, "x")]


def test_the_end_is_told_while_the_exception_is_handled():
    with receiving("task_finished") as told:
        ran(chores.exits)
    ((_, _, status, raised, result),) = told
    assert (status, raised) == (FAILED, SystemExit)
    assert "out of here" in result.errors[0].traceback


def test_a_failed_attempt_that_is_followed_by_another_is_not_the_end():
    with receiving(*EVERY) as told:
        ran(chores.fails)
    assert [(name, status) for name, _, status, *_ in told] == [
        ("task_enqueued", READY),
        ("task_started", RUNNING),
        ("task_started", RUNNING),
        ("task_finished", FAILED),
    ]
    assert len(told[-1][4].errors) == told[-1][4].attempts == 2


@pytest.mark.parametrize(
    ("task", "ends"),
    [(chores.picky, 1), (chores.cancels, 1), (chores.asks_again, 1), (chores.snoozes, 0)],
)
def test_the_end_is_told_once_and_a_snooze_is_none(task, ends):
    with receiving("task_finished") as told:
        ran(task)
    assert [one[2] for one in told] == [FAILED] * ends


def test_a_second_enqueue_of_a_unique_key_is_not_told():
    with receiving("task_enqueued") as told:
        for _ in range(2):
            chores.echo.using(unique_key="k").enqueue()
    assert len(told) == 1


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_receiver_that_fails_hurts_nobody(error):
    def receive(**_kwargs):
        raise error("a bad receiver")

    for name in ("task_started", "task_finished"):
        getattr(signals, name).connect(receive)
    try:
        result = ran(chores.add, 1)
    finally:
        for name in ("task_started", "task_finished"):
            getattr(signals, name).disconnect(receive)
    assert result.return_value == 1


def test_a_receiver_that_fails_does_not_hurt_the_enqueue():
    def receive(**_kwargs):
        raise ValueError("a bad receiver")

    signals.task_enqueued.connect(receive)
    try:
        result = chores.add.enqueue(1)
    finally:
        signals.task_enqueued.disconnect(receive)
    assert Job.objects.filter(pk=result.id).exists()


def test_where_a_task_runs_at_its_enqueue_the_enqueue_is_told_first(settings):
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {"sync": {"BACKEND": "django_jobs.backends.sync.SyncBackend"}},
        "DEFAULT_BACKEND": "sync",
    }
    with receiving(*EVERY) as told:
        result = chores.add.enqueue(1)
        failed = chores.fails.enqueue()
    assert [name for name, *_ in told][:3] == list(EVERY)
    assert (result.status, result.return_value) == (SUCCESSFUL, 1)
    assert (failed.status, failed.attempts) == (FAILED, 2)
    assert JobResult.objects.count() == FailedJob.objects.count() == 1
