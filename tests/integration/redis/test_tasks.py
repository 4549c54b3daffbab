"""Django's Tasks on Redis."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from django_jobs.backends.base import Charge
from django_jobs.definition import queue_of_tasks
from django_jobs.exceptions import ResultNotKept
from django_jobs.operations.cancel import cancel_or_ask_to_stop
from django_jobs.operations.explain import explain
from django_jobs.tasks.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from django_jobs.worker import process_once
from tests.integration.tasks.chores import tasks as chores
from tests.integration.tasks.conftest import diary, start  # noqa: F401 - fixtures of these tasks

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
READY, RUNNING, FAILED, SUCCESSFUL = (
    TaskResultStatus.READY,
    TaskResultStatus.RUNNING,
    TaskResultStatus.FAILED,
    TaskResultStatus.SUCCESSFUL,
)


def refreshed(result):
    result.refresh()
    return result


def test_tasks_run_and_tell_of_it(jobs, start):  # noqa: F811 - the fixture
    added, fails = chores.add.enqueue(1, right=2), chores.fails.enqueue()
    assert start("--until-empty", **jobs).wait(60) == 0
    added.refresh()
    fails.refresh()
    assert added.return_value == 3
    assert (fails.status.name, len(fails.errors), fails.attempts) == ("FAILED", 2, 2)
    assert added.worker_ids


@pytest.mark.parametrize("name", ["Mail", "{two} words", "", "größe:3,b"])
def test_a_queue_may_have_any_name_that_tasks_allow(jobs, name):
    result = chores.options.using(queue_name=name).enqueue()
    assert process_once(queue_of_tasks(name)).status == "acked"
    assert refreshed(result).return_value[1] == result.task.queue_name == name
    assert chores.options.get_result(result.id).task.queue_name == name


def test_a_return_value_that_is_not_kept_says_why(jobs):
    task, handle = chores.returns_a_date.enqueue(), chores.dated_job.enqueue()
    assert [process_once().status for _ in range(2)] == ["acked"] * 2
    assert refreshed(task).status == SUCCESSFUL
    for ask in (lambda: task.return_value, handle.result):
        with pytest.raises(ResultNotKept, match="is of type date, which is not JSON"):
            ask()
    (cause,) = explain(handle.id).causes
    assert "Its return value was not kept: value is of type date" in cause.text


def test_a_result_while_it_waits_runs_and_has_ended(jobs, backend):
    result = chores.add.using(queue_name="default").enqueue(20, right=22)
    assert (refreshed(result).status, result.attempts, result.started_at) == (READY, 0, None)
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert (refreshed(result).status, result.attempts) == (RUNNING, 1)
    assert abs(timezone.now() - result.started_at) < timedelta(minutes=1)
    with pytest.raises(ValueError, match="not finished yet"):
        _ = result.return_value
    backend.nack(lease, charge=Charge.NOTHING)
    assert process_once().status == "acked"
    assert (refreshed(result).status, result.return_value) == (SUCCESSFUL, 42)
    assert (result.args, result.kwargs) == ([20], {"right": 22})
    assert result.enqueued_at <= result.last_attempted_at <= result.finished_at


def test_a_result_while_it_waits_for_a_retry(jobs):
    result = chores.fails.using(retry=[3600]).enqueue("not yet")
    assert process_once().status == "requeued"
    assert (refreshed(result).status, result.attempts, result.finished_at) == (READY, 1, None)
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "not yet" in error.traceback


def test_a_failed_result_has_an_error_for_each_attempt(jobs):
    result = chores.fails.enqueue("as ever")
    assert [process_once().status for _ in range(2)] == ["requeued", "dead-lettered"]
    assert (refreshed(result).status, result.attempts, result.is_finished) == (FAILED, 2, True)
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_task_that_was_cancelled_while_it_waited_can_be_read_again(jobs):
    result = chores.add.using(priority=5).enqueue(1, right=2)
    assert cancel_or_ask_to_stop(result.id, by="ada").status == "cancelled"
    again = chores.add.get_result(result.id)
    assert (again.status, again.args, again.kwargs) == (FAILED, [1], {"right": 2})
    assert (again.task.func, again.task.priority) == (chores.add.func, 5)
    assert again.finished_at is not None
    (error,) = again.errors
    assert "cancelled" in error.traceback


def test_one_that_succeeds_at_last_keeps_its_errors(jobs, tmp_path):
    result = chores.fails_until.enqueue(str(tmp_path / "marker"))
    assert [process_once().status for _ in range(2)] == ["requeued", "acked"]
    assert (refreshed(result).status, result.return_value) == (SUCCESSFUL, "at last")
    assert [error.exception_class for error in result.errors] == [RuntimeError]


def test_higher_priorities_run_sooner_and_what_is_not_due_waits(jobs):
    later = chores.echo.using(run_after=timedelta(hours=1), priority=100).enqueue()
    ids = {n: chores.echo.using(priority=n).enqueue(n).id for n in (-5, 0, 50)}
    assert [process_once().job_id for _ in ids] == [ids[50], ids[0], ids[-5]]
    assert process_once().status == "empty"
    assert refreshed(later).status == READY
    assert later.task.priority == 100


@pytest.mark.parametrize("unknown", [str(uuid4()), "no id", ""])
def test_there_is_no_result_of_what_is_not_there(jobs, unknown):
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(unknown)
