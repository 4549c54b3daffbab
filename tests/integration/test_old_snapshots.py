"""An enqueue in a transaction of the caller that sees the database as it was a while ago."""

from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_jobs.backends.base import Enqueued, OnConflict, Settled
from django_jobs.backends.database import DatabaseBackend
from django_jobs.exceptions import DuplicateJob
from django_jobs.models import Job
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.django_db(transaction=True)
mysql = pytest.mark.only_on("mariadb", "mysql")
postgresql = pytest.mark.only_on("postgres")


def outgoing(**terms):
    return make_outgoing(backend="database", **terms)


@pytest.fixture
def backend():
    return DatabaseBackend("database", {"NOTIFY": False})


@pytest.fixture
def beside():
    """What is done inside is done by another process's connection."""
    other = connection.copy()

    @contextmanager
    def switched():
        mine = connections["default"]
        connections["default"] = other
        try:
            yield
        finally:
            connections["default"] = mine

    yield switched
    other.close()


@contextmanager
def old_snapshot(level="REPEATABLE READ"):
    """A transaction that has looked at the table, and will see it so until its end."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with transaction.atomic():
            if connection.vendor == "postgresql":
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            assert not Job.objects.exists()
            yield


@mysql
def test_a_holder_that_the_snapshot_does_not_show_is_found(backend, beside):
    holder, mine = outgoing(unique_key="one"), outgoing(unique_key="one")
    with old_snapshot():
        with beside():
            backend.enqueue([holder])
        assert backend.enqueue([mine]) == [Enqueued(holder.id, created=False)]
        assert not Job.objects.exists()  # as it was: the snapshot is an old one
        with pytest.raises(DuplicateJob):
            backend.enqueue([mine], on_conflict=OnConflict.RAISE)


@mysql
def test_a_prepared_job_that_the_snapshot_does_not_show_is_found(backend, beside):
    prepared = outgoing()
    with old_snapshot():
        with beside():
            backend.enqueue([prepared])
        assert backend.enqueue([prepared]) == [Enqueued(prepared.id, created=False)]
        assert backend.push([prepared]) == [Enqueued(prepared.id, created=False)]
    assert Job.objects.count() == 1


@mysql
def test_a_look_for_the_holder_locks_no_job(backend, beside):
    holder = outgoing(unique_key="one")
    with old_snapshot():
        with beside():
            backend.enqueue([holder])
        backend.enqueue([outgoing(unique_key="one")])
        with beside():
            (lease,) = backend.fetch(["default"], 1, 30.0)
            assert lease.id == holder.id


@postgresql
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("terms", [{}, {"unique_key": "one"}], ids=str)
def test_a_conflict_that_the_snapshot_does_not_show_tells_whose_it_is(
    backend, beside, level, terms
):
    prepared = outgoing(**terms)

    def enqueue_both():
        with old_snapshot(level):
            with beside():
                backend.enqueue([prepared])
            backend.enqueue([prepared])

    with pytest.raises(OperationalError, match="could not serialize") as caught:
        enqueue_both()
    (note,) = caught.value.__notes__
    assert "'default'" in note
    assert "Run that whole transaction again" in note


@contextmanager
def repeatable_read_by_default():
    """As a server may be set up, which Django does not know then."""
    words = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL"
    with connection.cursor() as cursor:
        cursor.execute(f"{words} REPEATABLE READ")
        try:
            yield
        finally:
            cursor.execute(f"{words} READ COMMITTED")


@postgresql
def test_a_part_of_a_batch_sees_what_ended_while_the_parts_before_were_stored(backend, beside):
    first, second = outgoing(), outgoing()
    with beside():
        backend.enqueue([second])
        (lease,) = backend.fetch(["default"], 1, 30.0)

    def parts():
        stored = backend.push([first])
        with beside():
            backend.ack([lease])
        return stored + backend.push([second])

    with repeatable_read_by_default():
        stored = backend.as_one(parts)
    assert stored == [Enqueued(first.id, created=True), Enqueued(second.id, created=False)]
    assert [str(pk) for pk in Job.objects.values_list("pk", flat=True)] == [first.id]


@mysql
def test_who_began_to_wait_since_the_snapshot_goes_on_after_the_commit(
    backend, beside, monkeypatch
):
    """The ack of an atomic job, on a site that has asked for repeatable reads."""
    connection.ensure_connection()  # which says what OPTIONS ask for
    monkeypatch.setattr(connection, "isolation_level", "repeatable read")
    with old_snapshot():
        with beside():
            first, second = backend.enqueue([outgoing(concurrency_key="disk") for _ in range(2)])
            (holder,) = backend.fetch(["default"], 1, 30.0)
            assert backend.fetch(["default"], 1, 30.0) == []
        with transaction.atomic():
            assert Job.objects.count() == 0  # as it was
            assert backend.ack([holder]) == [Settled.SETTLED]
        assert holder.id == first.id
    assert [lease.id for lease in backend.fetch(["default"], 2, 30.0)] == [second.id]
