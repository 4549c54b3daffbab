"""``manage.py jobs_work``: parse, build, run."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, OperationalError

from django_jobs.backends.base import Reconnects
from django_jobs.backends.registry import backends
from django_jobs.checks import TAG
from django_jobs.conf import get_settings
from django_jobs.cron.loop import Loop
from django_jobs.exceptions import (
    ConfigurationError,
    InvalidOption,
    StoreUnavailable,
    TablesMissing,
)
from django_jobs.handlers.registry import registry
from django_jobs.management.arguments import positive_float, positive_int
from django_jobs.management.base import refused
from django_jobs.management.output import escaped
from django_jobs.management.reload import FileWatcher, is_watched
from django_jobs.management.schema import databases_of, require_tables
from django_jobs.operations.leftovers import leftovers
from django_jobs.telemetry import events
from django_jobs.telemetry.logs import in_words, soon
from django_jobs.worker.build import build_cycle
from django_jobs.worker.in_process import InProcessWorker, shortest_lease
from django_jobs.worker.pool.build import PoolWorker, processes_for, why_no_children
from django_jobs.worker.pool.lifecycle import MEGABYTE, ChildLimits, can_measure
from django_jobs.worker.pool.shared_memory import Places
from django_jobs.worker.pool.store_threads import HANG_SHARE
from django_jobs.worker.pool.wait_thread import limit_connecting
from django_jobs.worker.queues import new_queue_warnings, parse
from django_jobs.worker.stop import (
    NOTHING_DUE,
    Stop,
    WorkerLimits,
    leave_in_time,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator, Sequence

    from django_jobs.backends.base import Backend
    from django_jobs.worker.cycle import Report
    from django_jobs.worker.queues import QueueOrder

MOST_PROCESSES = 1024
MOST_CONCURRENCY = 10_000
LOOK_EVERY_SECONDS = 1.0
SCHEDULER = f"{Loop.__module__}.{Loop.__qualname__}"
PRINTED = frozenset({events.WorkerWaiting, events.WorkerStarted, events.WorkerStopping})
"""Events about the worker itself that are printed. At its end, ``handle`` prints the count."""


class Command(BaseCommand):
    """Run jobs until told to stop."""

    help = (
        "Runs due jobs until it is told to stop: SIGTERM or Ctrl-C lets running jobs end, "
        "a second one stops them at once (they run again later, and nothing is charged). "
        "Failing jobs do not make the command fail."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--queue", help="a,b strictly in order; a:3,b:1 by weight; default: every queue")
        add("--backend", help="an alias of BACKENDS; default: DEFAULT_BACKEND")
        add(
            "--processes",
            type=_processes,
            metavar="N",
            help="children that run jobs; 0 runs them in this process, one at a time; "
            "default: the number of cores, or 0 on macOS and Windows",
        )
        add(
            "--concurrency",
            type=positive_int,
            metavar="N",
            default=1,
            help="jobs that each child runs at once: coroutines on one event loop, other "
            "handlers in threads; default: 1",
        )
        add(
            "--child-max-jobs",
            type=positive_int,
            metavar="N",
            help="replace a child by a fresh one after N jobs",
        )
        add(
            "--child-max-memory",
            type=positive_int,
            metavar="MB",
            help="replace a child by a fresh one when, after a job, it holds more memory (Linux)",
        )
        add(
            "--reload",
            action="store_true",
            help="for development: start the worker anew when Python files have changed",
        )
        _add_ends(parser)

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Model checks query databases; a worker must start even if its database is down."""
        try:
            super().check(*args, **kwargs)
        except OperationalError as error:
            message = f"the checks were cut short by an error of a database: {error}"
            self.stderr.write(escaped(message))
            super().check(tags=[TAG])

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["reload"] and not is_watched():
            self._watch()
            return
        try:
            worker = self._worker(options)
        except (ConfigurationError, InvalidOption) as error:
            raise refused(str(error)) from error
        _confirm_site(options)
        worker.stop.ends_process = getattr(self, "_called_from_command_line", False)
        with self._printing_events() if options["verbosity"] else nullcontext():
            code = self._run(worker, options) if self._has_tables(worker, options) else 0
        if options["verbosity"]:
            self.stdout.write(f"{worker.processed} jobs processed")
            if options["until_empty"] and worker.why == NOTHING_DUE:
                self._print_leftovers(options)
        if worker.stop.ends_process:
            self.stdout.flush()
            leave_in_time(code)
        if code:
            sys.exit(code)

    def _run(self, worker: InProcessWorker | PoolWorker, options: dict[str, Any]) -> int:
        self._warn_of_queues(options)
        return worker.run()

    def _has_tables(self, worker: InProcessWorker | PoolWorker, options: dict[str, Any]) -> bool:
        """Whether to begin; False if the worker was stopped while it waited for ``migrate``."""
        settings = get_settings()
        backend = backends[options["backend"] or settings.default_backend]
        databases = databases_of(backend, settings)
        if isinstance(worker, PoolWorker):  # the pool does too, but only after this query
            for alias in databases:
                limit_connecting(alias, shortest_lease(settings) / HANG_SHARE)
        patience = options["wait_for_migrations"]
        missing = _missing(databases, waits=patience is not None)
        if missing is not None and patience is not None:
            stop, until = Stop(), time.monotonic() + patience
            with stop.listening():
                events.emit(events.WorkerWaiting(backend=backend.alias, why=str(missing).strip()))
                while missing is not None and time.monotonic() < until:
                    stop.unless_asked(lambda: time.sleep(LOOK_EVERY_SECONDS))
                    if stop.asked.is_set():
                        return False
                    missing = _missing(databases, waits=True)
        if missing is not None:
            raise CommandError(escaped(str(missing).strip()), returncode=1) from missing
        return True

    @contextmanager
    def _printing_events(self) -> Iterator[None]:
        """Print the worker's own events: the site's logging may not show them."""
        events.subscribe(self._print_event, wants=PRINTED.__contains__)
        try:
            yield
        finally:
            events.unsubscribe(self._print_event)

    def _print_event(self, event: events.Event) -> None:
        if type(event) in PRINTED:
            soon(partial(self._print, in_words(event)))

    def _print(self, sentence: str) -> None:
        self.stdout.write(escaped(sentence))
        self.stdout.flush()

    def _print_leftovers(self, options: dict[str, Any]) -> None:
        backend, queues = _asked_for(options)
        try:
            for line in leftovers(backend, queues.watched):
                self.stdout.write(escaped(line))
        except (Error, OSError) as error:
            self.stderr.write(escaped(f"what is left could not be asked for: {error}"))

    def _warn_of_queues(self, options: dict[str, Any]) -> None:
        """Warn about queue names that may be misspelt.

        Not an error: jobs may be enqueued to them later.
        """
        backend, queues = _asked_for(options)
        with suppress(Error, OSError):  # the worker waits for a store that is down, and logs it
            for line in new_queue_warnings(queues, backend, get_settings()):
                self.stderr.write(self.style.WARNING(escaped(line)))

    def _watch(self) -> None:
        if not getattr(self, "_called_from_command_line", False):
            raise CommandError("--reload starts a command line anew, and there is none here")

        if code := FileWatcher(self._print).run():
            sys.exit(code)

    def _worker(self, options: dict[str, Any]) -> InProcessWorker | PoolWorker:
        settings = get_settings()
        backend, queues = _asked_for(options)
        registry.load()  # here, and not in each child
        limits = WorkerLimits(
            once=options["once"],
            until_empty=options["until_empty"],
            max_jobs=options["max_jobs"],
            max_seconds=options["max_seconds"],
        )
        child_limits = _child_limits(options)
        poll_interval = options["poll_interval"] or settings.poll_interval
        on_report = self._print_report if options["verbosity"] else None
        concurrency = options["concurrency"]
        if concurrency > MOST_CONCURRENCY:
            raise InvalidOption(f"--concurrency {concurrency} is more than {MOST_CONCURRENCY}")
        cron = SCHEDULER if options["with_cron"] else ""
        if processes := processes_for(options["processes"], backend):
            if problem := why_no_children():
                raise CommandError(f"{problem}; use --processes 0", returncode=2)
            return PoolWorker(
                backend,
                settings,
                queues,
                limits,
                places=Places(processes, concurrency, cron),
                poll_interval=poll_interval,
                child_limits=child_limits,
                on_report=on_report,
            )
        if child_limits != ChildLimits():
            raise InvalidOption(
                "without children there is none to replace: leave --child-max-jobs and "
                "--child-max-memory out, or say --max-jobs and let the worker be started again"
            )
        if concurrency > 1:
            message = "--concurrency needs children that run the jobs: use --processes 1 or more"
            raise InvalidOption(message)
        return InProcessWorker(
            build_cycle(backend, settings),
            queues,
            limits,
            poll_interval=poll_interval,
            on_report=on_report,
            cron=Loop() if options["with_cron"] else None,
        )

    def _print_report(self, report: Report) -> None:
        line = f"{report.status:<14} {report.handler} {report.job_id} on {report.queue}"
        if report.status != "acked":
            line += (
                f" (attempt {report.attempt}): {report.reason.splitlines()[0][:200]}"
                if report.reason
                else ""
            )
        self._print(line)


def _add_ends(parser: ArgumentParser) -> None:
    """Options for starting, polling and stopping."""
    add = parser.add_argument
    add("--once", action="store_true", help="process one due job, if there is one, and end")
    add(
        "--until-empty",
        action="store_true",
        help="end when nothing is due, and say what is left and why; jobs that are due later "
        "are not waited for",
    )
    add(
        "--with-cron",
        action="store_true",
        help="tick for schedules too, in a child (with --processes 0 between jobs)",
    )
    add("--max-jobs", type=positive_int, metavar="N", help="end after N jobs")
    add("--max-seconds", type=positive_float, metavar="S", help="end after S seconds")
    add("--poll-interval", type=positive_float, metavar="S", help="default: POLL_INTERVAL")
    add(
        "--wait-for-migrations",
        type=positive_float,
        metavar="S",
        nargs="?",
        const=float("inf"),
        help="where migrate has not been run yet, wait for it, at most S seconds; default: "
        "end with exit code 1",
    )


def _asked_for(options: dict[str, Any]) -> tuple[Backend, QueueOrder]:
    settings = get_settings()
    backend = backends[options["backend"] or settings.default_backend]
    return backend, parse(options["queue"], backend, settings)


def _confirm_site(options: dict[str, Any]) -> None:
    """Refuse to start if the store belongs to another site."""
    backend = backends[options["backend"] or get_settings().default_backend]
    if not isinstance(backend, Reconnects):
        return
    try:
        backend.confirm_site()
    except StoreUnavailable as error:
        raise CommandError(escaped(str(error)), returncode=1) from error


def _missing(databases: Sequence[str], *, waits: bool) -> Error | None:
    """The first error about missing tables, if any.

    Other database errors count only with ``waits``: otherwise the worker itself waits.
    """
    for alias in databases:
        try:
            require_tables(alias)
        except TablesMissing as error:
            return error
        except Error as error:
            if waits:
                return error
    return None


def _child_limits(options: dict[str, Any]) -> ChildLimits:
    megabytes = options["child_max_memory"]
    if megabytes and not can_measure():
        problem = "this system does not tell how much memory another process holds"
        raise InvalidOption(f"{problem}; leave --child-max-memory out")
    memory = megabytes * MEGABYTE if megabytes else None
    return ChildLimits(max_jobs=options["child_max_jobs"], max_memory=memory)


def _processes(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_PROCESSES:
        raise ArgumentTypeError(f"{text!r} is no whole number from 0 to {MOST_PROCESSES}")
    return int(text)
