"""What travels to a script and back in few texts arrives as it went, however much it is."""

import pytest

from django_jobs import enqueue_many, job
from django_jobs.backends.base import Settled
from django_jobs.backends.redis.enqueueing import RUN_JOBS
from django_jobs.backends.registry import backends
from django_jobs.testing.factories import make_outgoing

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]

LARGE = "é" * 40_000


@job(key="batches.nothing")
def nothing(*_values):
    pass


def fetched(count, queue="default"):
    found = []
    while leases := backends["redis"].fetch([queue], count - len(found), 30.0):
        found += leases
    return found


def test_large_jobs_are_enqueued_and_leased_at_once(backend):
    handles = enqueue_many([nothing.using(name="large").prepare(LARGE[n:]) for n in range(20)])
    leases = fetched(20)
    assert [lease.id for lease in leases] == [handle.id for handle in handles]
    assert {lease.message.index["name"] for lease in leases} == {"large"}
    assert [len(lease.message.body) for lease in leases] == sorted(
        (len(lease.message.body) for lease in leases), reverse=True
    )


def test_more_jobs_than_lua_takes_at_once_keep_their_order(backend):
    handles = enqueue_many([nothing.prepare(n) for n in range(2 * RUN_JOBS + 1)])
    assert all(handle.created for handle in handles)
    assert [one.id for one in fetched(len(handles))] == [handle.id for handle in handles]


def test_a_batch_of_jobs_that_differ_in_everything_stores_each_as_it_is(backend):
    messages = [
        make_outgoing(
            backend="redis",
            queue=f"queue-{n % 3}",
            priority=n % 5,
            name=f"Müller's {n}",
            tenant="t" * n or None,
            unique_key=f"key-{n}" if n % 2 else None,
        )
        for n in range(30)
    ]
    assert [one.created for one in backend.enqueue(messages)] == [True] * 30
    found = {one.id: one for n in range(3) for one in fetched(30, f"queue-{n}")}
    for message in messages:
        lease = found.pop(message.id)
        index = lease.message.index
        assert (lease.message.body, lease.message.signature) == (message.body, message.signature)
        assert (index["name"], index["tenant"]) == (message.terms.name, message.terms.tenant)
        assert (lease.queue, index["rank"]) == (message.terms.queue, -message.terms.priority)
    assert not found


def test_an_id_that_comes_twice_in_a_batch_is_stored_once(backend):
    first, second = (make_outgoing(backend="redis") for _ in range(2))
    answers = backend.enqueue([first, second, first])
    assert [one.created for one in answers] == [True, True, False]
    assert [one.id for one in answers] == [first.id, second.id, first.id]
    assert len(fetched(9)) == 2


def test_jobs_that_are_given_back_cost_one_call(backend):
    enqueue_many([nothing.prepare(n) for n in range(50)])
    leases = fetched(50)
    client = backend.store.connection.client
    client.config_resetstat()
    assert backend.nack_all(leases) == [Settled.SETTLED] * 50
    calls = client.info("commandstats")
    # A server that does not know the script yet is told it.
    assert sum(told["calls"] for name, told in calls.items() if "eval" in name) <= 2
    assert [one.id for one in fetched(50)] == [one.id for one in leases]
