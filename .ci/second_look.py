"""Run once more, alone, the tests that failed in the crowd of CI's legs; say which pass then.

    second_look.py OUT LISTED

In OUT each leg that failed by its tests alone has LEG.xml (its JUnit report), LEG.cache (pytest's
cache, which knows the exact ids of what failed) and LEG.again (the command that runs one test of
it, an argument a line; the id is added). LEG.failed, which every such leg has, is taken away when
all its tests pass now. LISTED has the names, "leg id", that passed only in quiet before.

Nothing is run where the verdict is certain: a failure of those in AT_ONCE or LISTED, more than
ALLOWED of them, or a leg whose report and cache do not agree.
"""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

# What these say of a store, of many workers or of a dying server has to hold in any crowd.
AT_ONCE = ("tests/conformance/", "tests/simulation/", "tests/chaos/")
ALLOWED = 3  # of all legs together


def cases(report: Path) -> list[ET.Element]:
    # Our own pytest wrote the report a moment ago; it is not a stranger's XML.
    return list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - see above


def has(case: ET.Element, *ends: str) -> bool:
    return any(case.find(end) is not None for end in ends)


def failed_tests(out: Path, leg: str) -> list[str]:
    """The ids of the tests that failed; empty when the report speaks of more or fewer."""
    broken = {
        (case.get("classname"), case.get("name"))
        for case in cases(out / f"{leg}.xml")
        if has(case, "failure", "error")
    }
    known = out / f"{leg}.cache/v/cache/lastfailed"
    ids = sorted(json.loads(known.read_text("utf-8"))) if known.exists() else []
    return ids if len(ids) == len(broken) else []


def listed_names(listed: Path) -> set[str]:
    lines = (line.strip() for line in listed.read_text("utf-8").splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def refusals(failures: dict[str, list[str]], listed: set[str]) -> list[str]:
    """Why there is no second look; empty when there is one."""
    names = [(f"{leg} {test}", test) for leg, tests in failures.items() for test in tests]
    found = [
        f"{leg}: its report and pytest's cache do not agree on what failed"
        for leg, tests in failures.items()
        if not tests
    ]
    found += [
        f"{name}: such a test has to pass in any crowd"
        for name, test in names
        if test.startswith(AT_ONCE)
    ]
    found += [f"{name}: it passed only in quiet before" for name, _ in names if name in listed]
    if len(names) > ALLOWED:
        found.append(f"{len(names)} tests failed, and at most {ALLOWED} get one")
    return found


def passes(command: list[str], test: str, log: Path) -> bool:
    """Run one test by itself; a test that is skipped now has not passed."""
    report = log.with_suffix(".xml")
    with log.open("w") as words:
        done = subprocess.run(  # noqa: S603 - a command of our own
            [*command, "--junitxml", str(report), test],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        return False
    ran = cases(report)
    return bool(ran) and not any(has(case, "failure", "error", "skipped") for case in ran)


def look_again(out: Path, leg: str, tests: list[str]) -> bool:
    """Run each test of a leg alone and tell how it went; whether all passed."""
    command = (out / f"{leg}.again").read_text("utf-8").splitlines()
    well = True
    for number, test in enumerate(tests, 1):
        log = out / f"{leg}.again-{number}.log"
        if passes(command, test, log):
            print(f"PASSED ONLY IN QUIET: {leg} {test}", flush=True)
        else:
            well = False
            print(f"FAILED TWICE: {leg} {test}", flush=True)
            for line in log.read_text("utf-8", "replace").splitlines()[-60:]:
                print(f"        {line}")
    return well


def main(out: Path, listed: Path) -> int:
    legs = sorted(path.stem for path in out.glob("*.again"))
    failures = {leg: failed_tests(out, leg) for leg in legs}
    if refused := refusals(failures, listed_names(listed)):
        for leg, tests in failures.items():
            for test in tests:
                print(f"FAILED: {leg} {test}")
        for reason in refused:
            print(f"NO SECOND LOOK: {reason}")
        return 1
    mended = [leg for leg, tests in failures.items() if look_again(out, leg, tests)]
    for leg in mended:
        (out / f"{leg}.failed").unlink()
    return int(len(mended) < len(legs))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
