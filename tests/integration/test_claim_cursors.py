"""Claims beside an old transaction: they go on behind dead entries, and hide no job."""

import pytest
from django.db import connection

from django_jobs.backends.database import DatabaseBackend, claim
from django_jobs.testing.factories import make_outgoing

pytestmark = [pytest.mark.only_on("postgres"), pytest.mark.django_db(transaction=True)]
QUEUE = "many"


@pytest.fixture
def backend(monkeypatch):
    monkeypatch.setattr(claim, "MANY", 50)
    monkeypatch.setattr(claim, "GOES_ON_FOR", 1e6)  # so that only what is tested ends it
    return DatabaseBackend("database", {})


@pytest.fixture
def old_transaction(backend):
    """A reader that sees a hundred jobs which are gone since."""
    waiting(backend, 100)
    reader = connection.copy()
    with reader.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM django_jobs_job")
        backend.ack(backend.fetch([QUEUE], 100, 60.0))
        yield
        cursor.execute("ROLLBACK")
    reader.close()


def waiting(backend, count, **terms):
    jobs = [make_outgoing(QUEUE, backend="database", **terms) for _ in range(count)]
    return [stored.id for stored in backend.enqueue(jobs)]


def fetched(backend, limit):
    leases = backend.fetch([QUEUE], limit, 60.0)
    backend.ack(leases)
    return [lease.id for lease in leases]


def place(backend):
    return backend._cursors.place(QUEUE)


@pytest.mark.usefixtures("old_transaction")
def test_claims_go_on_behind_the_dead_entries_and_keep_their_order(backend):
    ids = waiting(backend, 9)
    assert fetched(backend, 3) == ids[:3]
    assert place(backend).id == ids[2]
    assert fetched(backend, 3) == ids[3:6]
    assert place(backend).id == ids[5]
    assert fetched(backend, 9) == ids[6:]


@pytest.mark.usefixtures("old_transaction")
def test_a_job_that_comes_to_stand_before_them_is_found_before_the_queue_is_called_empty(backend):
    ids = waiting(backend, 6)
    assert fetched(backend, 3) == ids[:3]
    urgent = waiting(backend, 1, priority=5)
    assert fetched(backend, 3) == ids[3:]
    assert fetched(backend, 3) == urgent
    assert fetched(backend, 3) == []


def test_where_dead_entries_can_be_removed_no_claim_starts_anywhere_else(backend):
    waiting(backend, 100)
    fetched(backend, 100)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM django_jobs_job")
    ids = waiting(backend, 6)
    assert fetched(backend, 3) == ids[:3]
    assert place(backend) is None
    (urgent,) = waiting(backend, 1, priority=5)
    assert fetched(backend, 1) == [urgent]
