"""``manage.py jobs_purge``: delete the records of ended jobs."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from django_jobs.management.arguments import DURATIONS, duration, queue_name
from django_jobs.management.base import (
    FAILED,
    JobsCommand,
    add_database,
    add_json,
    check_can_ask,
    chosen_database,
    confirmed,
    progress,
    system_user,
)
from django_jobs.operations.dead_letters import select
from django_jobs.operations.purge import purge

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output
    from django_jobs.operations.purge import Purged


class Command(JobsCommand):
    """Delete the records of ended jobs."""

    help = (
        "Deletes results and dead letters that are older than an age, and the attempts that "
        "belong to them. Live jobs are never touched. Workers drop results by themselves when "
        "their time is over; dead letters stay until you say so."
    )
    examples = """
        jobs_purge --state succeeded --older-than 7d
        jobs_purge --state dead --older-than 12w --queue mail --dry-run
        jobs_purge --state all --older-than 4w --force
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--state",
            required=True,
            choices=("succeeded", "dead", "all"),
            help="succeeded: results, of skipped and cancelled jobs too; dead: dead letters, "
            "open or resolved; all: both, and attempts of which nothing else is left",
        )
        add(
            "--older-than",
            required=True,
            type=duration,
            metavar="AGE",
            help=f"how long ago the jobs ended: {DURATIONS}",
        )
        add("--queue", type=queue_name, metavar="NAME", help="only of this queue")
        add("--dry-run", action="store_true", help="say how many there are, delete nothing")
        add("--force", action="store_true", help="do not ask")
        add_database(parser)
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        named = options["database"]
        purge_chosen = partial(
            purge,
            state=options["state"],
            older_than=options["older_than"],
            queue=options["queue"],
            by=system_user(),
            using=None if named is None else chosen_database(named),
        )
        matched = purge_chosen(dry_run=True)
        if options["dry_run"] or not matched.total:
            return _report(output, "would be deleted", matched, options)
        if not options["force"]:
            check_can_ask("--force, or --dry-run to count them", as_json=options["json"])
            if not confirmed(f"Delete {_words(matched)}{_warning(options)}?"):
                output.line("Nothing was deleted.")
                return FAILED
        with progress(self.stderr, matched.total, "purge") as advance:
            return _report(output, "deleted", purge_chosen(progress=advance), options)


def _report(output: Output, how: str, purged: Purged, options: dict[str, Any]) -> int:
    if options["json"]:
        output.document({"dry_run": options["dry_run"], **asdict(purged), "total": purged.total})
    else:
        output.line(f"{_words(purged)} {how}" if purged.total else "There is nothing to delete.")
    return 0


def _words(purged: Purged) -> str:
    return (
        f"{purged.results} results, {purged.dead_letters} dead letters and "
        f"{purged.attempts} attempts"
    )


def _warning(options: dict[str, Any]) -> str:
    """A part of the question, if open dead letters would be deleted."""
    if options["state"] == "succeeded":
        return ""
    waiting = select(
        queue=options["queue"],
        older_than=options["older_than"],
        using=chosen_database(options["database"]),
    ).count()
    return (
        f" ({waiting} of the dead letters were neither replayed nor discarded)" if waiting else ""
    )
