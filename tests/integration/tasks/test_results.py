"""Results in every state a job can be in, from whatever process, however old."""

import pickle
import sys
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobs import define
from django_jobs.backends.base import Charge
from django_jobs.backends.registry import backends
from django_jobs.handlers.base import Handler
from django_jobs.handlers.registry import registry
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from django_jobs.operations.cancel import cancel
from django_jobs.tasks import task
from django_jobs.tasks.compat import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from django_jobs.worker import process_once
from tests.integration.tasks.chores import tasks as chores

pytestmark = pytest.mark.django_db
READY, RUNNING, FAILED, SUCCESSFUL = (
    TaskResultStatus.READY,
    TaskResultStatus.RUNNING,
    TaskResultStatus.FAILED,
    TaskResultStatus.SUCCESSFUL,
)


def leased():
    (lease,) = backends["database"].fetch(["default"], 1, 30.0)
    return lease


def refreshed(result):
    result.refresh()
    return result


# -- alive -------------------------------------------------------------------------------------


def test_running():
    result = chores.echo.enqueue()
    leased()
    refreshed(result)
    assert (result.status, result.attempts, result.is_finished) == (RUNNING, 1, False)
    assert result.worker_ids == [Job.objects.get().worker]
    assert result.started_at == result.last_attempted_at
    assert abs(timezone.now() - result.started_at) < timedelta(minutes=1)
    with pytest.raises(ValueError, match="not finished yet"):
        _ = result.return_value


def test_given_back_it_waits_again_as_if_it_had_never_run():
    result = chores.echo.enqueue()
    backends["database"].nack(leased(), charge=Charge.NOTHING)
    refreshed(result)
    assert (result.status, result.attempts, result.started_at) == (READY, 0, None)


def test_waiting_for_a_retry():
    result = chores.fails.using(retry=[3600]).enqueue()
    assert process_once().status == "requeued"
    refreshed(result)
    assert (result.status, result.attempts, len(result.errors)) == (READY, 1, 1)
    assert result.finished_at is None
    assert result.started_at == result.last_attempted_at == JobAttempt.objects.get().started_at


def test_running_again():
    result = chores.fails.enqueue()
    process_once()
    leased()
    refreshed(result)
    assert (result.status, result.attempts, len(result.errors)) == (RUNNING, 2, 1)
    assert result.started_at < result.last_attempted_at


# -- ended -------------------------------------------------------------------------------------


def test_successful():
    result = chores.add.enqueue(20, right=22)
    process_once()
    refreshed(result)
    assert (result.status, result.return_value, result.errors) == (SUCCESSFUL, 42, [])
    assert (result.args, result.kwargs) == ([20], {"right": 22})
    assert result.worker_ids == [JobResult.objects.get().worker]
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at


def test_successful_at_last(tmp_path):
    result = chores.fails_until.enqueue(str(tmp_path / "marker"))
    assert [process_once().status for _ in range(2)] == ["requeued", "acked"]
    refreshed(result)
    assert (result.status, result.return_value) == (SUCCESSFUL, "at last")
    assert [error.exception_class for error in result.errors] == [RuntimeError]
    assert len(result.worker_ids) == 2
    assert result.started_at < result.last_attempted_at <= result.finished_at


def test_errors_stand_in_the_order_in_which_they_came():
    result = chores.fails_in_turn.enqueue()
    assert [process_once().status for _ in range(3)] == ["requeued", "requeued", "dead-lettered"]
    refreshed(result)
    assert [one.exception_class for one in result.errors] == [ValueError, OSError, LookupError]
    assert "LookupError: ['builtins.ValueError', 'builtins.OSError']" in result.errors[-1].traceback


def test_cancelled_by_itself_and_by_an_operator():
    by_itself, by_operator = chores.cancels.enqueue(), chores.echo.using(priority=-9).enqueue()
    assert process_once().status == "cancelled"
    assert cancel(by_operator.id, by="ann")
    for result, attempts in ((by_itself, 1), (by_operator, 0)):
        refreshed(result)
        assert (result.status, result.is_finished, result.attempts) == (FAILED, True, attempts)
        (error,) = result.errors
        assert error.exception_class.__name__ == "Cancel"
    assert "nothing to do" in by_itself.errors[0].traceback


def test_dead_without_having_run():
    result = chores.echo.enqueue()
    Job.objects.update(signature="0" * 64)
    assert process_once().status == "rejected"
    refreshed(result)
    assert (result.status, result.attempts, result.started_at) == (FAILED, 0, None)
    (error,) = result.errors
    assert error.exception_class.__name__ == "JobFailed"
    assert error.traceback.startswith("rejected-signature: ")
    assert result.finished_at is not None


@pytest.mark.parametrize(
    "body", ["", "no json", "[]", '{"meta": 3}', '{"priority": "x"}', '{"schedule": "now"}']
)
def test_a_body_that_cannot_be_read_hides_nothing_else(body):
    result = chores.echo.enqueue("x")
    Job.objects.update(body=body)
    assert process_once().status == "rejected"
    told = chores.echo.get_result(result.id)
    assert (told.status, told.args, told.enqueued_at) == (FAILED, [], result.enqueued_at)
    assert told.errors[0].traceback.startswith("rejected-")


def test_dead_after_crashes():
    result = chores.echo.enqueue()
    Job.objects.update(crashes=3)
    assert process_once().status == "crashed"
    refreshed(result)
    assert result.status == FAILED
    assert result.errors[0].traceback.startswith("crashed: ")


def test_attempts_are_counted_also_where_no_record_of_them_is_kept():
    result = chores.fails.enqueue()
    while process_once():
        pass
    JobAttempt.objects.all().delete()
    refreshed(result)
    assert result.worker_ids == ["unknown", "unknown"]
    assert [error.exception_class for error in result.errors] == [ValueError]


# -- who asks for what is not there --------------------------------------------------------------


@pytest.mark.parametrize("result_id", ["123", "", "x" * 100, 7, None, str(uuid4()), "\0"])
def test_an_id_that_is_unknown_or_none_at_all(result_id):
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result_id)


def test_a_result_whose_time_is_over():
    result = chores.echo.using(result_ttl=0).enqueue()
    process_once()
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_a_job_that_is_no_call_is_no_task():
    class Plain(Handler):
        key = "tests.plain"

        def handle(self, context):
            pass

    registry.register(Plain())
    handle = define("tests.plain", ["a list"]).enqueue()
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(handle.id)


# -- what has changed since ----------------------------------------------------------------------


def test_a_queue_that_was_removed_leaves_its_results_readable(settings):
    waiting = chores.echo.using(queue_name="old").enqueue("w")
    ended = chores.echo.using(queue_name="old", priority=5).enqueue("e")
    process_once("old")
    settings.TASKS = {"default": {"BACKEND": "django_jobs.tasks.JobsBackend", "QUEUES": ["new"]}}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"new": {}}}
    for result in (waiting, ended):
        told = task_backends["default"].get_result(result.id)
        assert told.task.queue_name == "old"
        assert told.args == result.args


def test_a_function_that_was_renamed_leaves_its_results_readable():
    result = chores.echo.enqueue("x")
    Job.objects.update(handler="tests.integration.tasks.chores.tasks.was_here")
    told = task_backends["default"].get_result(result.id)
    assert told.task.module_path == "tests.integration.tasks.chores.tasks.was_here"
    assert (told.task.name, told.args) == ("was_here", ["x"])
    with pytest.raises(LookupError, match="no task"):
        told.task.call()


def test_nothing_is_imported_to_show_a_result():
    result = chores.echo.enqueue()
    Job.objects.update(handler="antigravity.fly")
    told = task_backends["default"].get_result(result.id)
    assert told.task.module_path == "antigravity.fly"
    assert "antigravity" not in sys.modules


# -- costs and copies ----------------------------------------------------------------------------


def test_a_result_is_one_query_away():
    result = chores.echo.enqueue()
    process_once()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        result.refresh()
    assert len(queries) == 1


def test_a_dead_letter_is_a_result_until_it_is_purged():
    result = chores.picky.enqueue()
    process_once()
    assert refreshed(result).status == FAILED
    FailedJob.objects.all().delete()
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_tasks_and_results_can_be_pickled():
    given = chores.fails.using(priority=3, timeout=9, run_after=timedelta(hours=1))
    assert pickle.loads(pickle.dumps(given)) == given  # noqa: S301 - our own
    result = chores.fails.enqueue()
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301 - our own


def test_a_path_to_something_else_is_not_unpickled():
    class Forged:
        def __reduce__(self):
            return (chores.echo.__reduce__()[0], ("os.system", {}))

    with pytest.raises(ValueError, match="was to lead to a task"):
        pickle.loads(pickle.dumps(Forged()))  # noqa: S301 - our own


def test_a_decorated_task_needs_no_more_than_the_name():
    assert task(chores.echo.func) == chores.echo
