"""Dead letters: parked in one step, copied, removed; and what cannot be read is among them."""

from collections import Counter
from datetime import timedelta
from unittest import mock

import pytest
from django.db import IntegrityError, OperationalError, connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobs.backends.base import AttemptRecord, Charge, Failure, Settled
from django_jobs.backends.redis.connection import RedisClock
from django_jobs.clock import ManualClock
from django_jobs.models import FailedJob, FailureGroup, JobAttempt
from django_jobs.testing.factories import make_outgoing
from tests.integration.worker.pool.conftest import until

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
BASE = "{django_jobs:default}:3:"


@pytest.fixture
def client(backend):
    return backend.store.connection.client


def put(backend, **terms):
    message = make_outgoing(backend="redis", **terms)
    backend.enqueue([message])
    return message


def take(backend, count=9):
    return backend.fetch(["default"], count, 30.0)


class Away:
    """The database of the site does not answer."""

    def __call__(self, *_args, **_kwargs):
        raise OperationalError("the database is away")


def test_a_dead_letter_waits_in_redis_while_the_database_is_away(backend, client):
    message = put(backend)
    (lease,) = take(backend)
    record = AttemptRecord(number=1, outcome="failed", started_at=1, finished_at=2)
    failure = Failure(reason="exhausted", error_type="E", charge=Charge.ATTEMPT, attempt=record)
    with mock.patch.object(FailedJob.objects, "using", Away()):
        assert backend.abandon(lease, failure) is Settled.SETTLED
        assert backend.housekeeping_due().clean_up
        assert backend.clean_up() == 0
    assert not FailedJob.objects.exists()
    assert client.hlen(BASE + "dead") == 1
    account = backend.account(message.id)
    assert (account.status, account.reason, len(account.attempts)) == ("dead", "exhausted", 1)
    until(lambda: backend.clean_up() == 1)
    dead = FailedJob.objects.get()
    assert (str(dead.job_id), dead.body, dead.attempts) == (message.id, message.body, 1)
    assert JobAttempt.objects.count() == 1
    assert client.hlen(BASE + "dead") == 0
    assert not list(client.scan_iter(BASE + "att:*"))
    assert not backend.housekeeping_due().clean_up


def test_a_database_that_is_away_is_tried_once_and_then_left_alone_for_a_while(backend, client):
    tried = []

    def away(*_):
        tried.append(1)
        raise OperationalError("the database is away")

    backend.enqueue([make_outgoing(backend="redis") for _ in range(300)])
    with connection.execute_wrapper(away):
        for lease in take(backend, 300):
            assert backend.abandon(lease, Failure(reason="exhausted")) is Settled.SETTLED
        assert len(tried) < 20  # each may last as long as a driver waits
        before = len(tried)
        until(lambda: backend.clean_up() or len(tried) > before)
        assert len(tried) == before + 1
        assert client.hlen(BASE + "dead") == 300
    until(lambda: backend.clean_up() >= 0 and not backend.housekeeping_due().clean_up)
    assert FailedJob.objects.count() == 300


def test_copies_of_a_place_are_passed_however_many_there_are(backend, client):
    backend.enqueue(
        [one := make_outgoing(backend="redis"), other := make_outgoing(backend="redis")]
    )
    (place,) = [raw for raw in client.zrange(BASE + "ready", 0, -1) if one.id.encode() in raw]
    for due in range(5):  # all of them come before the other job
        client.zadd(BASE + "ready", {place[:3] + b"%016d" % due + one.id.encode(): 0})
    assert {lease.id for lease in backend.fetch(["default"], 2, 30)} == {one.id, other.id}


def test_who_abandons_a_job_copies_its_dead_letter_alone(backend, client):
    put(backend)
    put(backend)
    first, second = take(backend, 2)
    left = [first.id, first.token, "nothing", "", "{}", 0]
    assert backend.store.run("abandon", "default", left)
    assert backend.abandon(second, Failure(reason="exhausted")) is Settled.SETTLED
    assert str(FailedJob.objects.get().job_id) == second.id
    assert client.hkeys(BASE + "dead") == [first.id.encode()]
    assert backend.clean_up() == 1


def test_who_dies_between_the_copy_and_the_removal_leaves_one_dead_letter(backend, client):
    put(backend)
    (lease,) = take(backend)
    record = AttemptRecord(number=1, outcome="failed", started_at=1, finished_at=2)
    run = backend.store.run

    def killed(name, *rest):
        if name == "unpark":
            raise KeyboardInterrupt
        return run(name, *rest)

    with mock.patch.object(backend.store, "run", killed), pytest.raises(KeyboardInterrupt):
        backend.abandon(lease, Failure(reason="exhausted", attempt=record))
    assert client.hlen(BASE + "dead") == 1
    assert backend.clean_up() == 1
    assert (FailedJob.objects.count(), JobAttempt.objects.count()) == (1, 1)


# ------------------------------------------------------- what an outage has left behind


def park(backend, queue, count):
    """Dead letters that stay in Redis, as while the database is away."""
    backend.enqueue([make_outgoing(queue, backend="redis") for _ in range(count)])
    for lease in backend.fetch([queue], count, 30.0):
        failure = f'{{"reason": "exhausted", "fingerprint": "of {queue}"}}'
        assert backend.store.run(
            "abandon", queue, [lease.id, lease.token, "nothing", "", failure, 0]
        )


def copied():
    return Counter(FailedJob.objects.values_list("queue", flat=True))


def test_each_tidy_copies_some_and_each_queue_has_its_turn(backend, monkeypatch):
    for queue in "abc":
        park(backend, queue, 300)
    monkeypatch.setattr("django_jobs.backends.redis.cleanup.CLEAN_UP_SECONDS", 0.0)
    seen = []
    for _ in range(3):
        before = copied()
        done = backend.clean_up()
        assert sum((copied() - before).values()) == done < 200
        seen += copied() - before
    assert sorted(seen) == ["a", "b", "c"]
    until(lambda: backend.clean_up() >= 0 and not backend.housekeeping_due().clean_up)
    assert copied() == {"a": 300, "b": 300, "c": 300}
    assert (
        FailureGroup.objects.filter(fingerprint="of a").aggregate(Sum("open"))["open__sum"] == 300
    )


def test_a_tidy_copies_no_more_than_it_is_allowed_for_all_queues_together(backend, monkeypatch):
    for queue in "abc":
        park(backend, queue, 200)
    monkeypatch.setattr("django_jobs.backends.redis.cleanup.CLEAN_UP_SECONDS", 60.0)
    assert 150 <= backend.clean_up(limit=150) < 350
    assert set(copied()) >= {"a", "b"}


def test_letters_are_copied_many_at_a_time(backend):
    park(backend, "a", 100)
    with CaptureQueriesContext(connection) as statements:
        assert backend.clean_up() == 100
    assert len(statements) < 30


def test_a_letter_that_the_database_refuses_keeps_no_other_in_redis(backend, client):
    park(backend, "a", 30)
    odd = client.hkeys("{django_jobs:a}:3:dead")[7].decode()
    hexadecimal = odd.replace("-", "")

    def refuse(execute, sql, params, *rest):
        if sql.startswith("INSERT") and hexadecimal in str(params).replace("-", ""):
            raise IntegrityError("no")
        return execute(sql, params, *rest)

    with connection.execute_wrapper(refuse):
        assert backend.clean_up() == 29
        assert backend.clean_up() == 0
    assert client.hkeys("{django_jobs:a}:3:dead") == [odd.encode()]
    assert backend.clean_up() == 1


# ------------------------------------------------------------------ what cannot be read

SPOILED = {
    "no message": lambda client, job_id: client.hdel(BASE + "jobs", job_id),
    "an empty message": lambda client, job_id: client.hset(BASE + "jobs", job_id, ""),
    "noise": lambda client, job_id: client.hset(BASE + "jobs", job_id, b"\x00\xff\x17noise"),
    "no body": lambda client, job_id: client.hset(BASE + "jobs", job_id, "-100"),
    "a state of noise": lambda client, job_id: client.hset(BASE + "state", job_id, b"\xff|1:2"),
    "a lease without an end": lambda client, job_id: client.hset(
        BASE + "state", job_id, "a" * 32 + "|0:1:0:0:1:1:0:0:0::host:1"
    ),
}


@pytest.mark.parametrize("kind", SPOILED)
def test_what_cannot_be_read_becomes_a_dead_letter(backend, client, kind):
    spoiled, sound = put(backend), put(backend)
    SPOILED[kind](client, spoiled.id)
    assert [lease.id for lease in take(backend)] == [sound.id]
    assert backend.clean_up() == 1
    dead = FailedJob.objects.get()
    assert (str(dead.job_id), dead.reason) == (spoiled.id, "rejected-malformed")
    assert take(backend) == []
    stats = backend.stats("default")
    assert (stats.ready, stats.running, stats.blocked) == (0, 1, 0)


@pytest.mark.parametrize("kind", ["no message", "noise", "a state of noise"])
def test_what_is_spoiled_while_it_runs_becomes_a_dead_letter_when_its_lease_ends(
    backend, client, kind
):
    backend.clock = RedisClock(clock := ManualClock())
    message = put(backend)
    take(backend)
    SPOILED[kind](client, message.id)
    clock.advance(31)
    assert backend.reap_expired() == 1
    assert backend.clean_up() == 1
    assert FailedJob.objects.get().reason == "rejected-malformed"
    assert take(backend) == []
    assert backend.queues() == []


def test_a_line_that_is_no_json_is_handed_out_and_not_believed(backend, client):
    message = put(backend)
    raw = client.hget(BASE + "jobs", message.id)
    client.hset(BASE + "jobs", message.id, raw[:20] + b"{nonsense\n" + message.body.encode())
    (lease,) = take(backend)
    assert (lease.message.signature, lease.message.body) == ("", message.body)
    backend.abandon(lease, Failure(reason="rejected-signature"))
    assert FailedJob.objects.get().body == message.body


def test_a_place_that_is_no_place_is_taken_out(backend, client):
    client.zadd(BASE + "ready", {"x": 0, "0" * 19 + "not-an-id": 0})
    sound = put(backend)
    assert [lease.id for lease in take(backend)] == [sound.id]
    assert backend.clean_up() == 2
    assert FailedJob.objects.count() == 2
    assert client.zcard(BASE + "ready") == 0


def test_a_copied_place_of_a_running_job_is_dropped_and_the_job_goes_on(backend, client):
    message = put(backend)
    (lease,) = take(backend)
    client.zadd(BASE + "ready", {"0" * 19 + message.id: 0})
    assert take(backend) == []
    assert client.zcard(BASE + "ready") == 0
    assert backend.ack([lease]) == [Settled.SETTLED]
    assert backend.clean_up() == 0
    assert not FailedJob.objects.exists()


@pytest.mark.parametrize("place", ["0" * 19, "x" * 19])
@pytest.mark.parametrize("terms", [{}, {"concurrency_key": "disk"}])
def test_a_copied_place_beside_the_own_one_leases_a_job_once(backend, client, place, terms):
    message = put(backend, **terms)
    client.zadd(BASE + "ready", {place + message.id: 0})
    (lease,) = take(backend)
    assert lease.id == message.id
    assert take(backend) == []
    assert client.zcard(BASE + "ready") == 0
    assert backend.ack([lease]) == [Settled.SETTLED]
    assert client.hlen(BASE + "dead") == 0


@pytest.mark.parametrize("place", ["x" * 19, "0" * 18 + "x"])
def test_a_corrupt_place_holds_no_key(backend, client, place):
    spoiled = put(backend, concurrency_key="disk", delay=3600.0)
    client.delete(BASE + "later")
    client.zadd(BASE + "ready", {place + spoiled.id: 0})
    sound = put(backend, concurrency_key="disk")
    assert [lease.id for lease in take(backend)] == [sound.id]
    assert backend.clean_up() == 1
    assert str(FailedJob.objects.get().job_id) == spoiled.id


@pytest.mark.parametrize("queue", ["default", "elsewhere"])
def test_a_job_that_was_spoiled_while_it_ran_holds_its_key_until_a_cleanup(backend, client, queue):
    """And one that runs and was not holds it, whatever queue it is of."""
    backend.enqueue([make_outgoing(queue, backend="redis", concurrency_key="disk")])
    waiting = put(backend, concurrency_key="disk")
    (lease,) = backend.fetch([queue], 1, 30.0)
    assert take(backend) == []
    backend.clean_up()
    assert take(backend) == []
    client.hset(f"{{django_jobs:{queue}}}:3:jobs", lease.id, "noise")
    assert backend.ack([lease]) == [Settled.SETTLED]
    backend.clean_up()
    assert [one.id for one in take(backend)] == [waiting.id]


@pytest.mark.parametrize("limit", [1, 8, 1000])
def test_what_has_to_wait_for_a_key_hides_no_job_behind_it(backend, limit):
    held = [make_outgoing(backend="redis", concurrency_key="disk") for _ in range(2500)]
    backend.enqueue(held)
    free = put(backend)
    found = [lease.id for lease in (*take(backend, 1), *take(backend, limit))]
    assert found == [held[0].id, free.id]
    assert take(backend, limit) == []


def test_a_parked_entry_of_noise_is_copied_too(backend, client):
    client.sadd("{django_jobs}:3:queues", "default")
    client.hset(BASE + "dead", "who knows", b"\xff\x00 no JSON")
    assert backend.clean_up() == 1
    assert FailedJob.objects.get().reason == "rejected-malformed"
    assert client.hlen(BASE + "dead") == 0


def old_letters(backend, settings, count):
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "DEAD_LETTER_TTL": timedelta(days=30)}
    for _ in range(count):
        put(backend)
    for lease in take(backend):
        backend.abandon(lease, Failure(reason="exhausted"))
    backend.clean_up()
    FailedJob.objects.update(failed_at=timezone.now() - timedelta(days=31))


def test_old_copies_are_deleted_where_no_other_worker_comes_by(backend, settings):
    old_letters(backend, settings, 3)
    kept = put(backend)
    (lease,) = take(backend)
    backend.abandon(lease, Failure(reason="exhausted"))
    assert backend.clean_up(limit=2) == 2
    assert backend.clean_up(limit=2) == 1
    assert [str(letter.job_id) for letter in FailedJob.objects.all()] == [kept.id]


def test_a_database_that_is_away_stops_no_tidying(backend, settings):
    old_letters(backend, settings, 1)
    with mock.patch.object(FailedJob.objects, "using", Away()):
        assert backend.clean_up() == 0
    assert backend.clean_up() == 1
