"""Tasks made with Django's own decorator, for this backend or for another one."""

import inspect

import pytest
from django.core.management import call_command

from django_jobs.exceptions import InvalidOption
from django_jobs.handlers.registry import registry
from django_jobs.models import Job
from django_jobs.tasks import JobsBackend, JobsTask
from django_jobs.tasks.compat import (
    BaseTaskBackend,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_jobs.worker import process_once

OURS = "django_jobs.tasks.JobsBackend"
pytestmark = pytest.mark.django_db
base = inspect.getmodule(Task)
immediate = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.immediate.ImmediateBackend"
FORWARDS_OPTIONS = any(
    parameter.kind is inspect.Parameter.VAR_KEYWORD
    for parameter in inspect.signature(base.task).parameters.values()
)


def double(number):
    return number * 2


def treble(number):
    return number * 3


@pytest.fixture(autouse=True)
def forget():
    yield
    for function in (double, treble):
        registry._handlers.pop(f"{__name__}.{function.__name__}", None)


def test_it_makes_tasks_of_ours():
    made = base.task(double)
    assert isinstance(made, JobsTask)
    result = made.using(max_retries=2).enqueue(4)
    assert process_once().status == "acked"
    assert made.get_result(result.id).return_value == 8


def test_it_hands_our_options_on_where_it_can():
    if not FORWARDS_OPTIONS:
        with pytest.raises(TypeError):
            base.task(max_retries=5)(double)
        return
    made = base.task(max_retries=5, timeout=30, retry="exponential", atomic=False)(double)
    options = made.options
    assert (options.max_retries, options.timeout, options.retry) == (5, 30, "exponential")
    with pytest.raises(InvalidOption, match="did you mean"):
        base.task(max_retrys=5)(double)


def test_a_task_of_another_backend_can_be_sent_here(settings):
    settings.TASKS = {"default": {"BACKEND": immediate}, "jobs": {"BACKEND": OURS}}
    made = base.task(treble)
    assert not isinstance(made, JobsTask)
    here = made.using(backend="jobs", priority=7)
    result = here.enqueue(3)
    assert (result.status, result.task) == (TaskResultStatus.READY, here)
    assert Job.objects.get().rank == -7
    assert process_once().status == "acked"
    found = here.get_result(result.id)
    assert (found.return_value, found.task) == (9, here)


def test_a_backend_can_be_derived_from_ours(settings):
    settings.TASKS = {"default": {"BACKEND": f"{__name__}.Derived"}}
    made = base.task(double)
    assert isinstance(made.get_backend(), JobsBackend)
    assert made.enqueue(1).status == TaskResultStatus.READY


class Derived(JobsBackend):
    """Of a site of its own."""


def test_a_purge_takes_results_along():
    made = base.task(double)
    result = made.enqueue(4)
    process_once()
    call_command("jobs_purge", "--state", "all", "--older-than", "0s", "--force", verbosity=0)
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()
