"""``manage.py jobs_reap``: do by hand the reaping and relaying that workers do by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS, connections

from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.management.arguments import queue_name
from django_jobs.management.base import FAILED, JobsCommand
from django_jobs.management.output import escaped
from django_jobs.models import OutboxJob
from django_jobs.outbox.relay import problem_of
from django_jobs.routers import job_databases
from django_jobs.telemetry import events
from django_jobs.worker.build import build_relay

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings
    from django_jobs.management.output import Output
    from django_jobs.outbox.relay import Relay

BATCH = 1000


class Command(JobsCommand):
    """Return jobs whose lease has ended, and relay the outbox."""

    help = (
        "Returns jobs whose lease has ended without a verdict. "
        "They become suspects, which workers run alone. Then it moves what waits in the outbox "
        "to the backend, of every queue. Workers do both by themselves; use it when none is "
        "running, and before an outbox is switched off. Prints how many jobs were returned, "
        "and how many moved. Exit code 1 when a queue of the outbox could not be moved."
    )
    examples = """
        jobs_reap
        jobs_reap --queue mail --backend database
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--queue", type=queue_name, metavar="NAME", help="only this queue; default: all")
        add("--backend", metavar="ALIAS", help="an alias of BACKENDS; default: DEFAULT_BACKEND")

    def run(self, output: Output, options: dict[str, Any]) -> int:
        settings = get_settings()
        backend = backends[options["backend"] or settings.default_backend]
        total = 0
        while count := backend.reap_expired(options["queue"], limit=BATCH):
            events.emit(events.Reaped(backend=backend.alias, count=count))
            total += count
        output.line(f"{total} jobs returned")
        moved, left, stuck = _relayed(backend, settings)
        if moved or left:
            output.line(f"{moved} jobs moved from the outbox, {left} are left")
        for queue, why in stuck.items():
            output.line(escaped(f"the queue {queue} cannot be moved: {why}"))
        return FAILED if stuck else 0


def _homes(settings: JobsSettings) -> Iterator[str]:
    """The databases with an outbox, including one from an earlier setting of OUTBOX."""
    aliases = job_databases(settings)
    yield from aliases
    if DEFAULT_DB_ALIAS not in aliases:
        tables = connections[DEFAULT_DB_ALIAS].introspection.table_names()
        if OutboxJob._meta.db_table in tables:
            yield DEFAULT_DB_ALIAS


def _relayed(backend: Backend, settings: JobsSettings) -> tuple[int, int, dict[str, str]]:
    """Relay every outbox with jobs for a backend, also one that is switched off by now.

    Returns the numbers of jobs moved and left, and the queues that could not be moved.
    """
    moved = left = 0
    stuck: dict[str, str] = {}
    for home in _homes(settings):
        relay = build_relay(backend, settings, home)
        if relay is None:
            continue
        moved += _moved(relay)
        stuck |= {queue: problem_of(rest.error) for queue, rest in relay.stuck.items()}
        left += OutboxJob.objects.using(home).filter(backend=backend.alias).count()
    return moved, left, stuck


def _moved(relay: Relay) -> int:
    """Move all jobs that can be moved, and return their number; the relay records the rest."""
    moved = 0
    try:
        while (step := relay.step()).jobs:
            moved += step.jobs
    except Exception as error:  # whatever a broker raises
        if all(rest.error is not error for rest in relay.stuck.values()):
            raise
    return moved
