"""What ``enqueue`` of a task leaves behind, and what it refuses."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from django_jobs.definition import queue_of_tasks
from django_jobs.exceptions import (
    DuplicateJob,
    InvalidBackend,
    InvalidCall,
    InvalidOption,
    InvalidPayload,
    UnknownOption,
)
from django_jobs.models import Job, JobState
from django_jobs.tasks import JobsBackend, task
from django_jobs.tasks.compat import InvalidTask, TaskResultStatus, task_backends
from django_jobs.worker import process_once
from tests.integration.tasks.chores import tasks as chores

pytestmark = pytest.mark.django_db
OURS = "django_jobs.tasks.JobsBackend"
BACKENDS = {
    "TASK_MODULES": ["tests"],
    "BACKENDS": {
        "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
        "sync": {"BACKEND": "django_jobs.backends.sync.SyncBackend"},
        "memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
    },
}
ODD_NAMES = ["Mail", "mail", "two words", "größe", "", "a,b:3", "{x}/..", "tq--_mail", "語😀"]


def body_of(result):
    return json.loads(Job.objects.get(pk=result.id).body)


def test_a_task_becomes_a_job_whose_handler_is_its_path():
    result = chores.add.enqueue(1, right=2)
    row = Job.objects.get(pk=result.id)
    assert row.handler == "tests.integration.tasks.chores.tasks.add" == chores.add.module_path
    assert (row.queue, row.backend, row.rank) == ("default", "database", 0)
    assert body_of(result)["payload"] == {"args": [1], "kwargs": {"right": 2}}


def test_the_result_of_an_enqueue_says_what_a_later_look_says():
    result = chores.add.enqueue(1, right=2)
    assert result.status == TaskResultStatus.READY
    assert (result.args, result.kwargs, result.attempts, result.errors) == (
        [1],
        {"right": 2},
        0,
        [],
    )
    assert abs(timezone.now() - result.enqueued_at) < timedelta(minutes=1)
    assert not result.is_finished
    assert chores.add.get_result(result.id) == result


def test_coroutines_can_enqueue_and_look():
    async def main():
        result = await chores.aecho.aenqueue("x")
        await result.arefresh()
        return result, await chores.aecho.aget_result(result.id)

    result, again = async_to_sync(main)()
    assert result == again
    assert process_once().status == "acked"
    result.refresh()
    assert result.return_value == "x"


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_was_never_enqueued():
    def order():
        with transaction.atomic():
            chores.echo.enqueue()
            raise LookupError

    with pytest.raises(LookupError):
        order()
    assert not Job.objects.exists()
    with transaction.atomic():
        chores.echo.enqueue()
    assert Job.objects.count() == 1


def test_higher_priority_runs_sooner_and_equals_in_their_order():
    words = [("low", -5), ("first", 0), ("second", 0), ("high", 100)]
    ids = {word: chores.echo.using(priority=priority).enqueue(word).id for word, priority in words}
    ran = [process_once().job_id for _ in words]
    assert ran == [ids[word] for word in ("high", "first", "second", "low")]


# -- options -----------------------------------------------------------------------------------


def test_options_of_the_decorator_and_of_using_travel():
    result = chores.fails.using(
        timeout=30, unique_key="one", result_ttl=60, expires=timedelta(hours=1)
    ).enqueue()
    body = body_of(result)
    assert (body["maxRetries"], body["retry"]) == (1, [0])
    assert (body["timeout"], body["uniqueKey"], body["resultTtl"]) == (30, "one", 60)
    assert body["expiresAt"] > body["enqueuedAt"]


def test_using_keeps_what_an_earlier_using_said():
    given = chores.echo.using(max_retries=3).using(priority=7).using(timeout=5)
    body = body_of(given.enqueue())
    assert (body["maxRetries"], body["priority"], body["timeout"]) == (3, 7, 5)
    assert "timeout" not in body_of(chores.echo.enqueue())


@pytest.mark.parametrize("option", ["queue", "delay", "run_at", "name"])
def test_options_for_which_django_has_a_word_are_refused_with_it(option):
    with pytest.raises(UnknownOption, match=f"no {option}="):
        chores.echo.using(**{option: "x"})


def test_unknown_and_wrong_options_are_refused():
    with pytest.raises(UnknownOption, match="did you mean 'timeout'"):
        chores.echo.using(timeuot=3)
    with pytest.raises(TypeError, match="did you mean 'timeout'"):
        task(timeuot=3)(chores.echo.func)
    with pytest.raises(InvalidOption, match="max_retries"):
        chores.echo.using(max_retries=-1)


def test_a_second_task_of_a_unique_key_is_the_first_one():
    first = chores.echo.using(unique_key="k").enqueue(1)
    second = chores.echo.using(unique_key="k").enqueue(2)
    assert (second.id, second.args) == (first.id, [1])
    assert Job.objects.count() == 1
    with pytest.raises(DuplicateJob):
        chores.echo.using(unique_key="k", on_conflict="raise").enqueue(3)


# -- when --------------------------------------------------------------------------------------


def test_run_after_is_a_moment():
    moment = timezone.now() + timedelta(hours=1)
    task = chores.echo.using(run_after=moment)
    result = task.enqueue()
    assert Job.objects.get().state == JobState.SCHEDULED
    assert task.get_result(result.id) == result
    assert task.get_result(result.id).task.run_after == moment
    assert process_once().status == "empty"


def test_run_after_is_a_length_of_time_that_counts_from_the_enqueue():
    task = chores.echo.using(run_after=timedelta(minutes=90))
    result = task.enqueue()
    assert body_of(result)["delay"] == 5400
    assert Job.objects.get().state == JobState.SCHEDULED
    assert task.get_result(result.id).task.run_after == timedelta(minutes=90)


def test_a_naive_run_after_is_refused_where_time_zones_are_used():
    with pytest.raises(InvalidTask, match="aware"):
        chores.echo.using(run_after=datetime(2040, 1, 1))  # noqa: DTZ001 - a naive one is the point


def test_a_naive_run_after_is_local_time_where_they_are_not(settings):
    settings.USE_TZ = False
    moment = datetime(2040, 1, 1, 12)  # noqa: DTZ001 - a naive one is the point
    result = chores.echo.using(run_after=moment).enqueue()
    noon_in_vienna = datetime(2040, 1, 1, 11, tzinfo=UTC)
    assert body_of(result)["schedule"] == noon_in_vienna.timestamp() * 1_000_000
    told = chores.echo.get_result(result.id)
    assert told.task.run_after == moment
    assert told.enqueued_at.tzinfo is None


# -- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, object()])
def test_arguments_that_are_no_json_are_refused_as_django_does(value):
    with pytest.raises(TypeError, match="Unsupported type"):
        chores.echo.enqueue(value)
    assert not Job.objects.exists()


@pytest.mark.parametrize("value", [float("nan"), {1: "a"}, "\0", "\ud800", "x" * 300_000])
def test_arguments_that_would_not_come_back_are_refused(value):
    with pytest.raises(InvalidPayload):
        chores.echo.enqueue(value)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("misplaced", "words"),
    [
        ({"delay": 5}, "run_after= with a timedelta"),
        ({"countdown": 5}, "run_after= with a timedelta"),
        ({"run_after": 5}, "run_after="),
        ({"queue_name": "mail"}, "queue_name="),
        ({"unique_key": "a"}, "unique_key="),
    ],
)
def test_an_option_among_the_arguments_is_answered_in_the_words_of_tasks(misplaced, words):
    way = re.escape(f"goes into using(…).enqueue(…): use {words}") + "$"
    with pytest.raises(TypeError, match=way):
        chores.add.enqueue(1, **misplaced)


@pytest.mark.parametrize("kind", [InvalidPayload, InvalidCall, TypeError, ValueError])
def test_a_call_that_would_fail_is_refused_as_python_would(kind):
    with pytest.raises(kind, match="cannot be called so"):
        chores.add.enqueue()


def test_unicode_and_large_integers_survive():
    values = ["ünïcode \N{SNOWMAN} \U0001f600", 2**200, -(2**63) - 1, 0.1, [None, True, {"a": {}}]]
    result = chores.echo.enqueue(*values)
    assert result.args == values
    process_once()
    result.refresh()
    assert result.return_value == [values, {}]


def test_a_task_that_no_worker_would_find_is_refused_at_its_enqueue(settings):
    settings.DJANGO_JOBS = {}
    stranger = chores.add.using(priority=1)
    with pytest.raises(InvalidTask, match=r"chores\.tasks' to DJANGO_JOBS\['TASK_MODULES'\]"):
        stranger.enqueue(1, right=2)
    assert not Job.objects.exists()
    settings.DJANGO_JOBS = {"TASK_MODULES": ["tests.integration.tasks.chores"]}
    assert stranger.enqueue(1, right=2).status == TaskResultStatus.READY


@pytest.mark.parametrize("backend", ["sync.SyncBackend", "memory.MemoryBackend"])
def test_what_runs_in_this_process_needs_no_worker_to_find_it(settings, backend):
    path = f"django_jobs.backends.{backend}"
    settings.DJANGO_JOBS = {"BACKENDS": {"here": {"BACKEND": path}}, "DEFAULT_BACKEND": "here"}
    assert chores.add.using(priority=1).enqueue(1, right=2).id


# -- queues and aliases ------------------------------------------------------------------------


def test_a_queue_must_be_allowed_by_tasks_and_by_us(settings):
    with pytest.raises(InvalidTask, match="not valid for backend"):
        chores.echo.using(backend="reports").enqueue()
    with pytest.raises(InvalidTask, match=r"^the queue 'Ü{16}': 'tq--.* to 64 .* has 68 ch"):
        chores.echo.using(queue_name="Ü" * 16)
    with pytest.raises(InvalidTask, match="queue_name is 7"):
        chores.echo.using(queue_name=7)
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"mail": {}}}
    with pytest.raises(InvalidTask, match="is not in DJANGO_JOBS"):
        chores.echo.using(queue_name="mial")
    with pytest.raises(InvalidTask, match=r"^the queue 'Mail': the queue 'tq--_mail' is not in"):
        chores.echo.using(queue_name="Mail")
    chores.echo.using(queue_name="mail").enqueue()


@pytest.mark.parametrize("backend", ["database", "sync", "memory"])
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_queue_may_have_any_name_that_tasks_allow(name, backend, settings):
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **BACKENDS}
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": [name, "default"], "OPTIONS": {"BACKEND": backend}}
    }
    task = chores.options.using(queue_name=name)
    result = task.enqueue()
    if backend != "sync":
        queue = queue_of_tasks(name)
        assert process_once(queue, backend=backend).status == "acked"
    if backend != "memory":  # its results can be seen in its own process only
        found = task_backends["default"].get_result(result.id)
        assert (found.task.queue_name, found.return_value[1]) == (name, name)


def test_commands_and_pages_know_such_a_queue_by_its_other_name(admin_client, capsys):
    result = chores.echo.using(queue_name="Große E-Mails").enqueue()
    queue = "tq--_gro.df.e_-_e-_mails"
    with pytest.raises(CommandError, match=f"of Django's Tasks is '{re.escape(queue)}'"):
        call_command("jobs_work", "--until-empty", "--queue", "Große E-Mails")
    page = admin_client.get(reverse("admin:django_jobs_job_change", args=[result.id])).text
    assert queue in page
    call_command("jobs_queue", "set", queue, "concurrency=4")
    queues = admin_client.get(reverse("admin:django_jobs_queuecontrol_changelist")).text
    assert queue in queues
    call_command("jobs_status", "--json")
    assert queue in capsys.readouterr().out
    call_command("jobs_work", "--until-empty", "--processes", "0", "--queue", queue)
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


def test_a_job_on_such_a_queue_is_a_task_on_it(settings):
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": ["Mail"]}}
    task = chores.plain_job.using(queue="tq--_mail").task
    assert task.queue_name == chores.plain_job.using(queue="tq--_mail").queue_name == "Mail"
    result = task.enqueue("x")
    assert Job.objects.get(pk=result.id).queue == "tq--_mail"


def test_two_aliases_share_one_backend_and_one_worker():
    here = chores.told.enqueue()
    there = chores.told.using(backend="reports", queue_name="reports").enqueue()
    assert {process_once("default").status, process_once("reports").status} == {"acked"}
    for result, alias in ((here, "default"), (there, "reports")):
        result.refresh()
        assert result.backend == alias
        assert result.return_value[-1] == alias
        assert task_backends["default"].get_result(result.id).backend == alias


def test_an_alias_names_its_backend(settings):
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {
            "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
            "sync": {"BACKEND": "django_jobs.backends.sync.SyncBackend"},
        },
    }
    settings.TASKS = {
        "default": {"BACKEND": OURS, "OPTIONS": {"BACKEND": "sync"}},
        "later": {"BACKEND": OURS},
        "lost": {"BACKEND": OURS, "OPTIONS": {"BACKEND": "databse"}},
    }
    assert chores.add.enqueue(1).return_value == 1
    assert chores.add.using(backend="later").enqueue(1).status == TaskResultStatus.READY
    with pytest.raises(InvalidBackend, match="did you mean 'database'"):
        chores.add.using(backend="lost").enqueue(1)


def test_flags_tell_what_the_backend_below_can_do(settings):
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {
            "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
            "sync": {"BACKEND": "django_jobs.backends.sync.SyncBackend"},
            "redis": {"BACKEND": "django_jobs.backends.redis.RedisBackend"},
            "memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
        },
    }
    flags = {}
    for name in settings.DJANGO_JOBS["BACKENDS"]:
        backend = JobsBackend("default", {"OPTIONS": {"BACKEND": name}})
        flags[name] = (
            backend.supports_defer,
            backend.supports_async_task,
            backend.supports_get_result,
            backend.supports_priority,
        )
    assert flags == {
        "database": (True, True, True, True),
        "sync": (False, True, True, True),
        "redis": (True, True, True, True),
        "memory": (True, True, False, True),
    }


def test_without_results_there_are_none_to_ask_for(settings):
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {"memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}},
        "DEFAULT_BACKEND": "memory",
    }
    result = chores.add.enqueue(1)
    assert result.status == TaskResultStatus.READY
    assert process_once("default", backend="memory").status == "acked"
    with pytest.raises(NotImplementedError):
        result.refresh()


def test_what_a_backend_cannot_do_is_refused_when_the_task_asks_for_it(settings):
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {"sync": {"BACKEND": "django_jobs.backends.sync.SyncBackend"}},
        "DEFAULT_BACKEND": "sync",
    }
    for moment in (timedelta(1), timezone.now()):
        with pytest.raises(InvalidTask, match="does not support run_after"):
            chores.echo.using(run_after=moment)


def test_a_backend_holds_nothing_but_its_configuration():
    backend = JobsBackend("default", {"OPTIONS": {}})
    before = dict(vars(backend))
    backend.get_result(backend.enqueue(chores.echo, (), {}).id)
    assert vars(backend) == before
