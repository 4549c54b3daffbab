"""What a look misses is cleaned up all the same; after an outage nothing is reaped at once."""

import time

import pytest
from django.db import IntegrityError, transaction

from django_jobs.backends.database import DatabaseBackend
from django_jobs.models import Job, JobKey, JobState, QueueControl
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import duties
from django_jobs.worker.store import Outage
from tests.integration.worker.pool.conftest import until

LEASE = 0.6


@pytest.mark.django_db
def test_a_job_whose_holder_was_removed_by_hand_is_woken_in_a_quiet_store(monkeypatch):
    backend = DatabaseBackend("database", {})
    for _ in range(2):
        backend.enqueue([make_outgoing(backend="database", concurrency_key="disk")])
    (holder,) = backend.fetch(["default"], 2, 30.0)
    waiting = Job.objects.exclude(pk=holder.id)
    assert waiting.get().state == JobState.BLOCKED
    Job.objects.filter(pk=holder.id).delete()
    JobKey.objects.update(keep_until=0)
    quiet = duties.Housekeeping(backend, 30.0)
    quiet.step()
    assert waiting.get().state == JobState.BLOCKED
    monkeypatch.setattr(duties, "CLEAN_UP_SECONDS", 0.0)
    duties.Housekeeping(backend, 30.0).step()
    assert waiting.get().state == JobState.READY
    assert not JobKey.objects.exists()


@pytest.fixture
def lost():
    """A database backend with a job whose lease has ended, and one that has become due."""
    backend = DatabaseBackend("database", {})
    backend.enqueue([make_outgoing(backend="database")])
    backend.fetch(["default"], 1, 0.01)
    backend.enqueue([make_outgoing(backend="database", delay=0.01)])
    until(lambda: backend.housekeeping_due() == (True, True))
    return backend


def states():
    return list(Job.objects.order_by("pk").values_list("state", flat=True))


def away(outage, lease=LEASE):
    """A store that does not answer for so long that a lease may end of it."""
    outage.begins(OSError("gone"))
    until(lambda: outage.seconds > lease / duties.HICCUP_SHARE)


@pytest.mark.django_db
def test_after_an_outage_nothing_is_reaped_for_one_lease_and_the_rest_is_done_at_once(lost):
    outage = Outage("database")
    house = duties.Housekeeping(lost, LEASE, outage)
    away(outage)
    house.step()  # the first answer since, of which nobody has heard yet
    assert states() == [JobState.RUNNING, JobState.READY]
    outage.ends()
    back_at = time.monotonic()
    until(house.step)
    assert time.monotonic() - back_at >= LEASE
    assert states() == [JobState.READY, JobState.READY]


@pytest.mark.django_db
def test_after_an_outage_reaping_by_hand_reaps_all_the_same(lost):
    outage = Outage("database")
    duties.Housekeeping(lost, LEASE, outage)
    away(outage)
    outage.ends()
    assert lost.reap_expired() == 1


@pytest.mark.django_db
def test_a_connection_that_breaks_again_and_again_puts_no_reaping_off(lost):
    outage = Outage("database")
    house = duties.Housekeeping(lost, 300.0, outage)
    outage.begins(OSError("gone"))
    outage.ends()
    outage.begins(OSError("gone"))
    assert house.step()
    assert states() == [JobState.READY, JobState.READY]


@pytest.mark.django_db
def test_a_broken_connection_after_an_outage_does_not_end_the_pause(lost):
    lease = 20 * LEASE  # this process may be held up for long between two lines
    outage = Outage("database")
    house = duties.Housekeeping(lost, lease, outage)
    away(outage, lease)
    outage.ends()
    outage.begins(OSError("gone"))
    outage.ends()
    house.step()
    assert states() == [JobState.RUNNING, JobState.READY]


@pytest.mark.django_db
def test_what_the_store_refuses_again_and_again_puts_no_reaping_off(lost):
    outage = Outage("database")
    house = duties.Housekeeping(lost, LEASE, outage)
    QueueControl.objects.create(backend="database", queue="one")
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        QueueControl.objects.create(backend="database", queue="one")
    outage.begins(refused.value)
    time.sleep(LEASE / duties.HICCUP_SHARE)
    assert house.step()
    assert states() == [JobState.READY, JobState.READY]
