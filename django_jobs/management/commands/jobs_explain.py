"""``manage.py jobs_explain``: why a job is not running."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django_jobs.management.base import FAILED, JobsCommand, add_json
from django_jobs.management.output import escaped
from django_jobs.operations.explain import explain

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output


class Command(JobsCommand):
    """Say why a job is not running."""

    help = (
        "Says where a job stands and everything that keeps it from running, in plain words and "
        "with the way out: not due yet, a paused queue, no worker, a limit, a key that another "
        "job holds, an unknown handler, a lease. Exit code 1 when no job of that id is known."
    )
    examples = """
        jobs_explain 01890a5d-ac96-774b-bcce-b302099a8057
        jobs_explain 01890a5d-ac96-774b-bcce-b302099a8057 --json
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", metavar="ID", help="the id of a job, as jobs_list shows it")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        explanation = explain(options["id"])
        if options["json"]:
            output.document({**asdict(explanation), "found": explanation.found})
            return 0 if explanation.found else FAILED
        where = ""
        if explanation.found:
            where = f" ({explanation.handler} on {explanation.queue}, {explanation.backend})"
        output.line(escaped(f"{explanation.job_id} is {explanation.state}{where}."))
        for number, cause in enumerate(explanation.causes, 1):
            output.line()
            output.line(f"{number}. {escaped(cause.text)}")
            output.line(f"   {escaped(cause.way_out)}")
        return 0 if explanation.found else FAILED
