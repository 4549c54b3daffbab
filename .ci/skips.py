"""Read a JUnit report: print one line of counts, and fail on skips nobody has accepted.

    skips.py REPORT.xml ALLOWED

Exit status 1 when the report holds failures or errors; 2 when it holds no tests at all, or a skip
that matches no line of ALLOWED.
"""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def accepted(path: Path) -> list[re.Pattern[str]]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def skips(cases: list[ET.Element]) -> list[str]:
    """Every skip as "test id: reason"; an expected failure is none."""
    found = []
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        found += [
            f"{name}: {skip.get('message', '').strip()}"
            for skip in case.iter("skipped")
            if skip.get("type") != "pytest.xfail"
        ]
    return found


def main(report: str, allowed: str) -> int:
    # The report was written by our own pytest a moment ago; it is not a stranger's XML.
    suites = list(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 - see above
    cases = [case for suite in suites for case in suite.iter("testcase")]
    broken = sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites)
    skipped = skips(cases)
    patterns = accepted(Path(allowed))
    unlisted = [skip for skip in skipped if not any(known.search(skip) for known in patterns)]
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    passed = len(cases) - broken - len(skipped)
    print(f"{passed} passed, {broken} failed, {len(skipped)} skipped in {seconds:.0f} s")
    for skip in unlisted:
        print(f"  skip not in {Path(allowed).name}: {skip}")
    if unlisted or not cases:
        return 2
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
