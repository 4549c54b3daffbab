"""Real workers, measured from outside: how fast, and at what price in processor time.

A rate counts the time between the first and the last run of a handler, so that starting
Python is not part of it. The worker's processor time is that of its process and of all
that it waited for, less that of a worker that found nothing to do. The server's is that
of all its processes, so nothing else may use it meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.labour.tally import VARIABLE, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 900
SETTINGS = "tests.benchmarks.labour.settings"
TENTHS = 10
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figures:
    """What one run came to; processor times are microseconds per job."""

    per_second: float
    worker_cpu: float
    server_cpu: float
    whole_seconds: float = 0.0
    curve: tuple[float, ...] = ()
    """The rates of the first tenth of the jobs, of the second, and so on."""

    @property
    def cpu(self) -> float:
        return self.worker_cpu + self.server_cpu


def fill(jobs: int, first: int = 0) -> None:
    """Enqueue no-op jobs with the numbers from ``first``."""
    from django_jobs import enqueue_many
    from tests.benchmarks.labour.jobs import mark

    enqueue_many(mark.prepare(number) for number in range(first, first + jobs))


def fill_naps(jobs: int, seconds: float) -> None:
    """Enqueue jobs that sleep."""
    from django_jobs import enqueue_many
    from tests.benchmarks.labour.jobs import nap

    enqueue_many(nap.prepare(number, seconds) for number in range(jobs))


def fill_with_keys(jobs: int) -> None:
    """Enqueue jobs with an idempotency key each."""
    from django_jobs import enqueue_many
    from tests.benchmarks.labour.jobs import mark

    enqueue_many(
        mark.using(idempotency_key=f"once-{number}").prepare(number) for number in range(jobs)
    )


def empty() -> None:
    """No jobs, no results, no statistics or pages that an earlier run left."""
    from django.db import connection

    truncates = connection.vendor != "sqlite"
    with connection.cursor() as cursor:
        for table in ("django_jobs_job", "django_jobs_jobresult", "django_jobs_jobkey"):
            cursor.execute(f"{'TRUNCATE TABLE' if truncates else 'DELETE FROM'} {table}")


def rest() -> None:
    """Let the server write what the filling left it to write."""
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("VACUUM ANALYZE")
            cursor.execute("CHECKPOINT")
        elif connection.vendor == "sqlite":
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def ours(
    settings: dict[str, Any],
    jobs: int,
    *,
    processes: int | None = None,
    waiting: int | None = None,
    enqueue: Callable[[int], None] = fill,
) -> Figures:
    """Drain so many jobs, out of as many or more that wait, and see that it was done right."""
    waiting = jobs if waiting is None else waiting
    idle = worker_seconds(settings, processes)
    empty()
    enqueue(waiting)
    rest()
    limit = ["--max-jobs", str(jobs)] if jobs != waiting else ["--until-empty"]
    return measured(settings, jobs, waiting, processes, limit, idle)


def measured(
    settings: dict[str, Any],
    jobs: int,
    waiting: int,
    processes: int | None,
    limit: list[str],
    idle: float = 0.0,
) -> Figures:
    """Let a worker drain what is there."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tally"
        tally = Tally.create(path, waiting)
        before, began = server_seconds(), time.monotonic()
        cpu = worked(settings, processes, limit, {VARIABLE: path})
        whole = time.monotonic() - began
        server = server_seconds() - before
        check(tally, jobs, waiting, results=settings.get("RESULT_TTL") != 0)
        moments = tally.moments()
    return Figures(
        per_second=rate(moments),
        worker_cpu=(cpu - idle) / jobs * 1e6,
        server_cpu=server / jobs * 1e6,
        whole_seconds=whole,
        curve=tuple(
            rate(moments[tenth * jobs // TENTHS : (tenth + 1) * jobs // TENTHS])
            for tenth in range(TENTHS)
        ),
    )


def rate(moments: list[float]) -> float:
    """Runs per second between the first and the last."""
    return (len(moments) - 1) / (moments[-1] - moments[0])


def check(tally: Tally, jobs: int, waiting: int, *, results: bool) -> None:
    """Every job ran exactly once, the table holds the others, and the results are there."""
    from django_jobs.models import FailedJob, Job, JobResult

    ran = tally.counts()
    assert set(ran) <= {0, 1}, f"jobs by how often they ran: {ran}"
    assert ran[1] == jobs, f"{ran[1]} of {jobs} ran"
    assert Job.objects.count() == waiting - jobs
    assert not FailedJob.objects.exists()
    assert JobResult.objects.filter(status="succeeded").count() == (jobs if results else 0)


def worker_seconds(settings: dict[str, Any], processes: int | None = None) -> float:
    """The processor time of a worker that finds nothing to do."""
    empty()
    return worked(settings, processes, ["--until-empty"], {})


def worked(
    settings: dict[str, Any],
    processes: int | None,
    options: list[str],
    environment: dict[str, str],
) -> float:
    """Run a worker to its end; the processor time of all its processes, in seconds."""
    asked = [] if processes is None else ["--processes", str(processes)]
    command = [sys.executable, "testproject/manage.py", "jobs_work", "-v0", *asked, *options]
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**site_environment(settings), **environment},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        assert process.returncode == 0, told.read().decode()
    return usage.ru_utime + usage.ru_stime


def site_environment(settings: dict[str, Any]) -> dict[str, str]:
    """The environment in which another process sees this run's database."""
    from django.db import connection

    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": SETTINGS,
        "BENCH_JOBS": json.dumps(settings),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return {**environment, "DJANGO_JOBS_SQLITE_PATH": name}
    choice = os.environ["DJANGO_JOBS_TEST_DB"].upper()
    return {**environment, f"DJANGO_JOBS_{choice}_NAME": name}


def server_seconds() -> float:
    """The processor time of all processes of the server, the ended ones too; 0 if it is none."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return 0.0
    with connection.cursor() as cursor:
        cursor.execute("SHOW data_directory")
        (folder,) = cursor.fetchone()
    postmaster = int(Path(folder, "postmaster.pid").read_text().split()[0])
    seconds = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == postmaster:
            seconds += sum(map(int, fields[11:15])) / TICKS  # with the children it waited for
        elif int(fields[1]) == postmaster:
            seconds += sum(map(int, fields[11:13])) / TICKS
    return seconds
