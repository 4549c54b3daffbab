"""``jobs_work --processes 0`` as a process of its own: its ends, signals, deaths and options."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.db import connection

from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState, Worker
from tests.integration.worker.labour import jobs as labour

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 15.0


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long for {condition}"
        time.sleep(0.01)
    return found


class Diary:
    """The file that handlers write to, and the gate that holding ones wait for."""

    def __init__(self, folder):
        self.path, self.gate = folder / "diary", folder / "gate"

    @property
    def lines(self):
        text = self.path.read_text() if self.path.exists() else ""
        return [line.split() for line in text.splitlines()]

    @property
    def words(self):
        return [word for _, word in self.lines]

    @property
    def pids(self):
        return [int(pid) for pid, _ in self.lines]

    def hold(self):
        return labour.hold.enqueue(str(self.path), str(self.gate))

    def note(self, word, **options):
        return labour.note.using(**options).enqueue(str(self.path), word)


@pytest.fixture
def diary(tmp_path):
    return Diary(tmp_path)


@pytest.fixture
def start(site_environment):
    """Starts workers, and takes down those that are still there at the end."""
    started = []

    def start(*options, **settings):
        environment = {
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.worker.labour.settings",
            "LABOUR_JOBS": json.dumps({"POLL_INTERVAL": 0.05, **settings}),
        }
        command = [sys.executable, "testproject/manage.py", "jobs_work", "--processes", "0"]
        worker = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(worker)
        return worker

    yield start
    for worker in started:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        with contextlib.suppress(ValueError):  # its output was read to the end before
            print(*worker.communicate())


def ended(worker):
    """Exit code, standard output and standard error of a worker."""
    out, err = worker.communicate(timeout=PATIENCE_SECONDS)
    return worker.returncode, out, err


# -- when it ends --------------------------------------------------------------------------------


def test_once_processes_one_job_and_ends(start, diary):
    for word in ("first", "second"):
        diary.note(word)
    code, out, err = ended(start("--once"))
    assert (code, diary.words) == (0, ["first"])
    assert "Traceback" not in err
    assert out.endswith("1 jobs processed\n")
    assert Job.objects.count() == 1


def test_until_empty_processes_what_is_due_also_in_queues_that_are_new(start, diary):
    for word in ("first", "second"):
        diary.note(word)
    diary.note("elsewhere", queue="another")
    diary.note("later", delay=3600)
    assert ended(start("--until-empty"))[0] == 0
    assert sorted(diary.words) == ["elsewhere", "first", "second"]
    assert Job.objects.get().state == JobState.SCHEDULED
    assert JobResult.objects.count() == 3


def test_max_jobs_and_max_seconds_end_it(start, diary):
    for word in ("first", "second", "third"):
        diary.note(word)
    by_time = start("--max-seconds", "0.3", "--queue", "nothing-here")
    assert ended(start("--max-jobs", "2"))[0] == 0
    assert diary.words == ["first", "second"]
    assert ended(by_time)[0] == 0


def test_queues_are_served_strictly_in_the_order_given_and_no_others(start, diary):
    for queue in ("a", "b", "c"):
        for _ in range(2):
            diary.note(queue, queue=queue)
    assert ended(start("--queue", "b,a", "--until-empty"))[0] == 0
    assert diary.words == ["b", "b", "a", "a"]
    assert set(Job.objects.values_list("queue", flat=True)) == {"c"}


def test_weighted_queues_share_as_their_weights_say(start, diary):
    for queue in ("a", "b"):
        for _ in range(8):
            diary.note(queue, queue=queue)
    assert ended(start("--queue", "a:3,b:1", "--max-jobs", "8"))[0] == 0
    assert (diary.words.count("a"), diary.words.count("b")) == (6, 2)


def test_failing_jobs_do_not_fail_the_command_and_die_critically(start):
    job = labour.fail.enqueue()
    code, out, err = ended(start("--until-empty"))
    assert code == 0
    assert "dead-lettered" in out
    assert f"labour.fail {job.id} on default is dead (exhausted): RuntimeError: as ever" in err
    assert FailedJob.objects.get().job_id.hex == job.id.replace("-", "")


@pytest.mark.parametrize(
    "options",
    [
        ["--queue", "No Such"],
        ["--queue", ","],
        ["--queue", "a:0"],
        ["--backend", "nowhere"],
        ["--max-jobs", "0"],
        ["--max-seconds", "soon"],
        ["--poll-interval", "-1"],
        ["--no-such-option"],
    ],
    ids=" ".join,
)
def test_bad_options_are_a_usage_error(start, options):
    code, out, err = ended(start(*options))
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err


# -- signals --------------------------------------------------------------------------------------


def test_a_signal_lets_the_running_job_end_and_no_other_begin(start, diary):
    diary.hold()
    diary.note("next")
    worker = start()
    until(lambda: diary.words == ["begin"])
    worker.send_signal(signal.SIGTERM)
    diary.gate.touch()
    assert ended(worker)[0] == 0
    assert diary.words == ["begin", "end"]
    assert Job.objects.get().attempts == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_stops_at_once_and_takes_its_row_along(start, number):
    worker = start("--poll-interval", "3000")
    row = until(Worker.objects.first)
    assert (row.pid, row.processes, row.queues, row.backend) == (
        worker.pid,
        0,
        "every queue",
        "database",
    )
    worker.send_signal(number)
    assert ended(worker)[0] == 0
    assert not Worker.objects.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_interrupts_the_job_which_is_charged_nothing(start, diary, number, code):
    diary.hold()
    worker = start()
    until(lambda: diary.words == ["begin"])
    worker.send_signal(number)
    send_until_ended(worker, number)
    assert ended(worker)[0] == code
    job = Job.objects.get()
    assert (job.state, job.attempts, job.crashes, job.suspect) == (JobState.READY, 0, 0, False)
    assert not JobAttempt.objects.exists()
    assert diary.words == ["begin"]

    diary.gate.touch()
    assert ended(start("--until-empty"))[0] == 0
    assert diary.words == ["begin", "begin", "end"]


@pytest.mark.only_on("postgres", "mariadb", "mysql")
def test_a_second_signal_inside_a_query_gives_the_job_back_as_well(start, diary):
    labour.query.enqueue(str(diary.path))
    worker = start()
    until(lambda: diary.words == ["begin"] and queries() == 1)
    worker.send_signal(signal.SIGTERM)
    send_until_ended(worker, signal.SIGTERM)
    assert ended(worker)[0] == 143
    job = Job.objects.get()
    assert (job.state, job.attempts, job.crashes, job.suspect) == (JobState.READY, 0, 0, False)
    end_queries()


def queries():
    """How many of the slow ones the server is at work on."""
    with connection.cursor() as cursor:
        cursor.execute(RUNNING[connection.vendor])
        return cursor.fetchone()[0]


def end_queries():
    """Or the server would be at work on them after their client has gone."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(RUNNING["postgresql"].replace("count(*)", "pg_terminate_backend(pid)"))
    until(lambda: not queries())


RUNNING = {
    "postgresql": (
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
        " AND datname = current_database() AND query LIKE 'SELECT ''slow''%'"
    ),
    "mysql": (
        "SELECT count(*) FROM information_schema.processlist"
        " WHERE db = DATABASE() AND state = 'User sleep'"
    ),
}


def send_until_ended(worker, number):
    """Two signals that come too close together are one for the process: then send a third."""
    for _ in range(3):
        until(lambda: not pending(worker.pid, number))
        worker.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(timeout=4)
            return


def pending(pid, number):
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line[:6] in PENDING]
    return any(mask >> (number - 1) & 1 for mask in masks)


PENDING = {"SigPnd", "ShdPnd"}


def test_a_hook_that_raises_after_the_commit_does_not_end_the_worker(start, diary):
    for _ in range(2):
        labour.hooks.enqueue(str(diary.path), "raises")
    assert ended(start("--until-empty"))[0] == 0
    assert diary.words == ["hook", "next"] * 2
    assert [result.status for result in JobResult.objects.all()] == ["succeeded"] * 2


def test_a_second_signal_ends_a_hook_after_the_commit_and_the_job_stays_done(start, diary):
    labour.hooks.enqueue(str(diary.path), "hangs")
    worker = start()
    until(lambda: diary.words == ["hook"])
    worker.send_signal(signal.SIGTERM)
    send_until_ended(worker, signal.SIGTERM)
    assert ended(worker)[0] == 143
    assert diary.words == ["hook"]
    assert JobResult.objects.get().status == "succeeded"
    assert not Job.objects.exists()


# -- death ----------------------------------------------------------------------------------------


def test_h1_h13_a_killed_workers_job_is_reaped_as_suspect_and_run_by_another(start, diary):
    diary.hold()
    worker = start(LEASE_SECONDS=3, KILL_GRACE=0.5)
    until(lambda: diary.words == ["begin"])
    worker.kill()
    assert worker.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)
    assert Job.objects.get().state == JobState.RUNNING

    until(backends["database"].reap_expired)
    job = Job.objects.get()
    assert (job.state, job.suspect, job.attempts, job.crashes) == (JobState.READY, True, 0, 0)

    diary.gate.touch()
    another = start("--until-empty", LEASE_SECONDS=3, KILL_GRACE=0.5)
    assert ended(another)[0] == 0
    assert diary.pids == [worker.pid, another.pid, another.pid]
    assert worker.pid != another.pid
    assert JobResult.objects.get().status == "succeeded"
    assert not Job.objects.exists()


def test_a_worker_reaps_by_itself(start, diary):
    diary.note("ran")
    backends["database"].fetch(["default"], 1, 0.0)
    assert ended(start("--max-jobs", "1"))[0] == 0
    assert diary.words == ["ran"]


# -- a database that goes away --------------------------------------------------------------------

OTHERS = {
    "postgresql": (
        """SELECT pid FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()""",
        "SELECT pg_terminate_backend(%s)",
    ),
    "mysql": (
        """SELECT id FROM information_schema.processlist
           WHERE db = DATABASE() AND id <> CONNECTION_ID()""",
        "KILL %s",
    ),
}


def cut_all_connections():
    """End every connection to this database but our own; how many there were."""
    find, kill = OTHERS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(find)
        found = [pid for (pid,) in cursor.fetchall()]
        for pid in found:
            cursor.execute(kill, [pid])
    return len(found)


@pytest.mark.only_on("postgres", "mariadb", "mysql")
def test_a_lost_connection_while_idle_is_told_once_and_the_same_process_goes_on(start, diary):
    diary.note("before")
    worker = start("--max-jobs", "2")
    until(lambda: diary.words == ["before"] and not Job.objects.exists())
    until(cut_all_connections)
    diary.note("after")
    code, _, err = ended(worker)
    assert code == 0
    assert diary.lines == [[str(worker.pid), "before"], [str(worker.pid), "after"]]
    assert err.count("does not answer") == 1
    assert err.count("works again") == 1


@pytest.mark.only_on("postgres", "mariadb", "mysql")
def test_a_lost_connection_during_a_job_does_not_run_it_twice(start, diary):
    diary.hold()
    worker = start("--max-jobs", "2")
    until(lambda: diary.words == ["begin"])
    until(cut_all_connections)
    diary.gate.touch()
    until(JobResult.objects.exists)
    diary.note("after")
    code, _, err = ended(worker)
    assert code == 0
    assert diary.words == ["begin", "end", "after"]
    # None at all where the connection was seen to be broken before it was used.
    assert err.count("does not answer") == err.count("works again") <= 1
