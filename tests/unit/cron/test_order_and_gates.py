"""Who goes first, and what holds a schedule back."""

from datetime import UTC, datetime, time

import pytest

from django_jobs.cron.gates import run_when, shut
from django_jobs.cron.options import Window
from django_jobs.cron.registry import circle_among, in_order
from django_jobs.cron.schedule import Schedule
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import InvalidSchedule


def made(name="x", **given):
    given.setdefault("expression", "* * * * *")
    return Schedule(name=name, job=JobDefinition("h"), **given)


def names(schedules):
    return [schedule.name for schedule in schedules]


def test_those_that_others_depend_on_go_first():
    found = in_order(
        [
            made("report", depends_on=("load", "clean")),
            made("clean", depends_on=("load",)),
            made("alone"),
            made("load"),
        ]
    )
    assert sorted(names(found)) == ["alone", "clean", "load", "report"]
    places = {name: place for place, name in enumerate(names(found))}
    assert places["load"] < places["clean"] < places["report"]


def test_without_dependencies_they_stay_as_they_came():
    assert names(in_order([made("c"), made("a"), made("b")])) == ["c", "a", "b"]


def test_the_order_of_a_long_chain_needs_no_deep_stack():
    chain = [made(str(n), depends_on=(str(n + 1),) if n < 5000 else ()) for n in range(5001)]
    assert names(in_order(chain)) == [str(n) for n in range(5000, -1, -1)]


def test_a_name_that_nobody_has_is_told_with_the_nearest_one():
    with pytest.raises(InvalidSchedule, match=r"'report' depends on 'laod'.*did you mean 'load'"):
        in_order([made("report", depends_on=("laod",)), made("load")])


def test_a_circle_is_told():
    circle = [
        made("a", depends_on=("b",)),
        made("b", depends_on=("c",)),
        made("c", depends_on=("a",)),
    ]
    with pytest.raises(InvalidSchedule, match="in a circle: ") as caught:
        in_order([*circle, made("d")])
    told = str(caught.value)
    assert any(turn in told for turn in ("'a' → 'b' → 'c'", "'b' → 'c' → 'a'", "'c' → 'a' → 'b'"))
    assert circle_among(circle) is not None
    assert circle_among([made("a"), made("b", depends_on=("a",))]) is None


def test_one_that_depends_on_itself_is_a_circle():
    assert circle_among([made("a", depends_on=("a",))]) == (
        "schedules depend on each other in a circle: 'a' → 'a'"
    )


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_an_open_schedule_is_not_held_back():
    assert shut(made(), NOON, None) is None


def test_a_disabled_one_is():
    found = shut(made(enabled=False, environments=("live",)), NOON, None)
    assert found == "it is not enabled"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ("live", None),
        ("test", "runs in live, stage only, and this one is 'test'"),
        (None, "not set"),
    ],
)
def test_environments(environment, told):
    found = shut(made(environments=("live", "stage")), NOON, environment)
    assert (found is None) == (told is None)
    if found is not None:
        assert told in found
        assert "it runs in live, stage only" in found


@pytest.mark.parametrize(
    ("start", "end", "moment", "holds"),
    [
        ("08:00", "18:00", "08:00", True),
        ("08:00", "18:00", "17:59:59", True),
        ("08:00", "18:00", "18:00", False),
        ("08:00", "00:00", "23:59:59", True),
        ("22:00", "06:00", "23:00", True),
        ("22:00", "06:00", "05:59", True),
        ("22:00", "06:00", "06:00", False),
        ("22:00", "06:00", "12:00", False),
    ],
)
def test_a_window(start, end, moment, holds):
    window = Window(time.fromisoformat(start), time.fromisoformat(end))
    assert window.holds(time.fromisoformat(moment)) is holds


@pytest.mark.parametrize(("zone", "is_open"), [("UTC", True), ("Asia/Tokyo", False)])
def test_windows_are_read_by_the_clock_of_the_schedule(zone, is_open):
    schedule = made(between=(Window(time(8), time(18)),), timezone=zone)
    found = shut(schedule, NOON, None)
    assert (found is None) is is_open
    if found is not None:
        assert "between 08:00-18:00 only, and it was 21:00:00 in Asia/Tokyo" in found


def test_a_window_in_which_it_does_not_run():
    schedule = made(unless_between=(Window(time(11), time(13)), Window(time(1), time(2))))
    assert "not run between 11:00-13:00" in shut(schedule, NOON, None)
    assert shut(schedule, NOON.replace(hour=13), None) is None


async def at_night():
    return False


def test_when_is_a_function_a_coroutine_or_a_path():
    assert run_when(made())
    assert run_when(made(when=lambda: 1))
    assert not run_when(made(when=lambda: None))
    assert not run_when(made(when=at_night))
    assert run_when(made(when="os.getpid"))
