"""Schedulers that stay: by themselves, and with the workers."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from django_jobs.cron.child_process import WHEN_SECONDS
from django_jobs.models import FailedJob, Job, JobResult, JobState, ScheduleTick
from testproject.shop.models import Order

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 60.0


@contextmanager
def running(
    environment: dict[str, str], *command: str, schedules: str = "seconds"
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={
            **environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.cron.clockwork.settings",
            "CLOCKWORK": schedules,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def ended_well(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, told


def each_tick_has_one_job() -> None:
    ticks = Counter(ScheduleTick.objects.values_list("name", "tick"))
    assert set(ticks.values()) == {1}
    chimes = sorted(tick for name, tick in ticks if name == "each-second")
    gaps = {after - before for before, after in pairwise(chimes)}
    assert gaps <= {1_000_000}


def results_of(handler: str) -> int:
    return JobResult.objects.filter(handler__endswith=handler, status="succeeded").count()


def test_two_loops_share_the_seconds_and_end_when_told(site_environment: dict[str, str]) -> None:
    command = ("-m", "tests.integration.cron.clockwork.loop")
    with running(site_environment, *command) as one, running(site_environment, *command) as other:
        until(lambda: Job.objects.filter(schedule="each-second").count() >= 3)
        until(lambda: results_of("inline_chime") >= 2)
        ended_well(one)
        ended_well(other)
    each_tick_has_one_job()


def child_that_ticks(parent: int) -> set[int]:
    """The processes below the fork server of a worker, of which it has one beside its own child."""
    found: set[int] = set()
    for line in subprocess.run(
        ["ps", "-eo", "pid=,ppid="], check=True, capture_output=True, text=True
    ).stdout.splitlines():
        pid, of = map(int, line.split())
        if of == parent:
            found |= {pid} | child_that_ticks(pid)
    return found


def test_workers_tick_in_a_child_that_is_replaced_when_it_dies(
    site_environment: dict[str, str],
) -> None:
    command = ("testproject/manage.py", "jobs_work", "--with-cron", "--processes", "1")
    with running(site_environment, *command) as worker:
        until(lambda: results_of(".chime") >= 2)
        by = ScheduleTick.objects.latest("id").decided_by
        decider = int(by.rpartition(":")[2])
        assert decider != worker.pid
        assert decider in child_that_ticks(worker.pid)
        os.kill(decider, signal.SIGKILL)
        until(lambda: ScheduleTick.objects.exclude(decided_by=by).exists())
        family = child_that_ticks(worker.pid)
        ended_well(worker)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
    each_tick_has_one_job()


def test_a_worker_without_children_ticks_between_jobs(site_environment: dict[str, str]) -> None:
    command = ("testproject/manage.py", "jobs_work", "--with-cron", "--processes", "0")
    with running(site_environment, *command) as worker:
        until(lambda: results_of(".chime") >= 2 and results_of("inline_chime") >= 1)
        ended_well(worker)
    each_tick_has_one_job()


WORK = ("testproject/manage.py", "jobs_work", "--with-cron", "--queue", "clockwork")


def signalled_twice(process: subprocess.Popen[str]) -> str:
    """What it said. Two signals that come at the same moment may count as one: then again."""
    process.send_signal(signal.SIGTERM)
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=PATIENCE_SECONDS / 4)[0]
        except subprocess.TimeoutExpired:
            assert time.monotonic() < ends, "it does not stop"


def pid_of_long_job() -> int:
    row = Order.objects.filter(email__startswith="long-").first()
    return int(row.email.removeprefix("long-").partition("@")[0]) if row else 0


@pytest.mark.parametrize(
    "command",
    [
        ("testproject/manage.py", "jobs_cron", "--loop", "--verbosity", "0"),
        (*WORK, "--processes", "1"),
        (*WORK, "--processes", "0"),
    ],
    ids=["a scheduler", "a worker's child", "a worker without children"],
)
def test_a_second_signal_interrupts_inline_jobs_and_does_not_bury_them(
    site_environment: dict[str, str], command: tuple[str, ...]
) -> None:
    with running(site_environment, *command, schedules="long") as process:
        until(pid_of_long_job)
        (job,) = Job.objects.filter(state=JobState.RUNNING)
        told = signalled_twice(process)
    assert process.returncode in {128 + signal.SIGTERM, 128 + signal.SIGINT}, told
    until(lambda: not Path(f"/proc/{pid_of_long_job()}").exists())
    assert not FailedJob.objects.exists()
    job.refresh_from_db()
    assert (job.state, job.attempts, job.crashes, job.suspect) == (JobState.READY, 0, 0, False)


@pytest.mark.parametrize(
    "command",
    [("testproject/manage.py", "jobs_cron", "--loop"), (*WORK, "--processes", "1")],
    ids=["a scheduler", "a worker's child"],
)
def test_a_second_signal_waits_for_no_gate_that_hangs_and_gives_inline_jobs_back(
    site_environment: dict[str, str], command: tuple[str, ...]
) -> None:
    environment = {**site_environment, "CLOCKWORK_GATE": "hangs"}
    with running(environment, *command, schedules="long") as process:
        until(lambda: Order.objects.filter(email__startswith="when-").exists())
        (job,) = Job.objects.filter(state=JobState.RUNNING)
        asked = time.monotonic()
        signalled_twice(process)
    assert time.monotonic() - asked < WHEN_SECONDS
    job.refresh_from_db()
    assert (job.state, job.attempts, job.crashes, job.suspect) == (JobState.READY, 0, 0, False)
    assert not FailedJob.objects.exists()
