"""A pool whose children are started afresh, for an app has started a thread in the parent."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from django.db import connection

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobResult, JobState
from django_jobs.worker.pool import spawnserver
from tests.integration.worker.pool.conftest import children_of, is_alive, until
from tests.integration.worker.pool.gang import jobs as gang
from tests.integration.worker.pool.threaded import apps as threaded

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def with_a_thread(monkeypatch):
    monkeypatch.setenv("GANG_THREAD", "1")


@pytest.fixture
def with_an_app_that_fails_in_children(monkeypatch):
    monkeypatch.setenv("GANG_THREAD", "fails-in-children")


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - a list of numbers


def test_jobs_run_once_in_processes_that_are_no_copies(with_a_thread, start, diary):
    gang.census.enqueue(str(diary))
    enqueue_many([gang.note.prepare(str(diary), f"n{number}") for number in range(200)])
    pool = start("-v0")
    until(lambda: JobResult.objects.filter(status="succeeded").count() == 201)
    census, *notes = sorted(diary.words, key=lambda word: word.startswith("n"))
    assert Counter(notes) == {f"n{number}": 1 for number in range(200)}
    assert threaded.NAME in census.split(",")  # the app's own, in each process anew
    assert threads_of(pool.fork_server) == 1
    assert "spawnserver.server_main" in " ".join(command_of(pool.fork_server))
    for pid in children_of(pool.fork_server):
        assert "spawnserver.child_main" in " ".join(command_of(pid))
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert "Traceback" not in pool.said
    assert "Warning" not in pool.said


def test_without_such_a_thread_children_are_copies(start, diary):
    gang.note.enqueue(str(diary))
    pool = start()
    until(lambda: diary.words)
    assert "jobs_work" in command_of(pool.fork_server)
    assert "jobs_work" in command_of(diary.pid("ran"))


def test_the_default_number_of_processes_is_that_of_the_cores(with_a_thread, start, diary):
    gang.note.enqueue(str(diary))
    pool = start(processes=None)
    until(lambda: diary.words)
    assert diary.pid("ran") in children_of(pool.fork_server)


@pytest.mark.parametrize(("how", "told"), [("exit-1", "exit code 1"), ("killed", "SIGKILL")])
def test_a_crash_is_noticed_and_charged_alone(with_a_thread, start, diary, how, told):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(20)])
    gang.die.enqueue(str(diary), how)
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(20, 40)])
    assert start("--until-empty").ended() == 0
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.crashes, dead.attempts) == ("crashed", 2, 0)
    assert told in dead.error_message
    assert JobResult.objects.filter(status="succeeded", attempts=0).count() == 40
    assert len({pid for pid, word, _ in diary.lines if word == f"{how}-begins"}) == 2


def test_a_handler_that_does_not_end_is_killed_with_what_it_started(with_a_thread, start, diary):
    gang.stuck.enqueue(str(diary), "grandchild")
    start()
    until(lambda: FailedJob.objects.filter(reason="timed-out").exists())
    (helper,) = [word for word in diary.words if word.startswith("helper=")]
    until(lambda: not is_alive(int(helper.partition("=")[2])))


def test_the_first_signal_lets_jobs_end_and_the_second_does_not(with_a_thread, start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start()
    until(lambda: diary.words == ["hold-begins"])
    for pid in [pool.pid, *pool.family]:
        os.kill(pid, signal.SIGTERM)
    enqueue_many([gang.note.prepare(str(diary)) for _ in range(3)])
    until(lambda: "stopping, because a signal" in pool.said)
    assert pool.process.poll() is None
    family = pool.family
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 143
    assert not any(is_alive(pid) for pid in family)
    charges = set(Job.objects.values_list("state", "attempts", "crashes", "suspect"))
    assert charges == {(JobState.READY, 0, 0, False)}
    diary.gate.touch()
    assert start("--until-empty").ended() == 0
    assert JobResult.objects.count() == 4


def test_a_killed_parent_takes_fork_server_and_children_along(with_a_thread, start, diary):
    enqueue_many([gang.hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(2)])
    pool = start()
    until(lambda: len(diary.words) == 2)
    family = pool.family
    pool.signal(signal.SIGKILL)
    pool.ended()
    until(lambda: not any(is_alive(pid) for pid in family), patience=3)


def test_a_killed_fork_server_ends_the_worker_and_the_children(with_a_thread, start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start()
    until(lambda: diary.words)
    family = pool.family
    os.kill(pool.fork_server, signal.SIGKILL)
    assert pool.ended() == 1
    until(lambda: not any(is_alive(pid) for pid in family))
    assert Job.objects.get().crashes == 0


def test_a_child_has_nothing_open_but_its_own(with_a_thread, start, diary):
    gang.inventory.enqueue(str(diary))
    pool = start()
    told = until(lambda: [word for word in diary.words if "=" in word])[0].split(",")
    assert len(children_of(pool.fork_server)) == 2
    assert "0=/dev/null" in told
    assert sum("memfd" in entry for entry in told) <= 1
    assert sum("=socket:" in entry for entry in told) <= 1 + (connection.vendor != "sqlite")


def test_children_are_replaced_and_several_jobs_run_at_once(with_a_thread, start, diary):
    jobs = [gang.hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(4)]
    enqueue_many(jobs)
    pool = start("--concurrency", "4", "--child-max-jobs", "4", processes=1)
    until(lambda: len(diary.words) == 4)
    assert len({pid for pid, _, _ in diary.lines}) == 1
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 4)  # beside the last of them it might run another
    gang.note.enqueue(str(diary), "after")
    until(lambda: "after" in diary.words)
    assert diary.pid("after") != diary.pid("h0-begins")
    until(lambda: not is_alive(diary.pid("h0-begins")))
    assert " died" not in pool.said


def test_when_django_cannot_be_set_up_in_a_child_the_worker_says_so_and_ends(
    with_an_app_that_fails_in_children, start
):
    pool = start()
    assert pool.ended() == 1
    assert "children die as soon as they are born" in pool.said
    assert "this app wants no children" in pool.said


def test_settings_that_are_in_no_module_are_refused(monkeypatch):
    monkeypatch.setattr(spawnserver, "django_settings", object())
    assert "in no module" in spawnserver.why_not()


def test_the_scheduler_is_a_new_process_too(with_a_thread, start, diary):
    every_second = {"CRON": "* * * * * *", "HANDLER": "gang.note", "ARGS": [str(diary)]}
    pool = start("--with-cron", SCHEDULE={"note": every_second})
    until(lambda: len(diary.words) > 1)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert "Traceback" not in pool.said
