"""A key of another type in one queue keeps nobody from the jobs of the others."""

import threading
import time

import pytest
from django.db import connections

from django_jobs.backends.base import Evidence, Settled
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.operations.queues import limit_queue
from django_jobs.outcome import Interrupted
from django_jobs.telemetry import events
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker.settle import Run, Settler
from django_jobs.worker.settle_many import settle_many
from django_jobs.worker.store import Asker, Outage
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
LEASE_SECONDS = 3
REJECTIONS = 10
WORDS = (
    "ready", "jobs", "state", "later", "leased", "suspects", "stops", "blocked", "dead", "kept",
    "res", "wake", "rate",
)  # fmt: skip
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
    backend.clean_up()
    backend.housekeeping_due()
    backend.next_due_in(["odd", "sound"])
    backend.latest(None)
    assert backend.find(sound[0]) is None
    assert {type(event) for event in told} <= {events.BackendSilent}
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


@pytest.mark.parametrize("word", ["state", "leased"])
def test_leases_of_several_queues_are_renewed_and_settled_though_one_cannot_be(
    backend, spoil, word
):
    put(backend, "odd")
    put(backend, "sound", 3)
    odd, *sound = [*backend.fetch(["odd"], 5, 30.0), *backend.fetch(["sound"], 5, 30.0)]
    spoil("odd", word)
    mixed = [sound[0], odd, *sound[1:]]
    told = [Settled.SETTLED, Settled.UNKNOWN, Settled.SETTLED, Settled.SETTLED]
    assert backend.renew(mixed, 30.0) == told
    assert backend.renew([odd], 30.0) == [Settled.UNKNOWN]
    assert backend.is_connected()  # so it is this one lease that waits, and no outage
    assert backend.ack(mixed) == told
    assert backend.stats("sound").running == 0


def test_a_worker_keeps_the_leases_of_the_other_queues(jobs, start, diary):
    backend = backends["redis"]
    for queue in ("odd", "sound"):
        gang.nap.using(queue=queue).enqueue(str(diary), 2 * LEASE_SECONDS, queue)
    pool = start("-v0", **{**jobs, "LEASE_SECONDS": LEASE_SECONDS})
    until(lambda: {"odd-begins", "sound-begins"} <= set(diary.words))
    client, key = backend.store.connection.client, backend.store.layout.base("odd") + "state"
    client.delete(key)
    client.set(key, "x")
    until(lambda: "sound-ends" in diary.words)
    gang.note.using(queue="sound").enqueue(str(diary), "after")
    until(lambda: "after" in diary.words)
    assert diary.words.count("sound-begins") == 1
    assert pool.process.poll() is None


@pytest.mark.parametrize("count", [1, 3])
def test_a_job_that_went_back_is_not_lost_though_its_start_cannot_be_returned(
    backend, spoil, told, count
):
    limit_queue("broken", {"rate_limit": "20/s"}, by="anna")
    put(backend, "broken", count)
    leases = backend.fetch(["broken"], count, 30.0)
    assert all(lease.start_by for lease in leases)
    spoil("broken", "rate")
    asker = Asker(Settler(backend, get_settings()), Outage("redis"))
    given_back = Interrupted("it was too late", begun=False)
    verdicts = settle_many(asker, [(Run(one, None, 0, 0, 0, 0), given_back) for one in leases])
    assert [(one.status, one.answer) for one in verdicts] == [("requeued", Settled.SETTLED)] * count
    assert backend.stats("broken").ready == count
    assert len(told) == 1


def test_a_hint_of_another_type_is_written_anew(backend, spoil):
    spoil("odd", "wake")
    put(backend, "odd")
    client, key = backend.store.connection.client, backend.store.layout.base("odd") + "wake"
    assert client.lrange(key, 0, -1) == [b"1"]


def test_a_worker_that_waits_is_woken_though_a_hint_is_of_another_type(backend, spoil):
    spoil("odd", "wake")
    woken = []

    def wait():
        woken.append(backend.wait(["odd", "sound"], 15.0))
        connections.close_all()

    waiting = threading.Thread(target=wait)
    began = time.monotonic()
    waiting.start()
    client, key = backend.store.connection.client, backend.store.layout.base("odd") + "wake"
    until(lambda: not client.exists(key))
    put(backend, "sound")
    waiting.join()
    assert woken == [True]
    assert time.monotonic() - began < 10.0


def test_a_set_of_names_of_another_type_is_written_anew(backend):
    client, key = backend.store.connection.client, backend.store.layout.known_queues
    client.rpush(key, "x")
    assert backend.queues_due(0.0) == []
    client.delete(key)
    client.rpush(key, "x")
    (job,) = put(backend, "sound")
    assert backend.store.queues() == ["sound"]
    assert backend.find(job).queue == "sound"


def test_breakers_of_another_type_are_counted_anew(backend):
    client, key = backend.store.connection.client, backend.store.layout.breakers
    client.rpush(key, "x")
    put(backend, "sound")
    (lease,) = backend.fetch(["sound"], 1, 30.0)
    for _ in range(REJECTIONS):
        backend.count_evidence([(lease, Evidence.REFUSED)])
    assert [(one.kind, one.name) for one in backend.open_breakers()] == [("queue", "sound")]


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
