"""``jobs_cron``: what people and scripts see of schedules, and do about them."""

from collections.abc import Callable
from datetime import time
from typing import Any

import pytest

from django_jobs.clock import ManualClock
from django_jobs.cron import loop
from django_jobs.cron.options import Window
from django_jobs.cron.schedule import Schedule
from django_jobs.models import Job, OperatorEvent, ScheduleTick

pytestmark = pytest.mark.django_db
Declare = Callable[..., Schedule]
Run = Callable[..., Any]


def test_a_tick_tells_what_it_enqueued(clock: ManualClock, declare: Declare, run: Run) -> None:
    declare("bell")
    declare("later", "0 3 * * *")
    done = run("jobs_cron")
    assert done.code == 0, done.err
    job = Job.objects.get()
    assert done.out == f"enqueued   bell of 2031-05-04 22:00:00 UTC as {job.id}\n"
    again = run("jobs_cron", verbosity=2)
    assert (again.code, again.out) == (0, "nothing was due\n")


def test_a_tick_as_json(clock: ManualClock, declare: Declare, run: Run) -> None:
    declare("bell", enabled=False)
    (one,) = run("jobs_cron", "--json").json()["decided"]
    assert one == {
        "name": "bell",
        "tick": "2031-05-04T22:00:00+00:00",
        "decision": "skipped",
        "reason": one["reason"],
        "job_id": "",
    }
    assert "not enabled" in one["reason"]


def test_only_some_of_them(clock: ManualClock, declare: Declare, run: Run) -> None:
    for name in ("a", "b", "c"):
        declare(name)
    decided = run("jobs_cron", "--only", "a", "--only", "c", "--json").json()["decided"]
    assert sorted(one["name"] for one in decided) == ["a", "c"]
    wrong = run("jobs_cron", "--only", "d")
    assert wrong.code == 2
    assert "no schedule has the name 'd'" in wrong.err


def test_only_says_what_it_waits_for_and_ends(
    clock: ManualClock, declare: Declare, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "PATIENCE_SECONDS", 0.2)
    declare("load")
    declare("report", depends_on=("load",))
    done = run("jobs_cron", "--only", "report")
    assert done.code == 1
    assert done.out == (
        "undecided  report of 2031-05-04 22:00:00 UTC: waits for load, which no scheduler has "
        "decided; name it with --only as well, or leave --only out\n"
    )
    both = run("jobs_cron", "--only", "report", "--only", "load", "--json")
    assert both.code == 0
    decided = [(one["name"], one["decision"]) for one in both.json()["decided"]]
    assert decided == [("load", "enqueued"), ("report", "enqueued")]


def test_a_dry_run_tells_why_not_and_changes_nothing(
    clock: ManualClock, declare: Declare, run: Run
) -> None:
    declare("bell")
    declare("night", between=(Window(time(1), time(2)),))
    declare("later", "0 3 * * *")
    out = run("jobs_cron", "--dry-run").out
    assert "enqueued   bell of 2031-05-04 22:00:00 UTC\n" in out
    assert "skipped    night" in out
    assert "between 01:00-02:00 only" in out
    assert "not-due    later of 2031-05-05 03:00:00 UTC" in out
    assert not Job.objects.exists()
    assert not ScheduleTick.objects.exists()


def test_a_time_that_is_made_up(clock: ManualClock, declare: Declare, run: Run) -> None:
    declare("later", "30 3 * * *", timezone="Europe/Paris")
    moment = "2031-06-01T03:30:20+02:00"
    (dry,) = run("jobs_cron", "--dry-run", "--test-time", moment, "--json").json()["decided"]
    assert (dry["decision"], dry["tick"]) == ("enqueued", "2031-06-01T01:30:00+00:00")
    assert not Job.objects.exists()
    (one,) = run("jobs_cron", "--test-time", moment, "--json").json()["decided"]
    assert one["job_id"] == str(Job.objects.get().id)
    assert run("jobs_cron", "--test-time", moment, "--json").json()["decided"] == []


def test_a_list_for_people(clock: ManualClock, declare: Declare, run: Run) -> None:
    declare("bell", "*/30 2 * * *", timezone="Asia/Tokyo")
    declare("off", "0 0 29 2 *", enabled=False)
    run("jobs_cron", "--pause", "bell", "--reason", "too loud")
    headers, bell, off = run("jobs_cron", "--list").out.splitlines()
    assert headers.split()[:2] == ["schedule", "expression"]
    assert "at 02:00 and 02:30 every day    Asia/Tokyo" in bell
    assert "2031-05-06 02:00, 02:30, 2031-05-07 02:00, 02:30, 2031-05-08 02:00" in bell
    assert "too loud" in bell
    assert "on day 29 of February" in off
    assert off.endswith("off")


def test_a_list_for_scripts(clock: ManualClock, declare: Declare, run: Run) -> None:
    declare("bell", description="rings")
    run("jobs_cron")
    (one,) = run("jobs_cron", "--list", "--json").json()["schedules"]
    assert one["in_words"] == "every minute"
    assert one["next_runs"][:2] == ["2031-05-04T22:01:00+00:00", "2031-05-04T22:02:00+00:00"]
    assert len(one["next_runs"]) == 5
    assert (one["last"]["decision"], one["last"]["outcome"]) == ("enqueued", "open")
    assert (one["queue"], one["description"], one["paused"]) == ("clockwork", "rings", False)


def test_there_may_be_none(clock: ManualClock, run: Run) -> None:
    assert "no schedules; declare one with @cron" in run("jobs_cron", "--list").out


def test_pause_and_resume(clock: ManualClock, declare: Declare, run: Run) -> None:
    declare("bell")
    assert run("jobs_cron", "--pause", "bell", "--reason", "too loud").out == "bell: paused\n"
    assert run("jobs_cron", "--pause", "bell", "--json").json()["changed"] is False
    assert [one["decision"] for one in run("jobs_cron", "--json").json()["decided"]] == ["skipped"]
    assert run("jobs_cron", "--resume", "bell").out == "bell: resumed\n"
    assert run("jobs_cron", "--resume", "bell").out == "bell: nothing changed\n"
    clock.advance(60)
    assert [one["decision"] for one in run("jobs_cron", "--json").json()["decided"]] == ["enqueued"]
    actions = list(OperatorEvent.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["pause-schedule", "resume-schedule"]


def test_run_now_and_the_history(clock: ManualClock, declare: Declare, run: Run) -> None:
    declare("bell", enabled=False)
    done = run("jobs_cron", "--run-now", "bell", "--reason", "to hear it")
    assert done.code == 0, done.err
    assert done.out.startswith("run-now    bell of 2031-05-04 22:00:30 UTC as ")
    (tick,) = run("jobs_cron", "--history", "bell", "--json").json()["ticks"]
    assert (tick["decision"], tick["reason"], tick["outcome"]) == ("run-now", "to hear it", "open")
    assert "to hear it" in run("jobs_cron", "--history", "bell").out
    assert "no schedule has the name 'bill'" in run("jobs_cron", "--history", "bill").err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--list", "--loop"], "not allowed with"),
        (["--list", "--test-time", "2031-06-01T03:30Z"], "for a tick, or for --dry-run"),
        (["--pause", "bell", "--only", "bell"], "names the schedule"),
        (["--loop", "--json"], "has no end"),
        (["--list", "--reason", "x"], "--pause, --resume and --run-now"),
        (["--test-time", "2031-06-01T03:30"], "has no time zone"),
        (["--pause", "bill"], "did you mean 'bell'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], why: str, declare: Declare, run: Run
) -> None:
    declare("bell")
    done = run("jobs_cron", *arguments)
    assert done.code in {1, 2}
    assert why in done.err


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"CRON": "0 25 * * *"}, "'0 25 * * *' is no cron expression"),
        ({"CRON": "@daily", "DEPENDS_ON": "y"}, "depends on 'y'"),
        ({"CRON": "@daily", "DEPENDS_ON": "x"}, "in a circle"),
    ],
)
def test_no_tick_with_schedules_that_are_wrong(
    entry: dict[str, str], why: str, settings: Any, declare: Declare, run: Run
) -> None:
    handler = declare("bell").handler
    settings.DJANGO_JOBS = {"SCHEDULE": {"x": {"HANDLER": handler, **entry}}}
    for arguments in ([], ["--loop"], ["--dry-run"]):
        done = run("jobs_cron", *arguments)
        assert done.code == 2
        assert why in done.err
    assert not Job.objects.exists()
