"""OUTBOX and ON_COMMIT: what may be said, what is checked, and where it is documented."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from django_jobs import checks
from django_jobs.conf import BackendConfig, read

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_docs_list_every_key_of_a_backend():
    documented = set(
        re.findall(r"^\| `BACKENDS\[…\]\['([A-Z_]+)'\]` \|", DOCS.read_text(), re.MULTILINE)
    )
    known = {field.name.upper() for field in fields(BackendConfig)}
    assert documented == known - {"ALIAS", "PATH", "OPTIONS"}


@pytest.mark.parametrize("key", ["ON_COMMIT", "OUTBOX"])
def test_an_outbox_is_yes_no_or_the_alias_of_a_database(key):
    path = "django_jobs.backends.memory.MemoryBackend"

    def reading(value):
        backends = {"database": {"BACKEND": path, key: value}}
        return read({"BACKENDS": backends}, secret_key="not empty at all, but long")

    for value in (True, False, "default"):
        settings, problems = reading(value)
        assert problems == []
        assert getattr(settings.backends["database"], key.lower()) == value
    for value in (1, "", ["default"]):
        (problem,) = reading(value)[1]
        assert key in str(problem)
        assert "an alias of DATABASES" in str(problem)


@pytest.mark.parametrize("key", ["ON_COMMIT", "OUTBOX"])
def test_an_outbox_or_commit_in_a_database_that_is_not_there_is_told(settings, key):
    config = {"BACKEND": "django_jobs.backends.memory.MemoryBackend", key: "defualt"}
    settings.DJANGO_JOBS = {"BACKENDS": {"memory": config}, "DEFAULT_BACKEND": "memory"}
    (found,) = [one for one in checks.check_jobs() if one.id == "django_jobs.E070"]
    assert "did you mean 'default'" in found.msg


@pytest.mark.parametrize("queues", [{}, {"mail": {"OUTBOX": True}}])
def test_an_outbox_beside_the_jobs_themselves_is_told(settings, queues):
    config = {"BACKEND": "django_jobs.backends.database.DatabaseBackend", "OUTBOX": not queues}
    settings.DJANGO_JOBS = {"BACKENDS": {"database": config}, "QUEUES": queues}
    assert "django_jobs.W070" in {one.id for one in checks.check_jobs()}
    config["OPTIONS"], config["OUTBOX"] = {"DATABASE": "other"}, "default"
    settings.DJANGO_JOBS = {"BACKENDS": {"database": config}, "QUEUES": queues}
    assert "django_jobs.W070" not in {one.id for one in checks.check_jobs()}
