"""What a tick makes of what is in its way: undecided, paused, removed, or silent."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.backends.database.rows import for_people
from django_jobs.clock import SECOND, ManualClock
from django_jobs.cron import loop, ticking
from django_jobs.cron.loop import tick_once
from django_jobs.cron.outcomes import Outcomes
from django_jobs.cron.resting import Resting
from django_jobs.cron.schedule import Dependency, Overlap, Schedule
from django_jobs.cron.ticking import FORGOTTEN_AFTER, Ticker
from django_jobs.models import Job, JobState, ScheduleState, ScheduleTick, schedule_key
from django_jobs.operations.schedules import overview_of_schedules, pause_schedule
from django_jobs.worker.build import process_once

pytestmark = pytest.mark.django_db
Declare = Callable[..., Schedule]


def told(ticker: Ticker, **given: Any) -> list[tuple[str, str]]:
    return [(one.name, one.decision) for one in ticker.tick(**given)]


def waits_for_load(declare: Declare, **fields: Any) -> None:
    fields = {"dependency": Dependency.SUCCEEDED, **fields}
    declare("report", depends_on=("load",), **fields)
    declare("load", options={"queue": "loading"})


def test_a_tick_ends_though_nobody_decides_what_it_depends_on(
    clock: ManualClock, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "PATIENCE_SECONDS", 0.2)
    waits_for_load(declare, dependency=Dependency.ORDER)
    assert tick_once(only=["report"]) == []
    assert [one.name for one in tick_once()] == ["load", "report"]


def test_those_that_cannot_be_decided_do_not_take_the_place_of_others(
    clock: ManualClock, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticking, "MOST_AT_ONCE", 1)
    waits_for_load(declare)
    declare("zebra", depends_on=("report",))
    declare("bell")
    ticker, decided = Ticker(), []
    while "bell" not in decided:
        decided += [name for name, _ in told(ticker, only=["report", "zebra", "bell"])]
        assert ticker.is_behind or "bell" in decided
    assert decided == ["bell"]


def test_a_loop_for_some_schedules_does_not_spin_because_of_others(
    clock: ManualClock, declare: Declare
) -> None:
    declare("bell")
    declare("yearly", expression="0 0 1 1 *")
    ticker = Ticker()
    ticker.tick(only=["yearly"])
    assert ticker.seconds_left(5.0) == 0
    assert ticker.seconds_left(5.0, only=["yearly"]) == 5.0


def test_one_that_cannot_be_decided_is_not_asked_without_a_pause(
    clock: ManualClock, declare: Declare
) -> None:
    waits_for_load(declare)
    ticker = Ticker()
    ticker.tick(only=["report"])
    assert ticker.undecided == {schedule_key("report")}
    assert 0 < ticker.seconds_left(5.0, only=["report"]) <= 0.05


def test_rests_grow_and_end_when_it_was_decided() -> None:
    resting = Resting()
    for longest in (1.0, 2.0, 3.0, 3.0):
        resting.put_off("it", 1.0, 3.0)
        assert "it" in resting
        assert longest / 2 - 0.1 < resting.seconds_left(60.0) <= longest
    resting.forget("it")
    assert "it" not in resting
    assert resting.seconds_left(60.0) == 60.0


def test_a_tick_that_waits_is_skipped_when_its_schedule_is_paused(
    clock: ManualClock, declare: Declare
) -> None:
    waits_for_load(declare)
    ticker = Ticker()
    assert told(ticker) == [("load", "enqueued"), ("report", "waiting")]
    pause_schedule("report", by="ada")
    process_once("loading")
    assert told(ticker) == [("report", "skipped")]
    assert "paused by ada" in ScheduleTick.objects.get(name="report").reason


def test_two_ticks_that_waited_do_not_overlap(clock: ManualClock, declare: Declare) -> None:
    waits_for_load(declare, overlap=Overlap.SKIP)
    ticker = Ticker()
    ticker.tick()
    clock.advance(60)
    ticker.tick()
    assert ScheduleTick.objects.filter(name="report", decision="waiting").count() == 2
    process_once("loading")
    process_once("loading")
    assert told(ticker) == [("report", "enqueued"), ("report", "skipped")]


def test_a_retried_dependency_is_waited_for_until_its_retry_succeeds(
    clock: ManualClock, declare: Declare
) -> None:
    declare("report", depends_on=("load",), dependency=Dependency.SUCCEEDED)
    declare("load", handler="fails_once", options={"queue": "loading", "max_retries": 1})
    ticker = Ticker()
    ticker.tick()
    process_once("loading")
    assert Job.objects.get(queue="loading").attempts == 1
    assert told(ticker) == []
    Job.objects.filter(queue="loading").update(due=0)
    clock.advance(20)
    process_once("loading")
    assert told(ticker) == [("report", "enqueued")]


def test_a_tick_that_waits_is_given_up_when_its_schedule_is_gone_for_long(
    clock: ManualClock, declare: Declare, schedules: list[Schedule]
) -> None:
    waits_for_load(declare)
    Ticker().tick()
    del schedules[0]
    assert told(Ticker()) == []
    assert ScheduleTick.objects.get(name="report").decision == "waiting"
    clock.advance(FORGOTTEN_AFTER / SECOND + 60)
    Ticker().tick()
    row = ScheduleTick.objects.get(name="report")
    assert (row.decision, row.outcome) == ("skipped", "none")
    assert "removed or renamed" in row.reason


def test_a_clock_that_is_put_back_fires_nothing_twice(clock: ManualClock, declare: Declare) -> None:
    declare()
    ticker = Ticker()
    clock.advance(300)
    ticker.tick()
    before = set(ScheduleTick.objects.values_list("tick", flat=True))
    clock._now -= 180 * SECOND
    assert told(ticker) == []
    assert told(Ticker()) == []
    clock.advance(240)
    assert told(ticker) == [("bell", "enqueued")]
    ticks = list(ScheduleTick.objects.values_list("tick", flat=True))
    assert len(ticks) == len(set(ticks)) == len(before) + 1


def open_tick(now: int, age: timedelta, backend: str = "database") -> ScheduleTick:
    """A tick that was to come so long ago, and whose job was handed over just now."""
    return ScheduleTick.objects.create(
        key=schedule_key("bell"),
        name="bell",
        tick=now - int(age.total_seconds()) * SECOND,
        decision="caught-up",
        outcome="open",
        backend=backend,
        job_id=uuid4(),
        decided_at=for_people(now),
    )


def test_the_job_of_a_tick_that_was_made_up_for_has_its_time_to_arrive(
    clock: ManualClock,
) -> None:
    row = open_tick(clock.now(), timedelta(hours=5))
    Outcomes("default").step(clock.now())
    row.refresh_from_db()
    assert row.outcome == "open"
    Outcomes("default").step(clock.now() + 301 * SECOND)
    row.refresh_from_db()
    assert row.outcome == "unknown"


def test_ticks_that_stay_open_do_not_keep_others_from_their_end(clock: ManualClock) -> None:
    lives = [open_tick(clock.now(), timedelta(minutes=number)) for number in range(4)]
    for row in lives:
        Job.objects.create(
            id=row.job_id,
            backend="database",
            queue="clockwork",
            handler="chime",
            body="{}",
            state=JobState.RUNNING,
            due=0,
            created_at=for_people(clock.now()),
        )
    lost = open_tick(clock.now(), timedelta(minutes=9))
    rounds = Outcomes("default", limit=2)
    for _ in range(3):
        rounds.step(clock.now() + 301 * SECOND)
    lost.refresh_from_db()
    assert lost.outcome == "unknown"
    assert ScheduleTick.objects.filter(outcome="open").count() == len(lives)


def test_a_broker_that_is_away_is_no_end_of_its_jobs_and_of_no_list(
    clock: ManualClock, declare: Declare, settings: Any
) -> None:
    broker = {
        "BACKEND": "django_jobs.backends.redis.RedisBackend",
        "OPTIONS": {"URL": "redis://127.0.0.1:1/0"},
    }
    settings.DJANGO_JOBS = {
        "BACKENDS": {
            "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
            "broker": broker,
        }
    }
    declare()
    now = clock.now()
    row = open_tick(now, timedelta(0), "broker")
    Outcomes("default").step(now + 3600 * SECOND)
    (one,) = overview_of_schedules()
    assert one.last is not None
    assert one.last.outcome == "open"
    row.refresh_from_db()
    assert row.outcome == "open"


def test_a_schedule_that_comes_back_has_missed_nothing(
    clock: ManualClock, declare: Declare, schedules: list[Schedule]
) -> None:
    for name in ("bell", "gong"):
        declare(name, expression="0 * * * *", options={"queue": "clockwork"})
    tick_once()
    removed = schedules.pop()
    pause_schedule("bell", by="ada")
    clock.advance(26 * 3600)
    tick_once()
    assert ScheduleState.objects.get(name="gong").next_due is None
    clock.advance(90 * 86_400 + 600)
    schedules.append(removed)
    assert {name for name, _ in told(Ticker())} == {"bell"}
    clock.advance(3000)
    assert [decided for name, decided in told(Ticker()) if name == "gong"] == ["enqueued"]


def test_when_all_schedulers_were_away_for_days_nothing_is_forgotten(
    clock: ManualClock, declare: Declare
) -> None:
    declare(expression="0 * * * *")
    tick_once()
    clock.advance(3 * 86_400 + 600)
    assert [one.decision for one in tick_once()][-1] == "caught-up"


def test_the_state_of_a_schedule_that_is_unknown_here_is_left_alone(
    clock: ManualClock, declare: Declare, schedules: list[Schedule]
) -> None:
    declare("bell")
    declare("gone")
    Ticker().tick()
    before = ScheduleState.objects.get(name="gone").decided_until
    del schedules[1]
    clock.advance(60)
    ticker = Ticker()
    assert told(ticker) == [("bell", "enqueued")]
    assert 0 < ticker.seconds_left(60.0) <= 60
    assert ScheduleState.objects.get(name="gone").decided_until == before
