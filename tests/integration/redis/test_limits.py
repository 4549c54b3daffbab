"""What a queue is held to, on Redis: the same rates as on a database, pause, and places."""

import json
import random
import time

import pytest

from django_jobs.backends.rates import Rate, Usage
from django_jobs.backends.redis.connection import RedisClock
from django_jobs.clock import SECOND, ManualClock
from django_jobs.models import QueueControl
from django_jobs.operations.overview import overview
from django_jobs.operations.queues import limit_queue, pause_queue, reset_rate, resume_queue
from django_jobs.testing.factories import make_outgoing

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


@pytest.fixture
def clock(backend):
    clock = ManualClock()
    backend.clock = RedisClock(clock)
    return clock


def put(backend, count):
    backend.enqueue([make_outgoing(backend="redis") for _ in range(count)])


def take(backend, count=99):
    backend._claims._limits._look_at = 0.0  # what was set a moment ago holds at once
    return backend.fetch(["default"], count, 600.0)


@pytest.mark.parametrize("back", [0.5, 10.0, 3600.0])
def test_a_clock_that_was_ahead_closes_a_limited_queue_no_longer_than_on_a_database(
    backend, clock, back
):
    limit_queue("default", {"rate_limit": "5/s"}, by="a test")
    rate = Rate.parse("5/s")
    put(backend, 20)
    assert len(take(backend)) == 5
    usage = Usage.read(rate, None, clock.now()).added(5, clock.now() + rate.late)
    told = json.loads(json.dumps(usage.to_store()))
    clock.advance(-back)
    assert len(take(backend)) == Usage.read(rate, told, clock.now()).free()


@pytest.mark.parametrize("text", ["5/s", "60/m", "3/h"])
@pytest.mark.parametrize("seed", range(3))
def test_a_rate_lets_go_what_the_reckoning_says(backend, clock, text, seed):
    limit_queue("default", {"rate_limit": text}, by="a test")
    rate, chance, told = Rate.parse(text), random.Random(seed), None
    put(backend, 400)
    starts = []
    for _ in range(40):
        clock.advance(chance.uniform(0, 0.4) * rate.window / SECOND)
        wanted = chance.randint(1, 9)
        usage = Usage.read(rate, told, clock.now())
        expected = min(wanted, usage.free())
        leases = take(backend, wanted)
        assert len(leases) == expected
        usage = usage.added(expected, clock.now() + rate.late)
        told = json.loads(json.dumps(usage.to_store()))
        starts += [clock.now() + chance.randint(0, rate.late)] * expected
        if not usage.free():
            due_in = backend.next_due_in(["default"])
            free_in = usage.free_in(clock.now())
            assert due_in == pytest.approx(free_in / SECOND, abs=2e-6)
        backend.ack(leases)
    most = max(sum(one <= other < one + rate.window for other in starts) for one in starts)
    assert most <= rate.limit
    assert len(starts) > rate.limit


def test_another_rate_begins_anew_and_none_lets_all_go(backend, clock):
    put(backend, 40)
    limit_queue("default", {"rate_limit": "5/m"}, by="a test")
    assert len(take(backend)) == 5
    assert take(backend) == []
    assert not backend.wait(["default"], 0.0)
    limit_queue("default", {"rate_limit": "7/s"}, by="a test")
    assert len(take(backend)) == 7
    limit_queue("default", {"rate_limit": "none"}, by="a test")
    assert len(take(backend)) == 28


def test_what_was_put_off_gives_its_starts_back_also_when_their_slot_is_over(backend, clock):
    limit_queue("default", {"rate_limit": "20/s"}, by="a test")
    put(backend, 12)
    first = take(backend)
    clock.advance(0.1)
    put(backend, 30)
    second = take(backend, 8)
    assert take(backend) == []
    clock.advance(0.1)
    later = clock.now() + 600 * SECOND
    backend._claims.breakers._put_off([*first[:5], *second[:3]], later)
    assert len(take(backend)) == 8


def test_a_paused_queue_gives_nothing_and_keeps_nobody_awake(backend, clock):
    put(backend, 3)
    pause_queue("default", by="a test", reason="look")
    assert take(backend) == []
    assert not backend.wait(["default"], 0.0)
    assert backend.stats("default").ready == 3
    resume_queue("default", by="a test")
    assert len(take(backend)) == 3


def test_places_of_a_queue_are_those_of_living_leases(backend, clock):
    put(backend, 10)
    limit_queue("default", {"concurrency": 4}, by="a test")
    leases = take(backend)
    assert len(leases) == 4
    assert take(backend) == []
    assert not backend.wait(["default"], 0.0)
    backend.ack(leases[:3])
    assert len(take(backend)) == 3
    clock.advance(601)
    assert len(take(backend)) == 3
    limit_queue("default", {"concurrency": 0}, by="a test")
    put(backend, 1)
    assert take(backend) == []


def test_what_a_queue_has_started_is_forgotten_on_demand(backend, clock):
    put(backend, 9)
    limit_queue("default", {"rate_limit": "2/m"}, by="a test")
    assert not reset_rate("default", by="a test")
    assert len(take(backend)) == 2
    assert take(backend) == []
    assert reset_rate("default", by="a test")
    assert len(take(backend)) == 2


def test_the_overview_counts_what_is_in_redis(backend, clock):
    put(backend, 3)
    take(backend, 1)
    (shown,) = [one for one in overview() if one.queue == "default"]
    assert (shown.backend, shown.ready, shown.running) == ("redis", 2, 1)
    pause_queue("default", by="a test")
    assert next(one for one in overview() if one.queue == "default").paused


def test_a_rate_that_cannot_be_read_holds_up_nobody_and_is_told_once(backend, caplog):
    QueueControl.objects.create(backend="redis", queue="default", rate_limit="5/fortnight")
    put(backend, 2)
    assert len(take(backend)) == 2
    assert take(backend) == []
    (told,) = [one for one in caplog.records if one.key == "limits.rate_unreadable"]
    assert "5/fortnight" in told.getMessage()


def test_scripts_are_told_of_limits_where_a_queue_has_any(backend):
    limits = backend._claims._limits
    assert limits.args(["default", "other"]) == []
    limit_queue("other", {"concurrency": 3}, by="a test")
    limits._look_at = 0.0
    assert limits.args(["default"]) == []
    assert limits.args(["default", "other"])[-1] == 3
    assert len(limits.args(["default", "other"])) == 12


def test_what_is_fetched_from_a_limited_queue_says_until_when_it_may_start(backend):
    limit_queue("default", {"rate_limit": "20/s"}, by="a test")
    put(backend, 1)
    before = time.monotonic()
    (lease,) = take(backend)
    late = Rate.parse("20/s").late / SECOND
    assert before + late <= lease.start_by <= time.monotonic() + late
    assert backend.rate_limited(["default", "other"]) == {"default"}
    put(backend, 1)
    limit_queue("default", {"rate_limit": "none"}, by="a test")
    (lease,) = take(backend)
    assert lease.start_by is None


def test_what_was_given_back_and_not_begun_counts_as_no_start(backend):
    limit_queue("default", {"rate_limit": "20/m"}, by="a test")
    put(backend, 40)
    leases = take(backend)
    assert len(leases) == 20
    backend.nack_all(leases[:5])
    backend.return_starts(leases[:5])
    assert len(take(backend)) == 5
    assert take(backend) == []


def test_where_jobs_were_too_late_to_start_the_next_may_start_later(backend):
    limit_queue("default", {"rate_limit": "20/s"}, by="a test")
    put(backend, 40)
    (lease,) = take(backend, 1)
    while not lease.is_late:
        time.sleep(0.01)
    backend.nack_all([lease])
    backend.return_starts([lease])
    before = time.monotonic()
    first = take(backend, 1)
    assert first[0].start_by >= before + 2 * Rate.parse("20/s").late / SECOND
    assert len(first + take(backend)) == 20
