"""CI installs what .ci/locks pins, by hash; the pins have to fit what the package declares."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tests.house.findings import listed

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / ".ci/locks").glob("*.txt"))
TESTED = ["test", "redis", "beanstalk"]
PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+)((?:.*\\\n)+.*)", re.MULTILINE)


def pins(lock):
    return {name: (version, rest) for name, version, rest in PIN.findall(lock.read_text())}


def declared(extras):
    """All that the package needs with these extras, and what builds it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in extras:
        wanted += project["project"]["optional-dependencies"][extra]
    return [Requirement(line) for line in wanted]


def test_there_is_a_lock_for_each_django_of_the_matrix():
    matrix = re.search(r"MATRIX=\((.*)\)", (ROOT / ".ci/run").read_text())[1]
    djangos = {pair.partition(":")[2] for pair in matrix.split()}
    assert {lock.stem for lock in LOCKS} == djangos | {f"{max(djangos)}-dev"}


def test_a_lock_pins_what_the_package_declares():
    unfit = []
    for lock in LOCKS:
        pinned = pins(lock)
        extras = [*TESTED, "lint", "docs"] if lock.stem.endswith("-dev") else TESTED
        for requirement in declared(extras):
            version, _ = pinned.get(requirement.name.lower(), ("0", ""))
            if not requirement.specifier.contains(version, prereleases=True):
                unfit.append(f"{lock.name} does not fit {requirement}")
    assert not unfit, f"run 'make lock':{listed(unfit)}"


def test_each_pin_of_a_lock_has_a_hash_and_none_an_address():
    wrong = []
    for lock in LOCKS:
        text, pinned = lock.read_text(), pins(lock)
        named = set(re.findall(r"^([a-z0-9][^=\s]*)", text, re.MULTILINE))
        wrong += [f"{lock.name}: {name}" for name in sorted(pinned.keys() ^ named)]
        wrong += [
            f"{lock.name}: {name} has no hash"
            for name, (_, rest) in pinned.items()
            if "--hash=sha256:" not in rest
        ]
        wrong += [f"{lock.name} has an address"] if "://" in text else []
    assert not wrong, listed(wrong)


def test_what_ci_installs_by_itself_is_fetched_from_nowhere():
    commands = re.findall(r".*\bpip\b.*", (ROOT / ".ci/run").read_text())
    fetching = [line for line in commands if "--no-deps --no-build-isolation" not in line]
    assert commands
    assert not fetching, listed(fetching)
