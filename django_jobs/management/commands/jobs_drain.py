"""``manage.py jobs_drain``: ask workers to finish their running jobs and exit."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import InvalidOption
from django_jobs.management.base import (
    FAILED,
    JobsCommand,
    add_json,
    system_user,
)
from django_jobs.management.output import escaped
from django_jobs.operations.workers import drain, workers

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output

SENTENCES = {
    "asked": "was asked to drain",
    "already-asked": "had been asked to drain before",
    "gone": "is not known; jobs_status names those that are",
}


class Command(JobsCommand):
    """Ask workers to drain."""

    help = (
        "Asks workers, on whatever machine, to take no new job, finish what they run, give back "
        "the rest uncharged and end with exit code 0. They hear of it within some seconds. "
        "Exit code 1 when one of them is not known."
    )
    examples = """
        jobs_drain web-3:4711
        jobs_drain --all --reason "the machines are replaced"
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("workers", nargs="*", metavar="WORKER", help="HOST:PID, as jobs_status shows them")
        add("--all", action="store_true", help="every worker there is")
        add("--reason", default="", metavar="TEXT", help="why; it is recorded")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        names = options["workers"]
        if bool(names) == options["all"]:
            raise InvalidOption("name workers as HOST:PID, or say --all; jobs_status lists them")
        ids = {str(seen.worker): str(seen.worker.pk) for seen in workers()}
        by, reason = system_user(), options["reason"]
        results = [
            drain(ids.get(name, name), by=by, reason=reason) for name in names or sorted(ids)
        ]
        if options["json"]:
            output.document({"workers": [asdict(result) for result in results]})
        else:
            for result in results:
                output.line(f"{escaped(result.worker)} {SENTENCES[result.status]}")
            if not results:
                output.line("No worker is known.")
        return FAILED if any(result.status == "gone" for result in results) else 0
