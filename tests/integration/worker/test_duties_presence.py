"""A worker's row: there while it runs, refreshed, and gone after it."""

import os

import pytest

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import SECOND, ManualClock
from django_jobs.db.clock import StoreClock
from django_jobs.models import Worker
from django_jobs.worker import duties
from django_jobs.worker.duties import FORGOTTEN_AFTER_SECONDS, Presence

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def backend(clock):
    backend = DatabaseBackend("database", {})
    backend.clock = StoreClock(clock)
    return backend


def test_it_registers_refreshes_and_leaves(backend, clock, monkeypatch):
    worker = Presence(backend, "mail,default")
    worker.write()
    row = Worker.objects.get()
    assert (row.backend, row.pid, row.queues) == ("database", os.getpid(), "mail,default")
    assert (row.processes, row.seen) == (0, clock.now())

    clock.advance(20)
    worker.write()
    assert Worker.objects.get().seen == row.seen, "it was told again too early"
    monkeypatch.setattr(duties, "SEEN_EVERY_SECONDS", 0.0)
    worker.write()
    assert Worker.objects.get().seen == row.seen + 20 * SECOND
    worker.end()
    assert not Worker.objects.exists()


def test_a_row_that_somebody_removed_comes_back(backend, monkeypatch):
    monkeypatch.setattr(duties, "SEEN_EVERY_SECONDS", 0.0)
    worker = Presence(backend, "")
    worker.write()
    Worker.objects.all().delete()
    worker.write()
    assert Worker.objects.count() == 1


def test_those_that_were_killed_are_forgotten_in_time(backend, clock):
    Presence(backend, "killed").write()
    clock.advance(FORGOTTEN_AFTER_SECONDS - 1)
    Presence(backend, "second").write()
    assert Worker.objects.count() == 2
    clock.advance(2)
    Presence(backend, "third").write()
    assert set(Worker.objects.values_list("queues", flat=True)) == {"second", "third"}


def test_where_the_store_is_no_database_it_is_silent():
    worker = Presence(MemoryBackend("memory", {}), "default")
    worker.write()
    worker.end()
    assert not Worker.objects.exists()


def test_to_be_seen_takes_one_round_trip_and_seldom_while_nothing_runs(
    backend, monkeypatch, django_assert_num_queries
):
    running = [1]
    worker = Presence(backend, "", running=lambda: running[0])
    worker.write()
    monkeypatch.setattr(duties, "SEEN_EVERY_SECONDS", 0.0)
    with django_assert_num_queries(1):
        worker.write()
    Worker.objects.update(draining=True)
    worker.write()
    assert worker.draining
    monkeypatch.setattr(duties, "SEEN_EVERY_SECONDS", 1e-9)
    monkeypatch.setattr(duties, "IDLE_FACTOR", 1e12)
    running[0] = 0
    with django_assert_num_queries(0):
        worker.write()


def test_the_duties_of_a_worker_are_told_by_the_look_for_work(backend, django_assert_num_queries):
    backend.clock = StoreClock()  # from one that a test moves by hand nothing is reckoned on
    with django_assert_num_queries(1):
        assert backend.wait(None, 0.0) is False
        assert not backend.housekeeping_due().reap
    with django_assert_num_queries(1):  # what was acted on is looked at anew
        backend.housekeeping_due()
