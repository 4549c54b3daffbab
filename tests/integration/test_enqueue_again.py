"""A prepared job that is enqueued once more, after all that may have happened to it."""

from __future__ import annotations

from threading import Barrier, Thread
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction

from django_jobs import enqueue_many, job
from django_jobs.backends.base import ResultRecord, Settled
from django_jobs.backends.database import DatabaseBackend
from django_jobs.models import EndedIds, Job, JobResult
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import process_once


@pytest.mark.django_db
def test_a_prepared_job_that_has_been_run_is_not_enqueued_again():
    ran = []

    @job(key="tests.enqueue.once")
    def once(n):
        ran.append(n)

    first, second = once.prepare(1), once.prepare(2)
    assert first.enqueue().created
    while process_once("default"):
        pass
    again, new = enqueue_many([first, second])
    assert (again.id, again.created) == (first.id, False)
    assert (new.id, new.created) == (second.id, True)
    while process_once("default"):
        pass
    assert ran == [1, 2]


@pytest.mark.django_db
def test_a_prepared_job_that_died_is_not_enqueued_again():
    @job(key="tests.enqueue.dies")
    def dies():
        raise ValueError("no")

    prepared = dies.prepare()
    assert prepared.enqueue().created
    assert process_once("default").status == "dead-lettered"
    again = prepared.enqueue()
    assert (again.created, again.status) == (False, "dead")
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "options", [{}, {"unique_key": "one"}, {"unique_key": "one", "on_conflict": "raise"}], ids=str
)
def test_a_prepared_job_without_a_result_is_not_enqueued_again_either(options):
    ran = []

    @job(key="tests.enqueue.bare", result_ttl=0, **options)
    def bare():
        ran.append(1)

    prepared = bare.prepare()
    assert prepared.enqueue().created
    assert not prepared.enqueue().created  # it waits
    assert process_once().status == "acked"
    with transaction.atomic():
        assert not prepared.enqueue().created
    assert not async_to_sync(prepared.aenqueue)().created
    assert process_once().status == "empty"
    assert ran == [1]


@pytest.mark.django_db
def test_a_prepared_job_whose_transaction_was_rolled_back_is_enqueued_again():
    @job(key="tests.enqueue.rolled_back")
    def rolled_back():
        pass

    prepared = rolled_back.prepare()
    with transaction.atomic():
        assert prepared.enqueue().created
        transaction.set_rollback(True)
    assert prepared.enqueue().created
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_that_a_job_without_a_result_has_ended_is_known_for_an_hour(backend, manual):
    ended = [make_outgoing(backend="database") for _ in range(3)]
    foreign = make_outgoing(backend="database")._replace(id=str(uuid4()))
    backend.enqueue([*ended, foreign])
    kept = ResultRecord(status="succeeded", ttl_seconds=1.0)
    backend.ack(leases := backend.fetch(["default"], 9, 30.0), {ended[0].id: kept})
    assert len(leases) == 4
    assert EndedIds.objects.count() == len({one.id[:8] for one in [*ended, foreign]})
    manual.advance(3599)
    backend.clean_up()
    assert not any(one.created for one in backend.push([*ended, foreign]))
    manual.advance(1)
    backend.clean_up()
    assert not EndedIds.objects.exists()
    assert not JobResult.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("life", [3600.0, 86_400.0])
def test_a_result_that_is_kept_for_longer_needs_no_second_note(backend, life):
    record = ResultRecord(status="succeeded", ttl_seconds=life)
    backend.enqueue([make_outgoing(backend="database") for _ in range(3)])
    kept, *bare = backend.fetch(["default"], 3, 30.0)
    backend.ack([kept, bare[0]], {kept.id: record})
    assert " ".join(row.start + row.ids for row in EndedIds.objects.all()) == bare[0].id
    backend.ack(bare[1:], {bare[1].id: record})
    assert EndedIds.objects.count() == 1


def rounds_of_ack_and_push(backend, kept, rounds=40):
    """What came of jobs that were pushed again at the moment of their ack."""
    start, acked, pushed = Barrier(2), [], []
    jobs = [make_outgoing(backend=backend.alias) for _ in range(rounds)]
    backend.enqueue(jobs)
    leases = {lease.id: lease for _ in jobs for lease in backend.fetch(["default"], 1, 30.0)}

    def ack():
        for number, one in enumerate(jobs):
            start.wait(30)
            lease = leases[one.id]
            acked.extend(backend.ack([lease], {one.id: kept} if kept and number % 2 else None))
        connections.close_all()

    beside = Thread(target=ack)
    beside.start()
    for one in jobs:
        start.wait(30)
        pushed += backend.push([one])
    beside.join(30)
    return acked, pushed


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_enqueued_again_while_it_is_acknowledged_is_not_stored_anew():
    backend = DatabaseBackend("database", {})
    kept = ResultRecord(status="succeeded")
    acked, pushed = rounds_of_ack_and_push(backend, kept)
    assert set(acked) == {Settled.SETTLED}
    assert [one.created for one in pushed] == [False] * 40
    assert not Job.objects.exists()
