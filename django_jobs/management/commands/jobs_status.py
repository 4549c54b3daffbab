"""``manage.py jobs_status``: the state of queues and workers, for people and for probes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, close_old_connections

from django_jobs.management import status
from django_jobs.management.arguments import positive_float, queue_name, seconds, whole
from django_jobs.management.base import (
    FAILED,
    JobsCommand,
    WatchLoop,
    add_json,
    refused,
)
from django_jobs.management.output import escaped
from django_jobs.management.status import BACKLOG_HEADERS, backlog_row
from django_jobs.operations import health
from django_jobs.operations.brokers import open_breakers
from django_jobs.operations.health import HealthLimits
from django_jobs.outbox.lookup import backlogs

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser

    from django_jobs.management.output import Output
    from django_jobs.outbox.lookup import Backlog

SHOW = ""
WELL = "ok: nothing is overdue, no worker was lost"


class Command(JobsCommand):
    """Show the state of the queues."""

    help = (
        "Shows how many jobs wait and run in each queue, how many are dead, how long the oldest "
        "ready one has waited, what is paused, which circuit breakers are open, the "
        "workers, and what waits in an outbox."
    )
    examples = """
        jobs_status
        jobs_status --queue mail --watch
        jobs_status --check --max-age 10m
        jobs_status --settings
        jobs_status --json
    """

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # Django has a --settings of its own, which takes a module and keeps doing so.
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--queue", type=queue_name, metavar="NAME", help="only this queue")
        add("--watch", action="store_true", help="show it anew again and again, until Ctrl-C")
        pause = "seconds between two looks of --watch; default: 2"
        add("--interval", type=positive_float, default=2.0, metavar="S", help=pause)
        add(
            "--check",
            action="store_true",
            help="a probe: exit 1 when jobs are overdue, when leases ended more than a lease ago "
            "and were not reaped, when no worker was seen for a minute, or when a backend "
            "cannot be asked",
        )
        add(
            "--max-age",
            type=seconds,
            default=300.0,
            metavar="TIME",
            help="how long a due job may wait before --check calls it overdue: 300, 5m; "
            "default: 5m",
        )
        add(
            "--min-workers",
            type=whole,
            default=1,
            metavar="N",
            help="how few workers --check puts up with, for each backend in a database or, with "
            "--queue, for that queue; 0: do not look; default: 1",
        )
        add(
            "--settings",
            nargs="?",
            const=SHOW,
            metavar="MODULE",
            help="alone: show the settings of django_jobs in force, and where each comes from; "
            "with a module: run with those settings, as in every command of Django",
        )
        add("--show-settings", action="store_true", help="the same as --settings alone")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        show_settings = options["show_settings"] or options["settings"] == SHOW
        if sum([show_settings, options["watch"], options["check"]]) > 1:
            raise refused("give one of --settings, --watch and --check")
        if show_settings:
            return _settings(output, as_json=options["json"])
        if options["check"]:
            return _check(output, options)
        if not options["watch"]:
            return _once(output, options)
        if options["json"]:
            raise refused("--json is one document, and --watch never ends; leave one out")
        return _watch(output, options)


def _once(output: Output, options: dict[str, Any]) -> int:
    queues = status.queues(options["queue"])
    breakers = open_breakers()
    workers = status.workers()
    if options["json"]:
        output.document(
            {
                "queues": [asdict(queue) for queue in queues],
                "breakers": [asdict(breaker) for breaker in breakers],
                "workers": [worker.document() for worker in workers],
                "outbox": [asdict(backlog) for backlog in _waiting(options["queue"])],
            }
        )
        return 0
    if queues:
        output.table(status.QUEUE_HEADERS, [status.queue_row(queue) for queue in queues])
    else:
        output.line("No queue has anything in it.")
    output.line()
    if breakers:
        rows = [status.breaker_row(breaker) for breaker in breakers]
        output.table(status.BREAKER_HEADERS, rows)
        output.line()
    if workers:
        output.table(status.WORKER_HEADERS, [worker.row() for worker in workers])
    else:
        output.line("No worker is known.")
    if waiting := _waiting(options["queue"]):
        output.line()
        output.table(BACKLOG_HEADERS, [backlog_row(backlog) for backlog in waiting])
    return 0


def _waiting(only: str | None) -> list[Backlog]:
    return [backlog for backlog in backlogs() if only in {None, backlog.queue}]


def _watch(output: Output, options: dict[str, Any]) -> int:
    def look() -> None:
        output.clear()
        output.line(f"{time.strftime('%H:%M:%S')}, every {options['interval']:g} s\n")
        try:
            _once(output, options)
        except DatabaseError as error:
            output.line(f"the database refused: {escaped(str(error).strip())}")
        output.flush()
        close_old_connections()

    WatchLoop(look, options["interval"]).run()
    return 0


def _check(output: Output, options: dict[str, Any]) -> int:
    limits = HealthLimits(
        max_age=options["max_age"], min_workers=options["min_workers"], queue=options["queue"]
    )
    problems = health.find_problems(limits)
    if options["json"]:
        output.document({"ok": not problems, "problems": [asdict(problem) for problem in problems]})
    else:
        output.line("\n".join(map(status.describe_problem, problems)) or WELL)
    return FAILED if problems else 0


def _settings(output: Output, *, as_json: bool) -> int:
    settings = status.effective()
    if as_json:
        output.document({"settings": [asdict(setting) for setting in settings]})
    else:
        rows = [
            (setting.name, json.dumps(setting.value, ensure_ascii=False), setting.origin)
            for setting in settings
        ]
        output.table(status.HEADERS, rows)
    return 0
