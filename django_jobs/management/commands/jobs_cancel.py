"""``manage.py jobs_cancel``: cancel waiting jobs, and ask running ones to stop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django_jobs.management.base import (
    FAILED,
    JobsCommand,
    add_json,
    system_user,
)
from django_jobs.management.output import escaped
from django_jobs.operations.cancel import cancel_or_ask_to_stop

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output

SENTENCES = {
    "cancelled": "cancelled",
    "asked": "runs, and was asked to stop",
    "already-asked": "runs, and had been asked to stop before",
    "moving": "is on its way from the outbox to its backend just now; try again",
    "gone": "does not wait or run (jobs_explain tells more)",
}


class Command(JobsCommand):
    """Cancel jobs that wait, ask running ones to stop."""

    help = (
        "Cancels jobs that wait, and asks those that run to stop: their handler sees "
        "context.cancelled, and the process of one that does not react is stopped after "
        "KILL_GRACE. Neither is retried. Exit code 1 when one of them had ended, never was, or is "
        "on its way from the outbox to its backend."
    )
    examples = """
        jobs_cancel 01890a5d-ac96-774b-bcce-b302099a8057
        jobs_cancel 01890a5d-ac96-774b-bcce-b302099a8057 --reason "ordered by mistake"
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ids", nargs="+", metavar="ID", help="the ids of jobs")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is recorded")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        by, reason = system_user(), options["reason"]
        results = [cancel_or_ask_to_stop(job_id, by=by, reason=reason) for job_id in options["ids"]]
        if options["json"]:
            output.document({"jobs": [asdict(result) for result in results]})
        else:
            for result in results:
                output.line(f"{escaped(result.job_id)} {SENTENCES[result.status]}")
        return FAILED if any(result.status in {"gone", "moving"} for result in results) else 0
