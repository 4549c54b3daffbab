"""Redis is killed, filled, demoted and cut off; the same process goes on, and nothing is lost."""

import signal
import threading
from collections import Counter

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_jobs import enqueue_many
from django_jobs.backends.base import Failure, Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.registry import backends
from django_jobs.exceptions import EnqueueOutcomeUnknown, StoreUnavailable
from django_jobs.testing.factories import make_outgoing
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang
from tests.redis_servers import running

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


def backend_on(server, **options):
    return RedisBackend("redis", {"URL": server.url, "TIMEOUT": 2.0, **options})


def put(backend, count=1):
    messages = [make_outgoing(backend="redis") for _ in range(count)]
    return [one.id for one in backend.enqueue(messages)]


def take(backend, count=1):
    return backend.fetch(["default"], count, 30.0)


# ---------------------------------------------------------------------- the server dies


def test_what_was_enqueued_leased_and_acked_survives_a_killed_server(own_server):
    backend = backend_on(own_server)
    ids = put(backend, 30)
    done, running = take(backend, 10), take(backend, 10)
    backend.ack(done)
    dead = running.pop()
    assert backend.store.run("abandon", "default", [dead.id, dead.token, "nothing", "", "{}", 0])
    own_server.kill()
    own_server.start()
    assert backend.ack(running[:3]) == [Settled.SETTLED] * 3
    assert [lease.id for lease in take(backend, 30)] == ids[20:]
    assert backend.stats("default").running == 16
    assert backend.result(dead.id).status == "dead"


def test_a_worker_outlives_servers_that_are_killed_and_every_job_ends(
    own_server, own_jobs, start, diary
):
    settings = {**own_jobs, "LEASE_SECONDS": 6}
    enqueue_many([gang.nap.prepare(str(diary), 0.02, f"n{number}") for number in range(150)])
    pool = start("-v0", **settings)
    for wanted in (20, 120):
        until(lambda wanted=wanted: len(diary.words) >= wanted)
        own_server.kill()
        own_server.start()
    until(lambda: backends["redis"].queues() == [], patience=60.0)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    ended = Counter(word for word in diary.words if word.endswith("-ends"))
    assert set(ended) == {f"n{number}-ends" for number in range(150)}


def test_an_outage_is_never_an_empty_queue(own_server):
    backend = backend_on(own_server)
    (kept,) = put(backend)
    own_server.kill()
    for ask in (
        lambda: take(backend),
        lambda: backend.wait(["default"], 0.1),
        lambda: backend.stats("default"),
        backend.housekeeping_due,
        lambda: backend.find(kept),
        lambda: backend.result(kept),
    ):
        with pytest.raises(StoreUnavailable):
            ask()
    with pytest.raises(StoreUnavailable) as refused:
        put(backend)
    assert refused.value.undone
    own_server.start()
    assert [lease.id for lease in take(backend)] == [kept]


def test_an_enqueue_that_got_no_answer_may_be_repeated(own_server):
    backend = backend_on(own_server, TIMEOUT=0.3)
    put(backend)
    message = make_outgoing(backend="redis")
    own_server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(EnqueueOutcomeUnknown) as unknown:
        backend.enqueue([message])
    assert unknown.value.prepared == [message]
    own_server.process.send_signal(signal.SIGCONT)
    backend.enqueue([message])
    assert sorted(lease.id for lease in take(backend, 9)).count(message.id) == 1
    assert take(backend, 9) == []


def test_what_a_claim_took_that_got_no_answer_goes_back_uncharged(own_server):
    backend = backend_on(own_server, TIMEOUT=0.3)
    kept = put(backend)
    backend.ack(take(backend))  # the server knows the script now
    ids = put(backend, 3)
    own_server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(StoreUnavailable):
        take(backend, 9)
    own_server.process.send_signal(signal.SIGCONT)
    until(lambda: backend.stats("default").running == 3)
    leases = take(backend, 9)
    assert [lease.id for lease in leases] == ids
    assert {lease.message.header.deliveries for lease in leases} == {1}
    assert kept[0] not in ids


def test_what_was_claimed_when_the_step_after_it_fails_goes_back_uncharged(own_server, monkeypatch):
    backend = backend_on(own_server)
    (job_id,) = put(backend)
    breakers = backend._claims.breakers
    admit = breakers.admit

    def fails(_leases):
        raise StoreUnavailable("the server went away", answered=True, undone=True)

    monkeypatch.setattr(breakers, "admit", fails)
    with pytest.raises(StoreUnavailable):
        take(backend)
    monkeypatch.setattr(breakers, "admit", admit)
    backend.return_unanswered()
    stats = backend.stats("default")
    assert (stats.ready, stats.running, stats.suspect) == (1, 0, 0)
    assert [lease.id for lease in take(backend)] == [job_id]


def test_a_settle_that_got_no_answer_says_so_and_counts_once(own_server):
    backend = backend_on(own_server, TIMEOUT=0.3)
    put(backend, 3)
    first, second, third = take(backend, 3)
    backend.ack([third])  # the server knows the script now
    own_server.process.send_signal(signal.SIGSTOP)
    assert backend.ack([first, second]) == [Settled.UNKNOWN] * 2
    assert backend.nack(first) is Settled.UNKNOWN
    own_server.process.send_signal(signal.SIGCONT)
    until(lambda: backend.stats("default").running == 0)
    assert backend.ack([first]) == [Settled.LOST]


def test_a_dropped_connection_is_followed_by_another(own_server):
    backend = backend_on(own_server)
    put(backend, 20)
    for _ in range(10):
        own_server.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        until(lambda: _taken(backend))
    assert backend.stats("default").ready == 10


def _taken(backend):
    try:
        return take(backend)
    except StoreUnavailable:
        return []


def test_a_waiting_worker_hears_of_an_outage(own_server):
    backend = backend_on(own_server)
    put(backend)
    take(backend)
    heard = []

    def wait():
        try:
            heard.append(backend.wait(["default"], 30.0))
        except StoreUnavailable as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    own_server.until(lambda client: any(one["cmd"] == "blpop" for one in client.client_list()))
    own_server.kill()
    thread.join(20)
    assert isinstance(heard[0], StoreUnavailable)


def test_an_enqueue_whose_answer_came_too_late_says_that_it_made_its_job():
    with running("--enable-debug-command", "local") as server:
        backend = backend_on(server, TIMEOUT=1.0)
        put(backend)  # the server knows the script now, and takes it as soon as it wakes
        asleep = redis.Redis(port=server.port, socket_timeout=20.0)
        thread = threading.Thread(target=asleep.execute_command, args=["DEBUG", "SLEEP", "1.5"])
        thread.start()
        until(lambda: not _answers_within(server, 0.1))
        (stored,) = backend.enqueue([message := make_outgoing(backend="redis")])
        thread.join(20)
        assert (stored.id, stored.created) == (message.id, True)
        assert backend.stats("default").ready == 2


def _answers_within(server, seconds):
    once = Retry(NoBackoff(), 0)
    with redis.Redis(port=server.port, socket_timeout=seconds, retry=once) as client:
        try:
            return client.ping()
        except redis.RedisError:
            return False


def test_ten_thousand_leases_are_settled_at_once(backend):
    put(backend, 10_000)
    leases = [lease for _ in range(10) for lease in take(backend, 1000)]
    assert len(leases) == 10_000
    assert set(backend.renew(leases, 60.0)) == {Settled.SETTLED}
    assert set(backend.ack(leases)) == {Settled.SETTLED}
    assert backend.queues() == []


# ---------------------------------------------------------------------- it refuses


def test_scripts_that_the_server_forgot_are_told_again(backend):
    put(backend, 3)
    backend.store.connection.client.script_flush()
    first, *_ = take(backend, 1)
    backend.store.connection.client.script_flush()
    assert backend.ack([first]) == [Settled.SETTLED]


def test_a_full_server_refuses_new_jobs_and_lets_the_others_end(own_server):
    backend = backend_on(own_server)
    put(backend, 20)
    own_server.client.config_set("maxmemory", "1mb")
    with pytest.raises(StoreUnavailable, match="no memory left") as refused:
        put(backend)
    assert refused.value.undone
    leases = take(backend, 20)
    assert len(leases) == 20
    assert backend.nack(leases[0], 0) is Settled.SETTLED
    assert backend.abandon(leases[1], Failure(reason="exhausted")) is Settled.SETTLED
    assert set(backend.ack(leases[2:])) == {Settled.SETTLED}
    own_server.client.config_set("maxmemory", "0")
    put(backend)


def test_a_server_that_loads_its_file_is_an_outage_until_it_has(own_server):
    backend = backend_on(own_server)
    ids = put(backend, 5)
    own_server.client.mset({f"ballast:{number}": "x" * 2048 for number in range(600)})
    own_server.client.bgrewriteaof()
    own_server.until(lambda client: not client.info("persistence")["aof_rewrite_in_progress"])
    own_server.kill()
    # It takes its time over each key, and answers in between.
    slow = ("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
    own_server.options = slow
    own_server.launch()
    until(lambda: _loads(own_server))
    with pytest.raises(StoreUnavailable):
        take(backend)
    with pytest.raises(StoreUnavailable) as refused:
        put(backend)
    assert refused.value.undone
    own_server.until(lambda client: client.ping())
    assert [lease.id for lease in take(backend, 500)] == ids


def test_a_server_that_cannot_write_its_snapshot_refuses_jobs_and_settles_until_it_can(own_server):
    backend = backend_on(own_server)
    put(backend, 2)
    (lease,) = take(backend)
    blocked = own_server.folder / "dump.rdb"
    blocked.mkdir()  # as a disk that is full, it takes no file
    own_server.client.config_set("save", "3600 1")
    own_server.client.bgsave()
    own_server.until(lambda client: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    for ask in (lambda: put(backend), lambda: take(backend), lambda: backend.ack([lease])):
        with pytest.raises(StoreUnavailable, match="MISCONF") as refused:
            ask()
        assert refused.value.undone
    blocked.rmdir()
    own_server.client.bgsave()
    own_server.until(lambda client: client.info("persistence")["rdb_last_bgsave_status"] == "ok")
    assert backend.ack([lease]) == [Settled.SETTLED]
    assert len(take(backend, 5)) == 1


def _loads(server):
    once = Retry(NoBackoff(), 0)
    with redis.Redis(port=server.port, socket_timeout=2.0, retry=once) as client:
        try:
            client.get("anything")
        except redis.exceptions.BusyLoadingError:
            return True
        except redis.RedisError:
            return False
    return False


def test_a_demoted_server_is_an_outage_until_it_is_promoted(own_server):
    backend = backend_on(own_server)
    put(backend, 2)
    (lease,) = take(backend)
    own_server.client.replicaof("127.0.0.1", own_server.port)
    with pytest.raises(StoreUnavailable):
        take(backend)
    with pytest.raises(StoreUnavailable) as refused:
        put(backend)
    assert refused.value.undone
    own_server.client.replicaof("no", "one")
    assert backend.ack([lease]) == [Settled.SETTLED]


def test_the_replica_that_is_promoted_goes_on_with_every_job(own_server):
    with running("--replicaof", f"127.0.0.1 {own_server.port}") as replica:
        backend = backend_on(own_server)
        ids = put(backend, 10)
        (lease,) = take(backend)
        own_server.until(lambda client: client.wait(1, 5000) == 1)
        until(lambda: replica.client.dbsize() == own_server.client.dbsize())
        own_server.kill()
        replica.client.replicaof("no", "one")
        heir = backend_on(replica)
        assert heir.ack([lease]) == [Settled.SETTLED]
        assert [one.id for one in take(heir, 20)] == ids[1:]
