"""Django's Tasks on PostgreSQL, beside plain jobs and a bare read, in the same run.

DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.tasks
"""

from __future__ import annotations

import argparse
from itertools import cycle
from typing import Any

from tests.benchmarks.harness import (
    Contest,
    print_conditions,
    throwaway_database,
    write_json,
)

TASK, JOB = "django_jobs: @task, enqueue()", "django_jobs: @job, enqueue()"
READ, RESULT = "JobResult by primary key", "get_result()"
KEPT = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    with throwaway_database():
        print_conditions()
        write_json(options.json, {**enqueue_figures(), **result_figures()})


def noop(n: int) -> int:
    return n


def job_noop(n: int) -> int:
    return n


def enqueue_figures() -> dict[str, float]:
    """What a task costs beside the job that it becomes."""
    from django_jobs import job
    from django_jobs.tasks import task

    as_task, as_job = task(noop), job(key="benchmark.job")(job_noop)

    def tasks(count: int) -> None:
        for n in range(count):
            as_task.enqueue(n)

    def jobs(count: int) -> None:
        for n in range(count):
            as_job.enqueue(n)

    contest = Contest("Enqueue one by one", 1500, {JOB: jobs, TASK: tasks})
    contest.run()
    contest.print(JOB)
    return {"task_per_second": contest.median(TASK), "task_ratio": contest.ratio(TASK, JOB)}


def result_figures() -> dict[str, float]:
    """Looking up the result of a task that succeeded."""
    from django_jobs.models import JobResult
    from django_jobs.tasks import task
    from django_jobs.worker import process_once

    as_task: Any = task(noop)
    ids = [as_task.using(priority=100).enqueue(n).id for n in range(KEPT)]
    while not all(process_once().status == "acked" for _ in range(KEPT)):
        pass

    def reads(count: int) -> None:
        for _, job_id in zip(range(count), cycle(ids), strict=False):
            JobResult.objects.get(pk=job_id)

    def results(count: int) -> None:
        for _, job_id in zip(range(count), cycle(ids), strict=False):
            as_task.get_result(job_id)

    contest = Contest("Look up a result", 3000, {READ: reads, RESULT: results})
    contest.run()
    contest.print(READ)
    return {"get_result_cost": 1 / contest.ratio(RESULT, READ)}


if __name__ == "__main__":
    main()
