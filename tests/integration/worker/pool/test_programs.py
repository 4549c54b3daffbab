"""Programs and commands in real workers: nothing of them outlives the process that ran them."""

import os
import signal
import sys
import time

import pytest

from django_jobs import define
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from tests.integration.worker.pool.conftest import children_of, is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    os.fork()
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
time.sleep(1000)
"""
FAMILY = 3


@pytest.fixture
def stubborn(tmp_path):
    """A program that does not end, nor does what it started, in a session of its own."""
    path = tmp_path / "stubborn"
    path.write_text(f"#!{sys.executable} -ISB\n{STUBBORN}")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def open_to_programs(settings, stubborn, hostile):
    """What the settings of this process and of the workers say."""
    jobs = {
        "QUEUES": {"default": {"HANDLERS": ["shell", "command", "event"]}},
        "ALLOWED_SHELL_COMMANDS": [stubborn, hostile, "/bin/sh"],
        "ALLOWED_COMMANDS": ["check"],
        "MAX_CRASHES": 1,
    }
    settings.DJANGO_JOBS = jobs
    return jobs


@pytest.fixture
def note(tmp_path):
    return tmp_path / "pids"


def pids(note):
    return [int(word) for word in note.read_text().split()] if note.exists() else []


def test_commands_and_programs_run_and_fail(start, open_to_programs):
    define("command", ["check", "--tag", "jobs"]).enqueue()
    define("shell", ["/bin/sh", "-c", "echo $0 $1", "a", "b c"]).enqueue()
    define("shell", ["sh", "-c", "echo oh >&2; exit 7"]).using(
        max_retries=1, retry="none"
    ).enqueue()
    assert start("--until-empty", **open_to_programs).ended() == 0
    outputs = set(JobResult.objects.values_list("handler", "output"))
    assert ("shell", "a b c\n") in outputs
    assert any("System check identified" in output for _, output in outputs)
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.attempts) == ("exhausted", 2)
    assert dead.error_message == "/bin/sh ended with exit code 7: oh"
    assert set(JobAttempt.objects.values_list("output", flat=True)) == {"oh\n"}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_h10_a_program_that_ignores_its_timeout_is_killed_with_its_offspring(
    start, open_to_programs, stubborn, note, concurrency
):
    define("shell", [stubborn, str(note)]).using(timeout=1).enqueue()
    pool = start("--concurrency", str(concurrency), processes=1, KILL_GRACE=2, **open_to_programs)
    until(lambda: len(pids(note)) == FAMILY)
    (child,) = {pid for pid in children_of(pool.fork_server) if children_of(pid)}
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.attempts, dead.crashes) == ("timed-out", 1, 0)
    assert not any(map(is_alive, pids(note)))
    assert is_alive(child)


def kill_child(pool):
    (child,) = children_of(pool.fork_server)
    os.kill(child, signal.SIGKILL)


def kill_group(pool):
    """As the parent does when a hard timeout is over."""
    (child,) = children_of(pool.fork_server)
    os.killpg(child, signal.SIGKILL)


def kill_fork_server(pool):
    os.kill(pool.fork_server, signal.SIGKILL)


def kill_worker(pool):
    pool.signal(signal.SIGKILL)


def stop_at_once(pool):
    pool.stop_at_once()


@pytest.mark.parametrize(
    "end", [kill_child, kill_group, kill_fork_server, kill_worker, stop_at_once]
)
def test_h10_nothing_of_a_program_outlives_its_worker(start, open_to_programs, stubborn, note, end):
    define("shell", [stubborn, str(note)]).enqueue()
    pool = start(processes=1, **open_to_programs)
    until(lambda: len(pids(note)) == FAMILY)
    first = pids(note)
    assert all(map(is_alive, first))
    began = time.monotonic()
    end(pool)
    until(lambda: not any(map(is_alive, first)), patience=10)
    print(f"{end.__name__}: all of it gone after {time.monotonic() - began:.3f} s")
    assert Job.objects.exists() or FailedJob.objects.exists()


ATTACKS = """
import ctypes, os, signal, sys, time
note, *attacks = sys.argv[1:]
def parent(pid): return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
launcher = os.getppid()
above = {"launcher": launcher, "child": parent(launcher)}
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # outlive the parent
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    os.fork()
with open(note, "a") as file: file.write(f"{os.getpid()}\\n")
while len(open(note).read().split()) < 3: time.sleep(0.01)
if os.getppid() == launcher:
    for attack in attacks:
        number, _, whom = attack.partition("-")
        os.kill(above[whom], getattr(signal, number))
time.sleep(1000)
"""


@pytest.fixture
def hostile(tmp_path):
    """A program that kills or stops what stands above it."""
    path = tmp_path / "hostile"
    path.write_text(f"#!{sys.executable} -ISB\n{ATTACKS}")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("attacks", "concurrency", "timeout", "reason"),
    [
        (["SIGKILL-launcher"], 1, 20, "exhausted"),
        (["SIGKILL-launcher"], 3, 20, "exhausted"),
        (["SIGSTOP-launcher"], 1, 1, "timed-out"),
        (["SIGSTOP-launcher"], 3, 1, "timed-out"),
        # A child that is stopped first cannot hear of its launcher's end in between.
        (["SIGSTOP-child", "SIGKILL-launcher", "SIGKILL-child"], 1, 20, "crashed"),
        (["SIGSTOP-launcher", "SIGKILL-child"], 1, 20, "crashed"),
        (["SIGSTOP-child", "SIGKILL-launcher"], 1, 1, "timed-out"),
        (["SIGSTOP-launcher", "SIGSTOP-child"], 1, 1, "timed-out"),
    ],
    ids=str,
)
def test_h10_a_program_outlives_no_attack_on_its_launcher_or_on_the_process_of_its_job(
    start, open_to_programs, hostile, note, attacks, concurrency, timeout, reason
):
    define("shell", [hostile, str(note), *attacks]).using(timeout=timeout).enqueue()
    start("--concurrency", str(concurrency), processes=1, **open_to_programs)
    dead = until(FailedJob.objects.first, patience=30)
    assert dead.reason == reason
    assert len(pids(note)) == FAMILY
    until(lambda: not any(map(is_alive, pids(note))), patience=5)
    define("shell", ["/bin/sh", "-c", "echo well"]).enqueue()
    assert until(JobResult.objects.first).output == "well\n"


@pytest.mark.parametrize(
    ("attack", "reason"), [("SIGKILL-launcher", "exhausted"), ("SIGSTOP-launcher", "timed-out")]
)
def test_a_worker_without_children_ends_a_program_that_attacks_its_launcher_too(
    start, open_to_programs, hostile, note, attack, reason
):
    define("shell", [hostile, str(note), attack]).using(timeout=2).enqueue()
    pool = start("--until-empty", processes=0, **open_to_programs)
    assert pool.ended() == 0
    assert FailedJob.objects.get().reason == reason
    assert len(pids(note)) == FAMILY
    assert not any(map(is_alive, pids(note)))


@pytest.mark.parametrize("thread", ["", "1"], ids=["forked", "started afresh"])
@pytest.mark.parametrize("allowed", [[], ["/bin/sh"]], ids=["no programs", "programs"])
def test_a_worker_of_a_site_with_programs_lets_none_of_them_read_it(start, thread, allowed):
    asked = gang.kept.enqueue()
    environment = {"GANG_THREAD": thread}
    pool = start("--until-empty", environment=environment, ALLOWED_SHELL_COMMANDS=allowed)
    assert pool.ended() == 0
    assert asked.result() is bool(allowed)


def test_a_signal_to_everybody_is_heeded_by_the_worker_and_not_by_a_launcher(
    start, open_to_programs, stubborn, note
):
    """As systemd sends it to a whole control group, unless it is told KillMode=mixed."""
    define("shell", [stubborn, str(note)]).using(timeout=3).enqueue()
    pool = start(processes=1, **open_to_programs)
    until(lambda: len(pids(note)) == FAMILY)
    (child,) = children_of(pool.fork_server)
    (launcher,) = children_of(child)
    os.kill(launcher, signal.SIGTERM)
    os.kill(launcher, signal.SIGHUP)
    assert until(FailedJob.objects.first).reason == "timed-out"


@pytest.mark.parametrize(
    ("key", "payload", "reason"),
    [
        ("command", ["flush"], "rejected-target"),
        ("command", {"args": []}, "rejected-payload"),
        ("shell", ["/usr/bin/env", "sh"], "rejected-target"),
        ("event", {"name": "django.core.signals.request_started"}, "rejected-target"),
        ("event", ["order.paid"], "rejected-payload"),
    ],
    ids=str,
)
def test_what_the_worker_does_not_allow_is_dead_at_once(
    start, open_to_programs, settings, key, payload, reason
):
    """Whoever enqueued it knew other settings."""
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "ALLOWED_COMMANDS": ["flush"],
        "ALLOWED_SHELL_COMMANDS": ["/usr/bin/env"],
        "ALLOWED_EVENTS": ["django.core.signals.request_started"],
    }
    defined = define(key, payload).using(max_retries=5)
    if reason == "rejected-target":
        defined.enqueue()
    else:
        _unchecked(key, payload).enqueue()
    assert start("--until-empty", **open_to_programs).ended() == 0
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.attempts) == (reason, 0)


def _unchecked(key, payload):
    from django_jobs.enqueue import Plan, PreparedJob  # noqa: PLC0415 - a signed job that no one checked
    from django_jobs.ids import new_id  # noqa: PLC0415 - as above

    return PreparedJob(new_id(), Plan(key, define(key).options.using(max_retries=5)), payload)
