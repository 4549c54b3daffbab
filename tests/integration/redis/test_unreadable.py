"""A key of another type in one queue keeps nobody from the jobs of the others."""

import pytest

from django_jobs.telemetry import trouble_events
from django_jobs.testing.factories import make_outgoing

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db]
WORDS = ("ready", "jobs", "state", "later", "leased", "suspects", "stops", "dead", "kept", "res")
any_word = pytest.mark.parametrize("word", WORDS)


@pytest.fixture
def told(monkeypatch):
    told = []
    monkeypatch.setattr("django_jobs.backends.redis.store.emit", told.append)
    return told


@pytest.fixture
def spoil(backend):
    """Write a text where a queue has something else; its jobs are gone then."""

    def spoil(queue, word):
        backend.store.announce([queue])
        key = backend.store.layout.base(queue) + word
        client = backend.store.connection.client
        client.delete(key)
        client.set(key, "x")

    return spoil


def put(backend, queue, count=1, **terms):
    messages = [make_outgoing(queue, backend="redis", **terms) for _ in range(count)]
    return [stored.id for stored in backend.enqueue(messages)]


@any_word
def test_the_others_are_claimed_settled_and_kept_house_of(backend, spoil, told, word):
    put(backend, "odd", 2)
    sound = put(backend, "sound", 2)
    spoil("odd", word)
    leases = [one for _ in range(3) for one in backend.fetch(["odd", "sound"], 5, 30.0)]
    assert {lease.id for lease in leases if lease.queue == "sound"} == set(sound)
    mine = [lease for lease in leases if lease.queue == "sound"]
    assert {answer.value for answer in backend.renew(mine, 30.0)} == {"settled"}
    assert {answer.value for answer in backend.ack(mine)} == {"settled"}
    backend.reap_expired()
    backend.tidy()
    backend.chores()
    backend.next_due_in(["odd", "sound"])
    backend.latest(None)
    assert backend.find(sound[0]) is None
    assert {type(event) for event in told} <= {trouble_events.BackendSilent}
    assert {event.queue for event in told} <= {"odd"}


def test_it_is_told_once_and_the_queue_left_alone_for_a_while(backend, spoil, told):
    put(backend, "odd")
    spoil("odd", "ready")
    for _ in range(3):
        assert backend.fetch(["odd"], 5, 30.0) == []
    (event,) = told
    assert (event.backend, event.queue) == ("redis", "odd")
    assert backend.store.readable(["odd", "sound"]) == ["sound"]


def test_what_was_to_be_leased_stays_where_it_is(backend, spoil, told):
    jobs = put(backend, "odd", 2)
    spoil("odd", "leased")
    assert backend.fetch(["odd"], 5, 30.0) == []
    backend.store.connection.client.delete(backend.store.layout.base("odd") + "leased")
    backend.store._left_until.clear()
    assert [lease.id for lease in backend.fetch(["odd"], 5, 30.0)] == jobs
    assert len(told) == 1


def test_a_holder_of_a_key_is_settled_though_another_queue_cannot_be_told(backend, spoil):
    holder = put(backend, "sound", concurrency_key="k")
    put(backend, "odd", concurrency_key="k")
    (lease,) = backend.fetch(["sound"], 1, 30.0)
    assert [lease.id] == holder
    assert backend.fetch(["odd"], 1, 30.0) == []
    spoil("odd", "jobs")
    assert [answer.value for answer in backend.ack([lease])] == ["settled"]


@pytest.mark.parametrize("name", ["fence", "breakers"])
def test_what_all_queues_share_is_written_anew_or_counts_as_empty(backend, name):
    layout = backend.store.layout
    backend.store.connection.client.rpush(f"{layout.guards('sound')}{name}", "x")
    jobs = put(backend, "sound", single_instance="s")
    assert [lease.id for lease in backend.fetch(["sound"], 5, 30.0)] == jobs


def test_an_error_of_the_server_is_raised(backend):
    client = backend.store.connection.client
    client.execute_command("ACL", "SETUSER", "default", "-zrange", "-evalsha", "-eval")
    try:
        with pytest.raises(Exception, match="permissions"):
            backend.fetch(["sound"], 5, 30.0)
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+@all")


@any_word
def test_the_others_are_found_by_who_asks_where_something_is_due(backend, spoil, told, word):
    put(backend, "sound")
    put(backend, "odd", delay=3600)
    spoil("odd", word)
    assert "sound" in backend.queues_due(0.0)
