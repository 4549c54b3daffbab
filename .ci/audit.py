"""Look up known vulnerabilities of what is installed, and say of what nothing could be told.

    audit.py [--require-all]

Exit status 1 when something is known to be vulnerable; with --require-all also when anything
could not be looked up. Packages under development (this one) are left out.
"""

import json
import subprocess
import sys
from typing import Any

PIP_AUDIT = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off"]


def asked() -> tuple[list[dict[str, Any]] | None, str]:
    """What pip-audit reports of each package, or None; and its own words."""
    done = subprocess.run(  # noqa: S603 - our own command
        [*PIP_AUDIT, "--format", "json"], capture_output=True, text=True, check=False
    )
    try:
        return json.loads(done.stdout)["dependencies"], done.stderr
    except (ValueError, KeyError, TypeError):
        return None, done.stderr or done.stdout


def judged(report: list[dict[str, Any]] | None, words: str) -> tuple[int, int]:
    """Tells the report; how many packages are vulnerable, and how many are not looked up."""
    if report is None:
        lines = words.strip().splitlines() or ["it said nothing"]
        print("NOT AUDITED: pip-audit made no report, so NOTHING was looked up. Its last words:")
        print(f"  {lines[-1]}")
        return 0, 1
    vulnerable = [one for one in report if one.get("vulns")]
    unknown = [one["name"] for one in report if "skip_reason" in one]
    for one in vulnerable:
        ids = ", ".join(found["id"] for found in one["vulns"])
        print(f"VULNERABLE: {one['name']} {one['version']}: {ids}")
    audited = len(report) - len(unknown)
    print(f"{audited} of {len(report)} packages were audited, {len(vulnerable)} are vulnerable")
    if unknown:
        whole = "" if audited else " NOTHING was looked up: the service knows none of them."
        print(f"NOT AUDITED: {len(unknown)} of {len(report)} packages.{whole}")
        print(f"  {', '.join(sorted(unknown))}")
    return len(vulnerable), len(unknown)


def main(arguments: list[str]) -> int:
    vulnerable, unknown = judged(*asked())
    return int(bool(vulnerable or (unknown and "--require-all" in arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
