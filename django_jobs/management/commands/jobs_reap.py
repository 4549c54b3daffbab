"""``manage.py jobs_reap``: what every worker does by itself, by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.management.arguments import queue_name
from django_jobs.management.base import JobsCommand
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output

BATCH = 1000


class Command(JobsCommand):
    """Return jobs whose lease ended without a verdict."""

    help = (
        "Returns jobs whose worker was lost: their lease has ended and nobody settled them. "
        "They become suspects, which workers run alone. Workers do this by themselves; "
        "use it when none is running. Prints how many jobs were returned."
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
        backend = backends[options["backend"] or get_settings().default_backend]
        total = 0
        while count := backend.reap_expired(options["queue"], limit=BATCH):
            events.emit(events.Reaped(backend=backend.alias, count=count))
            total += count
        output.line(f"{total} jobs returned")
        return 0
