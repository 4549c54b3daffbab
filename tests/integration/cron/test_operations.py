"""What operators are told of schedules, what they do, and what is forgotten in time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_jobs.clock import ManualClock
from django_jobs.cron.history import Outcomes, purge_ticks
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.tick import Ticker
from django_jobs.exceptions import UnknownSchedule
from django_jobs.models import Job, OperatorEvent, ScheduleState, ScheduleTick
from django_jobs.operations.schedules import (
    overview_of_schedules,
    pause_schedule,
    preview_tick,
    resume_schedule,
    run_schedule_now,
    schedule_history,
)
from django_jobs.worker.build import process_once

pytestmark = pytest.mark.django_db
Declare = Callable[..., Schedule]
DAY = 24 * 3600


def test_the_overview_tells_the_last_tick_and_its_outcome(
    clock: ManualClock, declare: Declare
) -> None:
    declare()
    (one,) = overview_of_schedules()
    assert one.last is None
    assert [f"{moment:%H:%M}" for moment in one.next_runs] == [
        "22:01", "22:02", "22:03", "22:04", "22:05",
    ]  # fmt: skip
    Ticker().tick()
    (one,) = overview_of_schedules(only=["bell"])
    assert one.last is not None
    assert (one.last.decision, one.last.outcome) == ("enqueued", "open")
    process_once("clockwork")
    assert [tick.outcome for tick in schedule_history("bell")] == ["succeeded"]


def test_what_nobody_declared_is_refused_by_name(
    schedules: list[Schedule], declare: Declare
) -> None:
    declare()
    for operation in (
        lambda: pause_schedule("bel", by="sam"),
        lambda: run_schedule_now("bel", by="sam"),
        lambda: preview_tick(only=["bel"]),
    ):
        with pytest.raises(UnknownSchedule, match="bell"):
            operation()


def test_pausing_twice_is_pausing_once(clock: ManualClock, declare: Declare) -> None:
    declare()
    assert pause_schedule("bell", by="sam", reason="noise")
    assert not pause_schedule("bell", by="kim", reason="more noise")
    assert ScheduleState.objects.get().reason == "more noise"
    assert Ticker().tick()[0].reason == "paused by kim: more noise"
    assert resume_schedule("bell", by="kim")
    assert not resume_schedule("bell", by="kim")
    clock.advance(60)
    assert Ticker().tick()[0].decision == "enqueued"
    assert OperatorEvent.objects.count() == 2


def test_a_press_counts_once_and_each_press_for_itself(
    clock: ManualClock, declare: Declare
) -> None:
    declare()
    first = run_schedule_now("bell", by="sam", press="a")
    assert first.decision == "run-now"
    assert run_schedule_now("bell", by="sam", press="a").job_id == first.job_id
    clock.advance(1)
    assert run_schedule_now("bell", by="sam", press="b").job_id != first.job_id
    assert Job.objects.filter(schedule="bell").count() == 2
    assert Ticker().tick()[0].decision == "enqueued"  # the tick itself is untouched


def test_a_preview_gives_reasons_and_changes_nothing(clock: ManualClock, declare: Declare) -> None:
    declare("bell")
    declare("gong", enabled=False)
    declare("yearly", "0 0 1 1 *")
    told = {one.name: (one.decision, one.reason) for one in preview_tick()}
    assert told["bell"] == ("enqueued", "")
    assert told["gong"] == ("skipped", "it is not enabled")
    assert told["yearly"] == ("not-due", "not due before then")
    for table in (Job, ScheduleTick, ScheduleState, OperatorEvent):
        assert not table.objects.exists()
    Ticker().tick()
    told = {one.name: (one.decision, one.reason) for one in preview_tick()}
    assert told["bell"] == ("not-due", "not due before then")


def test_old_ticks_are_forgotten_but_not_the_latest(clock: ManualClock, declare: Declare) -> None:
    declare("bell")
    declare("gong", "0 * * * *")
    ticker = Ticker()
    for _ in range(6):
        ticker.tick()
        process_once("clockwork")
        process_once("clockwork")
        clock.advance(3600)
    assert purge_ticks("default", clock.now(), kept=2) == 0
    clock.advance(40 * DAY)
    Outcomes("default").step(clock.now())
    before = ScheduleTick.objects.filter(name="bell").order_by("-tick")
    latest = list(before.values_list("tick", flat=True)[:2])
    while purge_ticks("default", clock.now(), older_than=timedelta(days=30), kept=2, step=3):
        pass
    left = ScheduleTick.objects.filter(name="bell").order_by("-tick")
    assert list(left.values_list("tick", flat=True)) == latest
    assert ScheduleTick.objects.filter(name="gong").count() == 2


def test_the_overview_costs_as_many_queries_for_many_schedules_as_for_one(
    clock: ManualClock, declare: Declare, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        declare(f"bell {number}")
    Ticker().tick()
    declare("never ticked")
    run_schedule_now("never ticked", by="ada")
    with django_assert_max_num_queries(12):
        told = overview_of_schedules()
    assert all(one.last is not None and one.last.outcome == "open" for one in told)
    assert len(told) == 31
