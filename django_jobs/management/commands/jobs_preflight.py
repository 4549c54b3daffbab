"""``manage.py jobs_preflight``: check that everything is ready for jobs to run."""

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
    """Check the configuration and everything that jobs need."""

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
    # The system checks are part of its own findings.
    requires_system_checks: Any = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        text = "let warnings fail too, as before a deployment"
        parser.add_argument("--strict", action="store_true", help=text)
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        findings = list(preflight.findings())
        bad = {preflight.FAILED, *([preflight.WARNING] if options["strict"] else [])}
        well = not any(finding.state in bad for finding in findings)
        if options["json"]:
            output.document({"ok": well, "findings": [asdict(finding) for finding in findings]})
            return 0 if well else FAILED
        output.table(
            HEADERS, [(SIGNS[finding.state], finding.what, finding.text) for finding in findings]
        )
        for finding in findings:
            if finding.state != preflight.OK and finding.way_out:
                output.line(
                    f"\n{finding.what}: {escaped(finding.text)}\n  {escaped(finding.way_out)}"
                )
        warnings = sum(finding.state == preflight.WARNING for finding in findings)
        verdict = "It is ready" if well else "It is not ready"
        output.line(f"\n{verdict}{f', with {warnings} warnings' if warnings else ''}.")
        return 0 if well else FAILED
