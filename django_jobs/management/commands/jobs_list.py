"""``manage.py jobs_list``: list jobs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from django_jobs.management.arguments import positive_int, queue_name
from django_jobs.management.base import JobsCommand, add_json
from django_jobs.management.jobs import (
    HEADERS,
    LOOKS_AT_MOST,
    STATES,
    Wanted,
    listed,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output


class Command(JobsCommand):
    """List jobs."""

    help = (
        "Lists live jobs, or those in one state. Dead ones are listed until they are replayed or "
        "discarded, succeeded, cancelled and skipped ones while their result is kept."
    )
    examples = """
        jobs_list
        jobs_list --state running
        jobs_list --state dead --queue mail --limit 100
        jobs_list --handler shop.jobs.send_receipt --json
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--state", choices=STATES, help="default: all live ones, which is the first four")
        add("--queue", type=queue_name, metavar="NAME", help="only jobs of this queue")
        add("--handler", metavar="KEY", help="only jobs of this handler")
        add("--limit", type=positive_int, default=20, metavar="N", help="at most N; default: 20")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        state, limit = options["state"], options["limit"]
        wanted = Wanted(state, options["queue"], options["handler"], limit + 1)
        jobs = list(islice(listed(wanted), limit + 1))
        shown, more = jobs[:limit], len(jobs) > limit
        if options["json"]:
            more = more or wanted.may_miss_some
            output.document({"jobs": [job.document() for job in shown], "more": more})
        elif shown:
            output.table(HEADERS, [job.row() for job in shown])
            if more:
                output.line(f"There are more; --limit {limit * 10} shows more of them.")
        else:
            output.line(f"There are no {state or 'live'} jobs like that.")
        if wanted.may_miss_some and not more:
            output.line(
                f"It was looked among the first {LOOKS_AT_MOST:,} only; --queue or --state "
                "narrow it down."
            )
        return 0
