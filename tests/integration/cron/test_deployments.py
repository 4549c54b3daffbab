"""Two versions of the code at once, as while one takes the other's place."""

from collections.abc import Callable

import pytest

from django_jobs.clock import SECOND, ManualClock
from django_jobs.cron.book import LOOK_AGAIN_AFTER, version_of
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.tick import Preview, Ticker
from django_jobs.models import ScheduleState
from django_jobs.operations.schedules import pause_schedule

pytestmark = pytest.mark.django_db
Declare = Callable[..., Schedule]


class Code:
    """A scheduler together with the schedules that its code declares."""

    def __init__(self, schedules: list[Schedule]) -> None:
        self._in_force = schedules
        self.own = schedules.copy()
        self.ticker = Ticker()

    def tick(self) -> list[tuple[str, str, str]]:
        self._in_force[:] = self.own
        return [(one.name, f"{one.tick:%H:%M}", one.decision) for one in self.ticker.tick()]


@pytest.fixture
def old(clock: ManualClock, declare: Declare, schedules: list[Schedule]) -> Code:
    declare(expression="0 3 * * *")
    code = Code(schedules)
    assert code.tick() == []
    return code


@pytest.fixture
def new(old: Code, declare: Declare, schedules: list[Schedule]) -> Code:
    schedules.clear()
    declare(expression="* * * * *")
    code = Code(schedules)
    assert code.tick() == [("bell", "22:00", "enqueued")]
    return code


def test_old_code_does_not_silence_a_schedule_that_changed(
    old: Code, new: Code, clock: ManualClock
) -> None:
    for minute in ("22:01", "22:02", "22:03"):
        clock.advance(60)
        assert old.tick() == []
        assert old.ticker.seconds_left(5.0) == 5.0
        assert new.tick() == [("bell", minute, "enqueued")]


def test_what_changes_in_old_code_besides_takes_nothing_from_the_new(
    old: Code, new: Code, clock: ManualClock, declare: Declare, schedules: list[Schedule]
) -> None:
    schedules[:] = old.own
    old.own.append(declare("gong", expression="0 4 * * *"))
    clock.advance(60)
    assert old.tick() == []
    pause_schedule("bell", by="ada")  # on a web server that still has the old code
    assert new.tick() == [("bell", "22:01", "skipped")]


def test_a_row_whose_code_is_gone_is_taken_back(
    old: Code, new: Code, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert ScheduleState.objects.get().version == version_of(new.own[0])
        clock.advance(LOOK_AGAIN_AFTER / SECOND)
        assert old.tick() == []
    assert ScheduleState.objects.get().version == version_of(old.own[0])
    told = [one for one in caplog.records if one.key == "cron.schedule_of_other_code"]  # type: ignore[attr-defined] # ours
    assert [one.getMessage().rpartition(": ")[2] for one in told] == [
        "it is left to that",
        "it was so for long, and is taken back",
    ]
    clock.advance(6 * 3600)
    assert old.tick() == [("bell", "03:00", "caught-up")]


def test_a_preview_tells_what_this_code_would_do(
    old: Code, new: Code, clock: ManualClock, schedules: list[Schedule]
) -> None:
    schedules[:] = old.own
    assert [one.decision for one in Preview().decisions()] == ["not-due"]
