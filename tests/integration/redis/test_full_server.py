"""A Redis without memory left: what waits runs and ends, makes room, and nothing is charged."""

import signal

import pytest

from django_jobs import enqueue_many
from django_jobs.backends.base import AttemptRecord, Charge, Failure, ResultRecord, Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.registry import backends
from django_jobs.exceptions import StoreUnavailable
from django_jobs.models import FailedJob
from django_jobs.telemetry.events import RecordsDropped
from django_jobs.testing.factories import make_outgoing
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
RESULT = ResultRecord("succeeded", value_json='"' + "v" * 500 + '"', ttl_seconds=3600.0)
ATTEMPT = AttemptRecord(number=1, outcome="failed", started_at=1, finished_at=2, traceback="t")


def backend_on(server):
    return RedisBackend("redis", {"URL": server.url, "TIMEOUT": 2.0})


def put(backend, count=1, size=0):
    payload = {"args": ["x" * size], "kwargs": {}}
    return backend.enqueue([make_outgoing(payload=payload, backend="redis") for _ in range(count)])


def take(backend, count=1000):
    return backend.fetch(["default"], count, 30.0)


def fill(server):
    """Let the server be as full as it can be."""
    server.client.config_set("maxmemory", "1mb")


def is_full(backend):
    try:
        put(backend)
    except StoreUnavailable:
        return True
    return False


@pytest.fixture
def events(monkeypatch):
    found = []
    monkeypatch.setattr("django_jobs.backends.redis.store.emit", found.append)
    return found


def test_a_worker_that_meets_a_full_server_runs_and_ends_what_waits(
    own_server, own_jobs, start, diary
):
    enqueue_many([gang.note.prepare(str(diary), f"n{number}") for number in range(30)])
    fill(own_server)
    with pytest.raises(StoreUnavailable, match="no memory left"):
        gang.note.enqueue(str(diary))
    pool = start("-v0", **own_jobs)
    until(lambda: backends["redis"].queues() == [])
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert sorted(diary.words) == sorted(f"n{number}" for number in range(30))
    assert not FailedJob.objects.exists()


def test_jobs_that_end_make_room_for_new_ones(own_server):
    backend = backend_on(own_server)
    put(backend, 3000)
    used = own_server.client.info("memory")["used_memory"]
    own_server.client.config_set("maxmemory", used - 100_000)
    assert is_full(backend)
    for _ in range(3):
        leases = take(backend)
        results = {lease.id: RESULT for lease in leases}
        assert set(backend.ack(leases, results)) == {Settled.SETTLED}
    assert not is_full(backend)


def test_a_job_ends_without_its_result_where_there_is_no_room_for_it(own_server, events):
    backend = backend_on(own_server)
    put(backend, 3)
    first, second, third = take(backend)
    fill(own_server)
    for lease in (first, second):
        assert backend.ack([lease], {lease.id: RESULT}) == [Settled.SETTLED]
        assert backend.result(lease.id) is None
        assert backend.find(lease.id) is None
    (event,) = events  # and not one for each job
    assert type(event) is RecordsDropped
    assert (event.backend, event.queue) == ("redis", "default")
    assert "no memory left" in str(event.error)
    own_server.client.config_set("maxmemory", "0")
    assert backend.ack([third], {third.id: RESULT}) == [Settled.SETTLED]
    assert backend.result(third.id).status == "succeeded"


def test_a_retry_is_counted_there_and_its_record_left_out(own_server, events):
    backend = backend_on(own_server)
    put(backend)
    (lease,) = take(backend)
    fill(own_server)
    assert backend.nack(lease, 0, charge=Charge.ATTEMPT, attempt=ATTEMPT) is Settled.SETTLED
    (again,) = take(backend)
    assert again.message.header.attempts == 1
    assert backend.account(again.id).attempts == ()
    assert len(events) == 1


def test_a_dead_letter_is_kept_there_whole(own_server, events):
    backend = backend_on(own_server)
    put(backend)
    (lease,) = take(backend)
    fill(own_server)
    failure = Failure(reason="exhausted", traceback="where", charge=Charge.ATTEMPT, attempt=ATTEMPT)
    assert backend.abandon(lease, failure) is Settled.SETTLED
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.traceback, dead.attempts) == ("exhausted", "where", 1)
    assert len(events) == 1


def test_where_there_is_room_a_settle_takes_one_script(own_server):
    backend = backend_on(own_server)
    put(backend, 2)
    backend.ack(take(backend, 1), {})
    (lease,) = take(backend)
    backend.ack([lease], {lease.id: RESULT})  # the server knows each script now
    put(backend)
    (lease,) = take(backend)
    own_server.client.config_resetstat()
    assert backend.ack([lease], {lease.id: RESULT}) == [Settled.SETTLED]
    calls = own_server.client.info("commandstats")
    assert sum(one["calls"] for name, one in calls.items() if "eval" in name) == 1


# ---------------------------------------------------------------- the names of queues


def test_an_enqueue_is_found_at_once_after_the_server_came_back_empty(own_server):
    backend = backend_on(own_server)
    put(backend)
    own_server.client.flushall()
    put(backend)
    assert backend.queues() == ["default"]
    assert backend.queues_due(0.0) == ["default"]


def test_an_enqueue_is_one_call_and_names_each_of_its_queues(own_server):
    backend = backend_on(own_server)
    put(backend)
    own_server.client.config_resetstat()
    queues = ["a", "mail.out", "x" * 60]
    backend.enqueue([make_outgoing(queue, backend="redis") for queue in queues])
    keyed = make_outgoing("keyed", backend="redis", unique_key="one")
    backend.enqueue([keyed])
    backend.push([make_outgoing("pushed", backend="redis")])
    calls = own_server.client.info("commandstats")
    # A server that does not know a script yet is told it.
    assert sum(one["calls"] for name, one in calls.items() if "eval" in name) <= 4
    assert backend.queues() == sorted(["default", *queues, "keyed", "pushed"])
    assert own_server.client.smembers(backend.store.layout.known_queues) == {
        name.encode() for name in backend.queues()
    }


def test_a_queue_that_gave_a_job_is_named_again_where_its_name_was_lost(own_server):
    backend = backend_on(own_server)
    put(backend, 2)
    own_server.client.delete(backend.store.layout.known_queues)
    take(backend, 1)
    assert backend.queues() == ["default"]
    assert backend_on(own_server).queues() == ["default"]
