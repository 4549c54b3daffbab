"""What becomes of a tick: enqueued, skipped, missed, caught up or failed, and why."""

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND, ManualClock
from django_jobs.cron.book import due_after
from django_jobs.cron.options import Daylight, Dependency, Missed, Overlap
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.tick import Ticker
from django_jobs.models import Job, JobState, ScheduleState, ScheduleTick
from django_jobs.worker.build import process_once

pytestmark = pytest.mark.django_db
Declare = Callable[..., Schedule]
MINUTE = 60


def told(ticker: Ticker, **given: Any) -> list[tuple[str, str, str]]:
    return [(one.name, f"{one.tick:%H:%M}", one.decision) for one in ticker.tick(**given)]


def test_the_minute_that_has_begun_counts_for_a_new_schedule(
    clock: ManualClock, declare: Declare
) -> None:
    declare()
    assert told(Ticker()) == [("bell", "22:00", "enqueued")]


def test_a_tick_is_decided_once(clock: ManualClock, declare: Declare) -> None:
    declare()
    one, other = Ticker(), Ticker()
    assert len(told(one)) == 1
    assert told(other) == told(one) == []
    clock.advance(MINUTE)
    assert told(other) == [("bell", "22:01", "enqueued")]
    assert told(one) == []
    assert Job.objects.filter(schedule="bell").count() == 2


def test_a_tick_that_another_scheduler_decided_after_the_look_is_left_to_it(
    clock: ManualClock, declare: Declare
) -> None:
    declare()
    theirs, decided = Ticker(), []

    def meanwhile() -> bool:
        clock.advance(MINUTE)
        decided.extend(told(theirs))
        return False

    assert told(Ticker(hurried=meanwhile)) == []
    assert decided == [("bell", "22:00", "missed"), ("bell", "22:01", "enqueued")]
    assert ScheduleState.objects.get().decided_until == clock.now()


def test_the_job_is_told_its_tick(clock: ManualClock, declare: Declare) -> None:
    declare()
    Ticker().tick()
    job = Job.objects.get()
    assert job.meta == {"schedule": "bell", "tick": "2031-05-04T22:00:00+00:00"}
    assert job.schedule == "bell"


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (Missed.SKIP, ["missed", "missed", "missed"]),
        (Missed.LATEST, ["missed", "missed", "caught-up"]),
        (Missed.ALL, ["missed", "caught-up", "caught-up"]),
    ],
)
def test_missed_ticks_follow_the_policy(
    clock: ManualClock, declare: Declare, missed: Missed, expected: list[str]
) -> None:
    declare(expression="0 * * * *", missed=missed, missed_limit=2)
    ticker = Ticker()
    ticker.tick()
    clock.advance(3 * 3600 + 10 * MINUTE)
    assert [decision for _, _, decision in told(ticker)] == expected
    assert told(ticker) == []


@pytest.mark.parametrize(
    ("expression", "hours", "limit"),
    [("* * * * *", 5, 100), ("* * * * *", 5, 150), ("* * * * * *", 1, 100)],
)
def test_as_many_are_caught_up_as_promised_and_one_row_tells_of_the_rest(
    clock: ManualClock, declare: Declare, expression: str, hours: int, limit: int
) -> None:
    declare(expression=expression, missed=Missed.ALL, missed_limit=limit)
    ticker = Ticker()
    ticker.tick()
    clock.advance(hours * 3600)
    decided = [decision for _, _, decision in told(ticker)]
    assert decided[: limit + 1] == ["missed", *["caught-up"] * limit]
    assert set(decided[limit + 1 :]) == {"enqueued"}
    rest = ScheduleTick.objects.get(decision="missed")
    assert "it stands for all that were missed before it" in rest.reason


def test_a_later_tick_that_is_on_time_makes_the_missed_ones_superfluous(
    clock: ManualClock, declare: Declare
) -> None:
    declare(expression="0 * * * *")
    Ticker().tick()
    clock.advance(2 * 3600)
    assert told(Ticker()) == [("bell", "23:00", "missed"), ("bell", "00:00", "enqueued")]


def test_past_its_deadline_a_tick_is_not_made_up_for(clock: ManualClock, declare: Declare) -> None:
    declare(expression="0 * * * *", deadline=300)
    Ticker().tick()
    clock.advance(3600 + 10 * MINUTE)
    assert told(Ticker()) == [("bell", "23:00", "missed")]
    assert "630 s late, its deadline is 300 s" in ScheduleTick.objects.latest("tick").reason


def test_a_changed_expression_has_missed_nothing(
    clock: ManualClock, declare: Declare, schedules: list[Schedule]
) -> None:
    declare(expression="0 3 * * *")
    ticker = Ticker()
    ticker.tick()
    clock.advance(1800)
    schedules.clear()
    declare(expression="* * * * *")
    assert told(ticker) == [("bell", "22:30", "enqueued")]


@pytest.mark.parametrize(
    "change",
    [{"timezone": "Asia/Tokyo"}, {"daylight": Daylight.FIXED}, {"expression": "0 4 * * *"}],
)
def test_whatever_its_moments_depend_on_a_schedule_begins_anew_when_it_changes(
    clock: ManualClock, declare: Declare, schedules: list[Schedule], change: dict[str, Any]
) -> None:
    first = {"expression": "0 3 * * *", "timezone": "Europe/Paris"}
    declare(**first)
    ticker = Ticker()
    ticker.tick()
    clock.advance(1800)
    schedules.clear()
    changed = declare(**{**first, **change})
    ticker.tick()
    row = ScheduleState.objects.get()
    assert row.begun >= clock.now() - MINUTE * SECOND
    assert row.next_due == due_after(changed, clock.now())


def test_overlap_skip_leaves_a_tick_out_while_the_job_lives(
    clock: ManualClock, declare: Declare
) -> None:
    declare(overlap=Overlap.SKIP)
    ticker = Ticker()
    ticker.tick()
    clock.advance(MINUTE)
    assert told(ticker) == [("bell", "22:01", "skipped")]
    assert process_once("clockwork").status == "acked"
    clock.advance(MINUTE)
    assert told(ticker) == [("bell", "22:02", "enqueued")]


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE_ONE])
def test_the_jobs_of_other_schedules_are_no_overlap(
    clock: ManualClock, declare: Declare, overlap: Overlap
) -> None:
    names = ["bell", "gong", "horn"]
    for name in names:
        declare(name, overlap=overlap)
    assert told(Ticker()) == [(name, "22:00", "enqueued") for name in names]


def test_overlap_queue_one_lets_one_wait(clock: ManualClock, declare: Declare) -> None:
    declare(overlap=Overlap.QUEUE_ONE)
    ticker = Ticker()
    ticker.tick()
    assert backends["database"].fetch(["clockwork"], 1, 6000)
    clock.advance(MINUTE)
    assert told(ticker) == [("bell", "22:01", "enqueued")]
    clock.advance(MINUTE)
    assert told(ticker) == [("bell", "22:02", "skipped")]
    assert not backends["database"].fetch(["clockwork"], 1, 6000)  # it waits for the first
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.RUNNING, JobState.BLOCKED}


def test_a_dependency_has_to_succeed_first(clock: ManualClock, declare: Declare) -> None:
    declare("report", depends_on=("load",), dependency=Dependency.SUCCEEDED)
    declare("load", options={"queue": "loading"})
    ticker = Ticker()
    assert told(ticker) == [("load", "22:00", "enqueued"), ("report", "22:00", "waiting")]
    assert told(ticker) == []
    process_once("loading")
    assert told(ticker) == [("report", "22:00", "enqueued")]
    assert told(ticker) == []
    assert Job.objects.get().schedule == "report"


def test_a_failed_dependency_is_a_reason_to_skip(clock: ManualClock, declare: Declare) -> None:
    declare("report", depends_on=("load",), dependency=Dependency.SUCCEEDED)
    declare("load", handler="inline_failure", options={"queue": "loading", "max_retries": 0})
    ticker = Ticker()
    ticker.tick()
    process_once("loading")
    assert told(ticker) == [("report", "22:00", "skipped")]
    assert "load" in ScheduleTick.objects.get(name="report").reason
    assert "dead" in ScheduleTick.objects.get(name="report").reason


def test_a_schedule_that_fails_to_enqueue_stops_no_other(
    clock: ManualClock, declare: Declare
) -> None:
    declare("broken", handler="nobody")
    declare("bell")
    assert told(Ticker()) == [("broken", "22:00", "failed"), ("bell", "22:00", "enqueued")]
    row = ScheduleTick.objects.get(name="broken")
    assert row.reason.startswith("UnknownHandler: no handler is registered as")
    assert (row.job_id, row.outcome) == (None, "none")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"enabled": False}, "not enabled"),
        ({"environments": ("production",)}, "runs in production only"),
    ],
)
def test_a_shut_gate_is_recorded_with_its_reason(
    clock: ManualClock, declare: Declare, fields: dict[str, Any], reason: str
) -> None:
    declare(**fields)
    assert told(Ticker()) == [("bell", "22:00", "skipped")]
    assert reason in ScheduleTick.objects.get().reason


def test_a_test_time_moves_no_schedule_and_counts_for_good(
    clock: ManualClock, declare: Declare
) -> None:
    declare(expression="0 3 * * *")
    ticker = Ticker()
    at = clock.now() + 5 * 3600 * 1_000_000 - 20_000_000
    assert told(ticker, at=at) == [("bell", "03:00", "enqueued")]
    assert told(ticker, at=at) == []
    clock.advance(5 * 3600)
    assert told(ticker) == []
    clock.advance(24 * 3600)
    assert told(ticker) == [("bell", "03:00", "enqueued")]


def test_only_the_chosen_ones_are_decided(clock: ManualClock, declare: Declare) -> None:
    declare("bell")
    declare("gong")
    assert told(Ticker(), only=["gong"]) == [("gong", "22:00", "enqueued")]
    assert told(Ticker()) == [("bell", "22:00", "enqueued")]
