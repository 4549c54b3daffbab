"""What travels to a script and back in few texts arrives as it went, however much it is."""

import pytest

from django_jobs import enqueue_many, job
from django_jobs.backends.base import OnConflict, Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.redis.enqueue import RUN_JOBS
from django_jobs.backends.registry import backends
from django_jobs.exceptions import DuplicateJob, EnqueueOutcomeUnknown, StoreUnavailable
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


# ------------------------------------------------------- more than one script may store


@pytest.fixture
def in_tens(monkeypatch):
    """Let no script store more than ten jobs."""
    monkeypatch.setattr("django_jobs.backends.redis.enqueue.AT_ONCE", 10)


@pytest.fixture
def sizes(backend, monkeypatch):
    """The scripts that store jobs, and the bytes that each was given."""
    found, run_on = [], backend.store.run_on

    def noted(name, queues, args):
        if name in {"enqueue", "enkeyed"}:
            found.append(sum(len(text) for text in args if isinstance(text, bytes)))
        return run_on(name, queues, args)

    monkeypatch.setattr(backend.store, "run_on", noted)
    return found


def before_the_second_step(backend, monkeypatch, work):
    """Do something when a first script has stored its jobs."""
    run_on, seen = backend.store.run_on, []

    def interrupted(name, queues, args):
        if name in {"enqueue", "enkeyed"}:
            seen.append(name)
            if len(seen) == 2:
                work()
        return run_on(name, queues, args)

    monkeypatch.setattr(backend.store, "run_on", interrupted)


def outgoing(count, **terms):
    return [make_outgoing(backend="redis", **terms) for _ in range(count)]


def test_a_large_batch_is_stored_by_several_scripts_and_keeps_its_order(backend, in_tens, sizes):
    handles = enqueue_many([nothing.prepare(n) for n in range(25)])
    assert [handle.created for handle in handles] == [True] * 25
    assert len(sizes) == 3
    assert [one.id for one in fetched(25)] == [handle.id for handle in handles]


def test_no_script_is_given_more_bytes_than_it_may_hold_others_up_for(backend, sizes, monkeypatch):
    monkeypatch.setattr("django_jobs.backends.redis.enqueue.BYTES_AT_ONCE", 100_000)
    messages = [
        make_outgoing(payload={"args": ["x" * n * 10_000]}, backend="redis") for n in range(15)
    ]
    assert all(one.created for one in backend.enqueue(messages))
    assert len(sizes) > 9
    assert max(sizes) < 150_000  # one that is larger goes alone
    assert [one.id for one in fetched(15)] == [one.id for one in messages]


def test_a_batch_that_a_full_server_refuses_half_way_is_taken_back(
    own_server, in_tens, monkeypatch
):
    backend = RedisBackend("redis", {"URL": own_server.url})
    before_the_second_step(
        backend, monkeypatch, lambda: own_server.client.config_set("maxmemory", "1mb")
    )
    messages = outgoing(25)
    with pytest.raises(StoreUnavailable, match="no memory left") as refused:
        backend.enqueue(messages)
    assert refused.value.undone
    assert backend.queues() == []
    own_server.client.config_set("maxmemory", "0")
    assert all(one.created for one in backend.enqueue(messages))


def test_a_batch_of_which_some_run_when_the_rest_is_refused_is_of_unknown_outcome(
    own_server, in_tens, monkeypatch
):
    backend = RedisBackend("redis", {"URL": own_server.url})
    taken = []

    def work():
        taken.extend(backend.fetch(["default"], 1, 30.0))
        own_server.client.config_set("maxmemory", "1mb")

    before_the_second_step(backend, monkeypatch, work)
    messages = outgoing(25)
    with pytest.raises(EnqueueOutcomeUnknown) as unknown:
        backend.enqueue(messages)
    assert unknown.value.prepared == messages
    assert backend.ack(taken) == [Settled.SETTLED]
    own_server.client.config_set("maxmemory", "0")
    made = [one.created for one in backend.enqueue(messages)]
    assert made == [False] + [True] * 24


def test_a_key_that_the_last_part_of_a_batch_finds_taken_leaves_nothing_of_it(backend, in_tens):
    backend.enqueue(outgoing(1, unique_key="taken"))
    messages = [*outgoing(20), *outgoing(1, unique_key="taken")]
    with pytest.raises(DuplicateJob):
        backend.enqueue(messages, on_conflict=OnConflict.RAISE)
    assert backend.stats("default").ready == 1


def test_a_job_that_has_run_is_not_taken_back_with_a_refused_batch(backend, in_tens, monkeypatch):
    backend.enqueue(outgoing(1, unique_key="taken"))
    messages = [*outgoing(20, queue="others"), *outgoing(1, unique_key="taken")]

    def fails():
        (lease,) = backend.fetch(["others"], 1, 30.0)
        assert backend.nack(lease) is Settled.SETTLED

    before_the_second_step(backend, monkeypatch, fails)
    with pytest.raises(EnqueueOutcomeUnknown):
        backend.enqueue(messages, on_conflict=OnConflict.RAISE)
    (lease,) = fetched(9, "others")
    assert (lease.id, lease.message.header.attempts) == (messages[0].id, 1)


def test_a_refused_batch_that_cannot_be_taken_back_is_of_unknown_outcome(
    own_server, in_tens, monkeypatch
):
    backend = RedisBackend("redis", {"URL": own_server.url, "TIMEOUT": 1.0})
    backend.enqueue(outgoing(1, unique_key="taken"))
    run_on = backend.store.run_on

    def dies(name, queues, args):
        if name == "takeback":
            own_server.kill()
        return run_on(name, queues, args)

    monkeypatch.setattr(backend.store, "run_on", dies)
    with pytest.raises(EnqueueOutcomeUnknown):
        backend.enqueue(
            [*outgoing(10), *outgoing(1, unique_key="taken")], on_conflict=OnConflict.RAISE
        )


def test_no_job_is_lost_that_a_refused_batch_had_replaced(own_server, in_tens, monkeypatch):
    backend = RedisBackend("redis", {"URL": own_server.url})
    backend.enqueue(outgoing(1, unique_key="report"))
    before_the_second_step(
        backend, monkeypatch, lambda: own_server.client.config_set("maxmemory", "1mb")
    )
    messages = [*outgoing(1, unique_key="report"), *outgoing(20)]
    with pytest.raises(EnqueueOutcomeUnknown):
        backend.enqueue(messages, on_conflict=OnConflict.REPLACE)
    own_server.client.config_set("maxmemory", "0")
    assert fetched_from(backend, 1) == [messages[0].id]
    assert [one.created for one in backend.enqueue(messages)] == [False] * 10 + [True] * 11


def fetched_from(backend, count):
    return [lease.id for lease in backend.fetch(["default"], count, 30.0)]
