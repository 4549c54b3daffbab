"""Writing into the outbox: many jobs at once, whatever they weigh."""

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_jobs import enqueue_many, job
from django_jobs.models import OutboxJob

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

LONG = "€" * 85_000


@job(key="writing.note")
def note(word):
    return word


def test_no_statement_is_too_large_for_a_database_whatever_many_jobs_weigh(broker):
    broker(OUTBOX="default")
    with CaptureQueriesContext(connections["default"]) as asked:
        enqueue_many(note.prepare(LONG) for _ in range(40))  # 20 MB as they are stored
    assert OutboxJob.objects.count() == 40
    assert max(len(query["sql"]) for query in asked) < 8 * 1024 * 1024
