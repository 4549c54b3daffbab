"""``manage.py jobs_preflight``: the doctor."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django_jobs.management import preflight
from django_jobs.management.base import FAILED, JobsCommand, add_json
from django_jobs.management.output import escaped

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output

HEADERS = ("", "what", "finding")
SIGNS = {preflight.OK: "ok", preflight.WARNING: "!", preflight.FAILED: "FAILED"}


class Command(JobsCommand):
    """Look whether everything is there that jobs need."""

    help = (
        "Looks at the configuration, the keys, the databases, their migrations and clocks, the "
        "workers, the handlers and the first messages that wait, and says what to do about each "
        "thing that is not well. Exit "
        "code 1 when something failed, or with --strict when there is a warning; 0 else."
    )
    examples = """
        jobs_preflight
        jobs_preflight --strict
        jobs_preflight --json
    """
    # It tells of the checks itself, beside everything else.
    requires_system_checks: Any = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        told = "let warnings fail too, as before a deployment"
        parser.add_argument("--strict", action="store_true", help=told)
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        found = list(preflight.findings())
        bad = {preflight.FAILED, *([preflight.WARNING] if options["strict"] else [])}
        well = not any(one.state in bad for one in found)
        if options["json"]:
            output.document({"ok": well, "findings": [asdict(one) for one in found]})
            return 0 if well else FAILED
        output.table(HEADERS, [(SIGNS[one.state], one.what, one.told) for one in found])
        for one in found:
            if one.state != preflight.OK and one.way_out:
                output.line(f"\n{one.what}: {escaped(one.told)}\n  {escaped(one.way_out)}")
        warnings = sum(one.state == preflight.WARNING for one in found)
        told = "It is ready" if well else "It is not ready"
        output.line(f"\n{told}{f', with {warnings} warnings' if warnings else ''}.")
        return 0 if well else FAILED
