"""A ``@job`` where a Task is wanted."""

import pickle
from importlib.util import find_spec

import pytest

from django_jobs.backends.registry import backends
from django_jobs.exceptions import InvalidJob
from django_jobs.models import Job
from django_jobs.tasks.compat import TaskResultStatus
from django_jobs.worker import process_once
from tests.integration.tasks.chores import tasks as chores

pytestmark = pytest.mark.django_db(databases=["default", "other"])
OURS = "django_jobs.tasks.JobsBackend"
DATABASE = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}


def test_a_job_as_a_task_goes_where_the_job_goes(settings):
    memory = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}
    settings.DJANGO_JOBS = {
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


def test_where_tasks_are_not_ours_a_job_is_a_task_of_theirs(settings):
    # No alias of ours leads to the job's backend, and tasks are somebody else's: as in tests.
    path = "django.tasks.backends.dummy.DummyBackend"
    if not find_spec("django.tasks"):
        path = "django_tasks.backends.dummy.DummyBackend"
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


def test_the_handle_of_a_job_leads_to_a_result():
    handle = chores.plain_job.enqueue("ab")
    result = chores.plain_job.task.get_result(handle.id)
    assert (result.status, result.args) == (TaskResultStatus.READY, ["ab"])
