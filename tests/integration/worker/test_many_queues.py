"""A queue per tenant, each with a job for tomorrow: what a worker does grows with none of them."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database.keys import Forgotten
from django_jobs.conf import get_settings
from django_jobs.models import Job, JobState
from django_jobs.worker.queues import InTurn
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db


@pytest.fixture
def store():
    return DatabaseBackend("database", {})


def tenants(store, count):
    for n in range(count):
        put(store, queue=f"tenant-{n:03}", delay=86_400.0)
    put(store, 9, queue="zz")


def statements(work):
    with CaptureQueriesContext(connection) as sent:
        work()
    return len(sent)


def in_turn(store):
    order = InTurn(store, get_settings())
    order.next()
    return order


def costs(store):
    """The statements of what a worker does again and again."""
    order = in_turn(store)

    def fetch():
        for _ in range(3):
            assert store.fetch(order.next(), 1, 30.0)

    return {
        "fetch": statements(fetch),
        "look": statements(lambda: store.wait(None, 0.0)),
        "housekeeping_due": statements(store.housekeeping_due),
        "names": statements(store.queues),
        "names with work": statements(lambda: store.queues_due(float("inf"))),
        "clean_up": statements(store.clean_up),
        "reap": statements(store.reap_expired),
    }


def test_a_worker_asks_no_more_beside_a_hundred_queues_than_beside_five(store):
    tenants(store, 5)
    few = costs(store)
    tenants(store, 100)
    many = costs(store)
    # Limits and breakers may be looked at again in the middle of either.
    assert {name: max(many[name] - 2, few[name]) for name in few} == few
    assert (few["look"], few["names"], few["names with work"]) == (1, 1, 1)


def test_only_queues_in_which_something_is_due_are_named(backend, manual):
    put(backend, queue="ready")
    put(backend, queue="soon", delay=5.0)
    put(backend, queue="tomorrow", delay=86_400.0)
    put(backend, queue="of-another", backend="another")
    put(backend, queue="runs")
    assert backend.fetch(["runs"], 1, 30.0)
    assert sorted(backend.queues_due(0.0)) == ["ready"]
    manual.advance(5)
    assert sorted(backend.queues_due(0.0)) == ["ready", "soon"]
    assert backend.queues() == ["of-another", "ready", "runs", "soon", "tomorrow"]


def test_one_that_is_closed_for_a_moment_is_named_all_the_same(backend):
    put(backend, queue="limited")
    backend._closed.shut("limited", 0.5, "rate-limited")
    assert backend.queues_due(0.0) == ["limited"]
    assert 0 < backend.next_due_in(["limited"]) <= 0.5
    assert backend.wait(None, 0.0) is False


def test_a_look_is_enough_for_who_asks_for_nothing_newer(store):
    put(store, queue="one")
    store.wait(None, 0.0)
    put(store, queue="two")
    assert store.queues_due(0.0) == ["one"]
    assert sorted(store.queues_due(float("inf"))) == ["one", "two"]


def test_a_job_in_a_queue_that_had_none_is_found(store):
    tenants(store, 20)
    order = in_turn(store)
    (new,) = put(store, queue="tenant-007", priority=9)
    order.poll_again()
    seen = {lease.id for _ in range(3) for lease in store.fetch(order.next(), 1, 30.0)}
    assert new in seen


def test_tidying_finds_what_is_due_and_who_waits_in_whatever_queue(backend, manual):
    for n in range(12):
        put(backend, queue=f"tenant-{n}", delay=5.0)
    manual.advance(6)
    assert backend.clean_up() == 12
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.READY}
    put(backend, 2, queue="keyed", concurrency_key="k")
    (lease,) = backend.fetch(["keyed"], 1, 30.0)
    assert backend.fetch(["keyed"], 1, 30.0) == []
    Job.objects.filter(pk=lease.id).delete()  # by other means
    backend.clean_up()
    assert len(backend.fetch(["keyed"], 1, 30.0)) == 1


def test_one_step_of_tidying_that_fails_keeps_the_others_from_nothing(backend, manual, monkeypatch):
    put(backend, delay=5.0)
    manual.advance(6)

    def spoiled(*_):
        raise ValueError("a key that nobody can read")

    monkeypatch.setattr(Forgotten, "wake", spoiled)
    with pytest.raises(ValueError, match="nobody can read"):
        backend.clean_up()
    assert Job.objects.get().state == JobState.READY
