"""``manage.py jobs_import``: move waiting tasks from another backend's table to ours."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from django_jobs.conf import get_settings
from django_jobs.exceptions import BackendUnavailable, DuplicateJob, StoreUnavailable
from django_jobs.management.base import (
    FAILED,
    JobsCommand,
    add_json,
    progress,
    refused,
)
from django_jobs.management.output import escaped

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.imports import MovedJobs
    from django_jobs.management.output import Output

SOURCES = ("django-tasks-db", "django-ox")


class Command(JobsCommand):
    """Move waiting tasks from another backend of Django's Tasks."""

    help = (
        "Enqueues the tasks that wait in the table of django-tasks-db or django-ox as jobs, each "
        "under the id it has, and deletes their rows there. What runs or has ended is left "
        "alone. Stop the other backend's workers first. Doing it again is safe. That table has no "
        "signatures: the jobs are signed here with this site's key, with the tasks and arguments "
        "that the rows have. Look with --dry-run at what that would be, and import only from a "
        "table that only you and your site could write to."
    )
    examples = """
        jobs_import django-tasks-db --dry-run
        jobs_import django-ox --backend database
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("source", metavar="SOURCE", choices=SOURCES, help="whose table: " + ", ".join(SOURCES))
        add(
            "--backend",
            metavar="ALIAS",
            help="one of BACKENDS; default: where their alias in TASKS leads",
        )
        add("--source-database", metavar="ALIAS", help="where the table is; default: as routed")
        add("--dry-run", action="store_true", help="say what would be moved, change nothing")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        try:
            from django_jobs.management import imports  # noqa: PLC0415 - Tasks may be absent
        except ImportError as error:
            raise refused(str(error)) from error
        source, using = options["source"], options["source_database"]
        total = len(imports.waiting_ids(source, using))
        try:
            with progress(self.stderr, total, "import") as advance:
                moved = imports.move(
                    source,
                    backend=options["backend"],
                    using=using,
                    dry_run=options["dry_run"],
                    progress=advance,
                )
        except DuplicateJob as error:
            raise CommandError(
                f"{escaped(str(error))}; the tasks of its batch were left where they are",
                returncode=FAILED,
            ) from error
        except (BackendUnavailable, StoreUnavailable) as error:
            raise CommandError(
                f"{escaped(str(error))}; what was not moved is still there: do it again",
                returncode=FAILED,
            ) from error
        table, database = imports.place_of(source, using)
        origin = {
            "table": table,
            "database": database,
            "key_id": get_settings().signing_keys[0].key_id,
        }
        if options["json"]:
            document = {
                "source": source,
                "dry_run": options["dry_run"],
                **origin,
                **asdict(moved),
            }
            output.document(document)
        else:
            _report(output, moved, origin, dry_run=options["dry_run"])
        return FAILED if moved.refused else 0


def _report(output: Output, moved: MovedJobs, origin: dict[str, str], *, dry_run: bool) -> None:
    for refusal in moved.refused:
        output.line(escaped(f"refused  {refusal['task']} {refusal['id']}: {refusal['why']}"))
    would = "would be " if dry_run else ""
    for task, count in sorted(moved.tasks.items()):
        output.line(escaped(f"{would}signed  {task} x {count}"))
    if moved.tasks:
        output.line(
            escaped(
                f"Tasks and arguments are as the table {origin['table']} of the database "
                f"{origin['database']} has them, which knows no signatures. This site's key "
                f"{origin['key_id']} {'would vouch' if dry_run else 'vouches'} for them from "
                "now on."
            )
        )
    output.line(
        f"{moved.moved} tasks {would}moved, {len(moved.refused)} refused and left there, "
        f"{moved.running} running there"
    )
