"""A real worker runs tasks beside jobs; signals stop it, and deaths lose nothing."""

import os
import signal
import subprocess

import pytest

from django_jobs.models import Job, JobResult, JobState
from django_jobs.tasks.compat import TaskResultStatus
from tests.integration.tasks.attic import tasks as attic
from tests.integration.tasks.chores import hidden
from tests.integration.tasks.chores import tasks as chores
from tests.integration.tasks.conftest import PATIENCE_SECONDS, is_alive, until

pytestmark = pytest.mark.django_db(transaction=True)
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL


def ended(worker):
    return worker.wait(PATIENCE_SECONDS)


def refreshed(result):
    result.refresh()
    return result


@pytest.mark.parametrize(
    "options", [("--processes", "0"), ("--processes", "2"), ("--concurrency", "4")], ids=" ".join
)
def test_one_worker_runs_the_tasks_of_every_alias_and_plain_jobs(start, options):
    tasks = [
        chores.add.enqueue(1, right=2),
        chores.aecho.enqueue("async"),
        chores.told.using(backend="reports", queue_name="reports").enqueue(),
        chores.plain_job.task.enqueue("ab"),
    ]
    fails = chores.fails.enqueue()
    handle = chores.plain_job.enqueue("cd")
    assert ended(start("--until-empty", *options)) == 0
    values = [refreshed(result).return_value for result in tasks]
    assert values == [3, "async", [tasks[2].id, 1, "RUNNING", 0, "reports"], "abab"]
    assert handle.result() == "cdcd"
    assert (refreshed(fails).status, len(fails.errors), fails.attempts) == (FAILED, 2, 2)
    assert all(result.worker_ids[0].rpartition(":")[0] == os.uname().nodename for result in tasks)


def test_a_task_whose_module_nobody_imported_is_found_where_the_site_allows_it(start, diary):
    result = hidden.found.enqueue(str(diary))
    assert ended(start("--until-empty", TASK_MODULES=[hidden.__name__])) == 0
    assert diary.words == ["found"]
    assert refreshed(result).status == SUCCESSFUL


def test_what_is_no_task_or_of_no_app_is_not_run(start, diary, tmp_path):
    plain = hidden.plain
    chores.task(plain)  # here it is a task, in the worker's hidden.py it is a plain function
    no_task = chores.task(plain).enqueue(str(diary))
    no_app = attic.dusty.enqueue(str(tmp_path / "marker"))
    assert ended(start("--until-empty", TASK_MODULES=[hidden.__name__])) == 0
    for result in (no_task, no_app):
        refreshed(result)
        assert (result.status, len(result.errors)) == (FAILED, 1)
        assert result.errors[0].exception_class_path == "builtins.UnknownHandler"
    assert diary.words == []
    assert not (tmp_path / "marker").exists()
    again = attic.dusty.enqueue(str(tmp_path / "marker"))
    modules = ["tests.integration.tasks.attic"]
    assert ended(start("--until-empty", TASK_MODULES=modules)) == 0
    assert refreshed(again).status == SUCCESSFUL
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_a_task_end(start, diary, number):
    result, waiting = chores.hold.enqueue(str(diary), str(diary.gate)), None
    worker = start()
    until(lambda: diary.words == ["begin"])
    waiting = chores.note.enqueue(str(diary))
    worker.send_signal(number)
    diary.gate.touch()
    assert ended(worker) == 0
    assert diary.words == ["begin", "end"]
    assert refreshed(result).return_value == "held"
    assert (refreshed(waiting).status, waiting.attempts) == (TaskResultStatus.READY, 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_interrupts_a_task_which_waits_again_uncharged(
    start, diary, number, code
):
    result = chores.hold.enqueue(str(diary), str(diary.gate))
    worker = start()
    until(lambda: diary.words == ["begin"])
    assert refreshed(result).status == TaskResultStatus.RUNNING
    assert result.worker_ids == [f"{os.uname().nodename}:{worker.pid}"]
    worker.send_signal(number)
    while True:
        try:
            assert worker.wait(2) == code
            break
        except subprocess.TimeoutExpired:  # the first one has been seen by now
            worker.send_signal(number)
    refreshed(result)
    assert (result.status, result.attempts, result.errors) == (TaskResultStatus.READY, 0, [])


def test_a_killed_child_is_replaced_and_its_task_runs_again(start, diary):
    result = chores.hold.enqueue(str(diary), str(diary.gate))
    worker = start()
    until(lambda: diary.words == ["begin"])
    (victim,) = diary.pids
    os.kill(victim, signal.SIGKILL)
    until(lambda: diary.words == ["begin", "begin"])
    assert not is_alive(victim)
    assert victim != diary.pids[1]
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert (refreshed(result).return_value, result.attempts) == ("held", 1)
    worker.send_signal(signal.SIGTERM)
    assert ended(worker) == 0


def test_a_killed_worker_leaves_its_task_to_another(start, diary):
    result = chores.hold.enqueue(str(diary), str(diary.gate))
    worker = start()
    until(lambda: diary.words == ["begin"])
    worker.send_signal(signal.SIGKILL)
    ended(worker)
    until(lambda: not is_alive(diary.pids[0]))
    assert Job.objects.get().state == JobState.RUNNING
    diary.gate.touch()
    other = start()
    until(JobResult.objects.exists)
    assert refreshed(result).return_value == "held"
    assert diary.words == ["begin", "begin", "end"]
    other.send_signal(signal.SIGTERM)
    assert ended(other) == 0
