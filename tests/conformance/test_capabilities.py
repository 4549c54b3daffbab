"""What each shipped backend must be able to do. To take something away is a decision."""

from pathlib import Path

import pytest
from django.utils.module_loading import import_string

from django_jobs.backends.base import Capabilities

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "backends.md"

MEMORY = {"delay", "priority", "renew", "batch", "results", "peek", "cancel", "unique", "keys"}
REQUIRED = {
    "database": MEMORY | {"transactional_enqueue", "accounts", "breakers"},
    "memory": MEMORY,
    "redis": MEMORY | {"accounts", "breakers"},
}
PATHS = {
    "database": "django_jobs.backends.database.DatabaseBackend",
    "memory": "django_jobs.backends.memory.MemoryBackend",
    "redis": "django_jobs.backends.redis.RedisBackend",
}
EVERYTHING = dict.fromkeys(Capabilities._fields, True)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_shipped_backend_claims_exactly_what_it_must(name):
    assert import_string(PATHS[name]).capabilities.names() == REQUIRED[name]


def test_names_are_those_of_what_is_claimed():
    assert Capabilities().names() == frozenset()
    assert Capabilities(peek=True, delay=True).names() == {"peek", "delay"}
    assert Capabilities(**EVERYTHING).names() == set(EVERYTHING)


def documented():
    """Backend → the capabilities that the reference page says yes to."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    start = next(place for place, row in enumerate(rows) if row[0].strip() == "Capability")
    backends = rows[start][1:]
    table = {}
    for row in rows[start + 2 :]:
        if len(row) < 2:
            break
        table[row[0]] = dict(zip(backends, row[1:], strict=True))
    return backends, table


def test_the_reference_page_says_what_the_code_does():
    backends, table = documented()
    assert set(backends) == set(REQUIRED)
    assert set(table) == set(EVERYTHING)
    for name in backends:
        said = {capability for capability, answers in table.items() if answers[name] == "yes"}
        assert said == REQUIRED[name]
        assert {answers[name] for answers in table.values()} <= {"yes", "no"}


def test_the_reference_page_names_every_dotted_path():
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{path}`" in page for path in PATHS.values())
