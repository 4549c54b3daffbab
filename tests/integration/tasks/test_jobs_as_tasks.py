"""A ``@job`` where a Task is wanted."""

import pickle
from importlib.util import find_spec

import pytest
from asgiref.sync import async_to_sync
from django.utils.module_loading import import_string

from django_jobs.backends.registry import backends
from django_jobs.exceptions import InvalidJob
from django_jobs.models import Job
from django_jobs.tasks.compat import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from django_jobs.worker import process_once
from tests.integration.tasks.chores import tasks as chores

TASKS = "django.tasks" if find_spec("django.tasks") else "django_tasks"
Mismatch = import_string(f"{TASKS}.exceptions.TaskResultMismatch")
pytestmark = pytest.mark.django_db(databases=["default", "other"])
OURS = "django_jobs.tasks.JobsBackend"
DATABASE = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}


def test_a_job_as_a_task_goes_where_the_job_goes(settings):
    memory = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {"database": DATABASE, "second": memory},
        "QUEUES": {"mail": {"BACKEND": "second"}, "default": {}},
    }
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": []}}
    by_option = chores.plain_job.using(queue="default", backend="second")
    for job in (chores.plain_job, by_option):
        with pytest.raises(InvalidJob, match="'second', and no alias of TASKS leads there"):
            _ = job.task
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": []},
        "narrow": {"BACKEND": OURS, "QUEUES": ["other"], "OPTIONS": {"BACKEND": "second"}},
        "away": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"BACKEND": "second"}},
    }
    for job in (chores.plain_job, by_option):
        assert job.task.enqueue("ab").backend == "away"
    assert backends["second"].stats("mail").ready == 1
    assert not Job.objects.exists()


def test_a_job_goes_through_the_alias_that_takes_the_queue_by_its_name_among_tasks(settings):
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": ["default"]},
        "letters": {"BACKEND": OURS, "QUEUES": ["Mail"]},
    }
    assert chores.plain_job.using(queue="tq--_mail").task.backend == "letters"


def test_where_tasks_are_not_ours_a_job_is_a_task_of_theirs(settings):
    # No alias of ours leads to the job's backend, and tasks are somebody else's: as in tests.
    path = f"{TASKS}.backends.dummy.DummyBackend"
    settings.TASKS = {"default": {"BACKEND": path, "QUEUES": []}}
    assert chores.plain_job.task.enqueue("ab").backend == "default"
    assert not Job.objects.exists()


def test_a_job_is_a_task_where_one_is_wanted():
    task = chores.plain_job.task
    assert (task.queue_name, task.name, task.call("ab")) == ("mail", "plain_job", "abab")
    result = task.using(priority=3).enqueue("ab")
    row = Job.objects.get(pk=result.id)
    assert (row.handler, row.rank) == (chores.plain_job.key, -3)
    assert '"maxRetries":2' in row.body
    assert process_once("mail").status == "acked"
    assert task.get_result(result.id).return_value == "abab"


def test_a_job_with_a_key_and_a_context_is_one_too():
    result = chores.keyed_job.task.enqueue("x")
    assert process_once().status == "acked"
    result.refresh()
    assert result.return_value == [1, "x"]
    assert result.task.func is chores.keyed_job.function


def test_the_task_of_a_job_can_be_pickled():
    task = chores.plain_job.task
    assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301 - our own


def test_what_is_asked_of_a_task_a_job_answers_itself():
    names = ("func", "name", "module_path", "takes_context", "priority", "queue_name")
    for job in (chores.plain_job, chores.keyed_job, chores.coroutine_job):
        assert [getattr(job, one) for one in names] == [getattr(job.task, one) for one in names]
        assert job.get_backend() is job.task.get_backend()
    assert chores.plain_job.using(priority=7).priority == 7


def test_a_job_is_called_as_a_task_is():
    assert chores.plain_job.call("ab") == chores.plain_job.task.call("ab") == "abab"
    assert chores.coroutine_job.call("a") == async_to_sync(chores.coroutine_job.acall)("a") == "aaa"
    assert async_to_sync(chores.plain_job.acall)("ab") == "abab"
    assert chores.keyed_job.call("x") == [1, "x"]


def test_a_job_finds_results_and_refuses_those_of_others():
    handle = chores.plain_job.enqueue("ab")
    assert chores.plain_job.get_result(handle.id).args == ["ab"]
    with pytest.raises(Mismatch):
        chores.coroutine_job.get_result(handle.id)
    with pytest.raises(TaskResultDoesNotExist):
        chores.plain_job.get_result("no id")


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_finds_results_too():
    handle = chores.plain_job.enqueue("ab")
    assert async_to_sync(chores.plain_job.aget_result)(handle.id).args == ["ab"]


def test_a_backend_of_tasks_takes_a_job():
    result = task_backends["default"].enqueue(chores.plain_job, ("ab",), {})
    assert (result.task.module_path, result.status) == (
        chores.plain_job.module_path,
        TaskResultStatus.READY,
    )


def test_the_handle_of_a_job_leads_to_a_result():
    handle = chores.plain_job.enqueue("ab")
    result = chores.plain_job.task.get_result(handle.id)
    assert (result.status, result.args) == (TaskResultStatus.READY, ["ab"])
