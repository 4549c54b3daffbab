"""What a tick makes of what is in its way: undecided, paused, removed, or silent."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.clock import SECOND, ManualClock
from django_jobs.cron import loop, tick
from django_jobs.cron.history import Outcomes
from django_jobs.cron.loop import tick_once
from django_jobs.cron.options import Dependency, Missed, Overlap
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.tick import FORGOTTEN_AFTER, Resting, Ticker
from django_jobs.db.clock import for_people
from django_jobs.models import Job, JobState, ScheduleState, ScheduleTick, schedule_key
from django_jobs.operations.schedules import (
    overview_of_schedules,
    pause_schedule,
    resume_schedule,
    run_schedule_now,
)
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
    (left,) = tick_once(only=["report"])
    assert (left.name, left.decision) == ("report", "undecided")
    assert left.reason.startswith("waits for load, which no scheduler has decided")
    assert not ScheduleTick.objects.exists()
    assert [one.name for one in tick_once()] == ["load", "report"]


def test_those_that_cannot_be_decided_do_not_take_the_place_of_others(
    clock: ManualClock, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick, "MOST_AT_ONCE", 1)
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
    assert ticker.undecided.keys() == {schedule_key("report")}
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


def waiting(count: int, now: int) -> None:
    """Ticks of a pair, one for each minute before now; the jobs of ``load`` never run."""
    stuck = Job.objects.get(queue="loading").pk
    moments = [now - now % (60 * SECOND) - number * 60 * SECOND for number in range(1, count + 1)]
    given: dict[str, Any] = {"decided_at": for_people(now)}
    of_load = {"decision": "enqueued", "outcome": "open", "backend": "database", "job_id": stuck}
    ScheduleTick.objects.bulk_create(
        ScheduleTick(key=schedule_key(name), name=name, tick=at, **given, **fields)
        for name, fields in (("load", of_load), ("report", {"decision": "waiting"}))
        for at in moments
    )


def nightly(declare: Declare, now: int) -> None:
    """A tick that waits, newer than all others, for one that has succeeded."""
    declare("night", "0 2 * * *")
    declare("morning", "0 2 * * *", depends_on=("night",), dependency=Dependency.SUCCEEDED)
    tick = now - now % (86_400 * SECOND) + 2 * 3600 * SECOND
    given: dict[str, Any] = {"tick": tick, "decided_at": for_people(now)}
    ScheduleTick.objects.create(
        key=schedule_key("night"),
        name="night",
        decision="enqueued",
        outcome="succeeded",
        backend="database",
        job_id=uuid4(),
        **given,
    )
    ScheduleTick.objects.create(
        key=schedule_key("morning"), name="morning", decision="waiting", **given
    )


def test_a_thousand_ticks_that_wait_hide_no_other(clock: ManualClock, declare: Declare) -> None:
    clock.advance(6 * 3600)
    waits_for_load(declare)
    ticker = Ticker()
    ticker.tick()
    waiting(1000, clock.now() - 4 * 3600 * SECOND)
    nightly(declare, clock.now())
    assert ("morning", "enqueued") in told(ticker)
    assert ScheduleTick.objects.filter(name="report", decision="waiting").count() == 1001


def test_more_that_wait_than_one_tick_looks_at_have_their_turn_in_the_next(
    clock: ManualClock, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick, "WAITING_AT_ONCE", 3)
    clock.advance(6 * 3600)
    waits_for_load(declare)
    ticker = Ticker()
    ticker.tick()
    waiting(40, clock.now() - 4 * 3600 * SECOND)
    nightly(declare, clock.now())
    found, ticks = told(ticker), 1
    assert ("morning", "enqueued") not in found
    while ticker.is_behind:
        found, ticks = found + told(ticker), ticks + 1
    assert ("morning", "enqueued") in found
    assert ticks <= 42 / 3 / tick.WAITING_PAGES + 1


def test_many_ticks_that_wait_cost_a_few_statements(
    clock: ManualClock, declare: Declare, django_assert_max_num_queries: Any
) -> None:
    waits_for_load(declare)
    ticker = Ticker()
    ticker.tick()
    waiting(300, clock.now())
    with django_assert_max_num_queries(12):
        assert told(ticker) == []


def test_a_chain_of_ticks_that_wait_goes_on_in_one_tick(
    clock: ManualClock, declare: Declare
) -> None:
    declare("letter", depends_on=("report",))
    waits_for_load(declare)
    ticker = Ticker()
    ticker.tick()
    process_once("loading")
    assert told(ticker) == [("report", "enqueued"), ("letter", "enqueued")]


def test_a_retried_dependency_is_waited_for_until_its_retry_succeeds(
    clock: ManualClock, declare: Declare
) -> None:
    declare("report", depends_on=("load",), dependency=Dependency.SUCCEEDED)
    declare(
        "load",
        handler="fails_once",
        options={"queue": "loading", "max_retries": 1, "retry": "none"},
    )
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


@pytest.mark.parametrize("missed", list(Missed))
def test_a_clock_that_is_behind_for_a_moment_runs_nothing_that_was_skipped(
    clock: ManualClock, declare: Declare, missed: Missed
) -> None:
    declare(missed=missed)
    ticker = Ticker()
    for minute in range(30):
        if minute == 10:
            pause_schedule("bell", by="ada")
        ticker.tick()
        clock.advance(60)
    resume_schedule("bell", by="ada")
    ticker.tick()
    before = jobs_by_tick()
    clock._now -= 1200 * SECOND
    assert told(ticker) == told(Ticker()) == []
    clock.advance(1200)
    ticker.tick()
    assert jobs_by_tick() == before
    skipped = ScheduleTick.objects.filter(decision="skipped", reason__contains="paused")
    assert skipped.count() == 20


def test_a_clock_that_is_behind_for_a_moment_makes_up_for_nothing_from_before_a_schedule_began(
    clock: ManualClock, declare: Declare
) -> None:
    began = clock.now()
    declare(expression="*/5 * * * *", missed=Missed.ALL)
    ticker = Ticker()
    ticker.tick()
    clock.advance(12 * 60)
    ticker.tick()
    assert len(jobs_by_tick()) == 3
    clock._now -= 41 * 60 * SECOND  # to where it is not due
    ticker.tick()
    clock.advance(41 * 60)
    ticker.tick()
    assert min(jobs_by_tick()) >= began - 60 * SECOND
    assert len(jobs_by_tick()) == 3


def jobs_by_tick() -> Counter[int]:
    return Counter(Job.objects.filter(schedule="bell").values_list("tick", flat=True))


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=365)])
@pytest.mark.parametrize("missed", list(Missed))
def test_a_clock_that_was_ahead_for_a_moment_silences_nothing_and_fires_nothing_twice(
    clock: ManualClock,
    declare: Declare,
    caplog: pytest.LogCaptureFixture,
    ahead: timedelta,
    missed: Missed,
) -> None:
    declare(missed=missed)
    ticker = Ticker()
    ticker.tick()
    first = clock.now() - clock.now() % (60 * SECOND)
    clock.advance(ahead.total_seconds())
    ticker.tick()
    clock._now -= int(ahead.total_seconds()) * SECOND
    assert told(ticker) == []
    for _ in range(70):
        clock.advance(60)
        ticker.tick()
        assert ticker.seconds_left(60.0) > 0
    jobs = jobs_by_tick()
    assert set(jobs.values()) == {1}
    assert {first + number * 60 * SECOND for number in range(71)} <= jobs.keys()
    (line,) = [one for one in caplog.records if one.key == "cron.clock_was_ahead"]  # type: ignore[attr-defined] # ours
    assert "decided 1 schedules" in line.getMessage()


def test_a_scheduler_that_starts_after_the_clock_was_ahead_makes_up_for_what_was_silent(
    clock: ManualClock, declare: Declare
) -> None:
    declare(missed=Missed.ALL)
    Ticker().tick()
    clock.advance(365 * 86_400)
    Ticker().tick()
    clock._now -= 365 * 86_400 * SECOND
    clock.advance(600)
    assert [decision for _, decision in told(Ticker())] == [*["caught-up"] * 9, "enqueued"]


def test_other_schedulers_notice_within_minutes_that_the_clock_was_ahead(
    clock: ManualClock, declare: Declare
) -> None:
    declare(missed=Missed.ALL)
    one, other = Ticker(), Ticker()
    one.tick()
    other.tick()
    clock.advance(86_400)
    one.tick()
    clock._now -= 86_400 * SECOND
    for _ in range(8):
        clock.advance(60)
        other.tick()
    first = clock.now() - clock.now() % (60 * SECOND) - 8 * 60 * SECOND
    assert {first + number * 60 * SECOND for number in range(9)} <= jobs_by_tick().keys()
    assert set(jobs_by_tick().values()) == {1}


@pytest.mark.parametrize("while_ahead", [False, True])
def test_after_a_clock_was_ahead_an_edited_schedule_makes_up_for_nothing_from_before_the_edit(
    clock: ManualClock, declare: Declare, schedules: list[Schedule], *, while_ahead: bool
) -> None:
    declare(expression="0 * * * *", missed=Missed.ALL)
    ticker = Ticker()
    ticker.tick()
    clock.advance(3600)
    assert told(ticker) == [("bell", "enqueued")]
    clock.advance(33 * 60)  # to where neither expression is due
    day = 86_400
    clock.advance(day * while_ahead)
    schedules.clear()
    declare(expression="*/5 * * * *", missed=Missed.ALL)
    ticker.tick()
    clock.advance(day * (not while_ahead))
    ticker.tick()
    clock._now -= day * SECOND
    assert told(ticker) == []
    clock.advance(120)
    assert told(ticker) == [("bell", "enqueued")]


def test_what_a_person_asked_for_while_the_clock_was_ahead_stays(
    clock: ManualClock, declare: Declare
) -> None:
    declare()
    ticker = Ticker()
    ticker.tick()
    clock.advance(86_400)
    ticker.tick()
    pressed = run_schedule_now("bell", by="ada")
    clock._now -= 86_400 * SECOND
    ticker.tick()
    assert ScheduleTick.objects.get(job_id=pressed.job_id).decision == "run-now"


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


def test_the_job_of_a_tick_that_was_made_up_for_has_its_time_to_arrive_at_a_broker(
    clock: ManualClock, settings: Any
) -> None:
    memory = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}
    settings.DJANGO_JOBS = {"BACKENDS": {"broker": memory}, "DEFAULT_BACKEND": "broker"}
    row = open_tick(clock.now(), timedelta(hours=5), "broker")
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


def test_a_loop_says_once_what_a_schedule_waits_for(
    clock: ManualClock,
    declare: Declare,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(loop, "PATIENCE_SECONDS", 0.1)
    waits_for_load(declare, dependency=Dependency.ORDER)
    some = loop.Loop(only=["report"])
    deadline = time.monotonic() + 30.0
    steps_after = 0
    while steps_after < 10:
        assert time.monotonic() < deadline, "it is not said"
        some.step()
        time.sleep(min(some.seconds_left(), 0.05))
        steps_after += any(one.key == "cron.schedule_undecided" for one in caplog.records)  # type: ignore[attr-defined] # ours
    said = [one.getMessage() for one in caplog.records if one.key == "cron.schedule_undecided"]  # type: ignore[attr-defined] # ours
    assert said == [
        "the schedule report is not decided: it waits for load, which no scheduler has decided"
    ]
    caplog.clear()
    Ticker().tick(only=["load"])
    while not ScheduleTick.objects.filter(name="report"):
        some.step()
    assert not [one for one in caplog.records if one.key == "cron.schedule_undecided"]  # type: ignore[attr-defined] # ours
