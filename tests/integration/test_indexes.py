"""Indexes over a part of a table, where the database has them."""

from __future__ import annotations

import pytest
from django.db import connection

from django_jobs.models import Job


def definition_of(name: str) -> str:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = %s", [name])
        else:
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = %s", [name])
        return cursor.fetchone()[0]


@pytest.mark.django_db
@pytest.mark.only_on("sqlite", "postgres")
@pytest.mark.parametrize(
    ("name", "where"),
    [("dj_job_promote", "state = 0"), ("dj_job_reap", "state = 2 OR suspect")],
)
def test_jobs_that_wait_and_that_are_leased_or_suspect_have_indexes_of_their_own(name, where):
    found = definition_of(name).replace('"', "").replace("(", "").replace(")", "")
    assert found.removesuffix(" = 1").endswith(f"WHERE {where}")


@pytest.mark.django_db
def test_an_index_over_all_of_a_table_has_no_more_fields_than_it_needs():
    """Each entry more would be written by every promotion where there are no partial indexes."""
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, Job._meta.db_table)
    partial = connection.features.supports_partial_indexes
    fields = ["lease_expires", "suspect", *(["state"] if partial else [])]
    assert found["dj_job_reap"]["columns"] == fields


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["dj_job_claim", "dj_job_promote", "dj_job_reap"])
def test_every_database_has_the_index(name):
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, Job._meta.db_table)
    assert found[name]["index"]


@pytest.mark.django_db
def test_no_database_warns_of_them():
    assert [message.id for message in Job.check(databases=["default"])] == []
