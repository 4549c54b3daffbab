"""CI installs what .ci/locks pins, by hash; the pins have to fit what the package declares."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_pins_what_the_package_declares(lock):
    pinned = pins(lock)
    extras = [*TESTED, "lint", "docs"] if lock.stem.endswith("-dev") else TESTED
    unfit = [
        str(one)
        for one in declared(extras)
        if not one.specifier.contains(pinned.get(one.name.lower(), ("0", ""))[0], prereleases=True)
    ]
    assert not unfit, f"run 'make lock': {lock.name} does not fit {unfit}"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_each_pin_of_a_lock_has_a_hash_and_none_an_address(lock):
    text = lock.read_text()
    assert pins(lock).keys() == set(re.findall(r"^([a-z0-9][^=\s]*)", text, re.MULTILINE))
    assert all("--hash=sha256:" in rest for _, rest in pins(lock).values())
    assert "://" not in text


@pytest.mark.parametrize("command", re.findall(r".*\bpip\b.*", (ROOT / ".ci/run").read_text()))
def test_what_ci_installs_by_itself_is_fetched_from_nowhere(command):
    assert "--no-deps --no-build-isolation" in command
