"""User code of schedules runs in children: gates and inline jobs, and what becomes of them."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_jobs.backends import crash_events
from django_jobs.backends.registry import backends
from django_jobs.clock import ManualClock
from django_jobs.cron import decide
from django_jobs.cron.loop import Loop, tick_once
from django_jobs.cron.registry import registry
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.tick import Ticker
from django_jobs.models import FailedJob, Job, JobResult, JobState, ScheduleTick
from django_jobs.operations.schedules import schedule_history
from testproject.shop.models import Order
from tests.integration.cron.clockwork import jobs
from tests.integration.worker.pool.conftest import children_of

pytestmark = pytest.mark.django_db(transaction=True)
Declare = Callable[..., Schedule]
INLINE: dict[str, Any] = {"options": {"queue": None}}


def test_when_is_asked_in_another_process(clock: ManualClock, declare: Declare) -> None:
    declare(when=jobs.yes)
    (decided,) = Ticker().tick()
    assert decided.decision == "enqueued"
    (told,) = Order.objects.values_list("email", flat=True)
    assert told.startswith("when-")
    assert str(os.getpid()) not in told


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        (jobs.no, "its when said no"),
        (jobs.breaks, "its when failed: ValueError: the moon is not full"),
        (jobs.dies, "its when failed: its process was killed by SIGKILL"),
    ],
)
def test_a_when_that_says_no_or_fails_is_recorded(
    clock: ManualClock, declare: Declare, when: Callable[[], bool], reason: str
) -> None:
    declare(when=when)
    declare("other")
    decided = {one.name: (one.decision, one.reason) for one in Ticker().tick()}
    assert decided == {"bell": ("skipped", reason), "other": ("enqueued", "")}
    assert Job.objects.count() == 1


def test_a_when_that_hangs_is_killed(
    clock: ManualClock, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "WHEN_SECONDS", 0.5)
    declare(when=jobs.hangs)
    began = time.monotonic()
    (decided,) = Ticker().tick()
    assert decided.reason == "its when failed: it did not end in time and was killed"
    assert time.monotonic() - began < 30


def test_only_a_few_are_asked_at_once(
    clock: ManualClock, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_CHILDREN", str(len(children_of(os.getpid()))))
    count = 3 * decide.WHEN_AT_ONCE
    for number in range(count):
        declare(f"bell-{number}", when=jobs.with_few_others)
    decided = Ticker().tick()
    assert [one.decision for one in decided] == ["enqueued"] * count


def test_what_a_scheduler_that_died_has_left_is_run_without_any_worker(
    clock: ManualClock, declare: Declare
) -> None:
    declare(handler="inline_chime", **INLINE)
    Ticker().tick()
    assert backends["database"].fetch(["inline"], 1, 20.0)  # and then it dies
    loop = Loop()
    loop.step()
    loop.end(urgent=lambda: False)
    assert not JobResult.objects.exists()
    clock.advance(21)
    again = Loop()
    again.step()
    again.end(urgent=lambda: False)
    assert JobResult.objects.get().status == "succeeded"


def test_a_tick_from_a_crontab_runs_what_another_has_left(
    clock: ManualClock, declare: Declare
) -> None:
    declare(handler="inline_chime", **INLINE)
    Ticker().tick()
    assert backends["database"].fetch(["inline"], 1, 20.0)
    clock.advance(21)
    tick_once()
    assert schedule_history("bell")[0].outcome == "succeeded"


def test_a_schedule_without_a_queue_runs_in_a_child(clock: ManualClock, declare: Declare) -> None:
    declare(handler="inline_chime", **INLINE)
    ticker = Ticker()
    ticker.tick()
    ticker.inline.finish(ticker.inline_aliases)
    result = JobResult.objects.get()
    assert (result.status, result.queue) == ("succeeded", "inline")
    assert int(result.value) != os.getpid()
    assert Order.objects.count() == 1
    assert schedule_history("bell")[0].outcome == "succeeded"


@pytest.mark.parametrize(
    ("handler", "reason"), [("inline_failure", "exhausted"), ("inline_suicide", "crashed")]
)
def test_an_inline_job_that_fails_is_a_dead_letter_after_one_attempt(
    clock: ManualClock,
    declare: Declare,
    monkeypatch: pytest.MonkeyPatch,
    handler: str,
    reason: str,
) -> None:
    monkeypatch.setattr(crash_events, "CRASH_DELAYS", (0.0,))
    declare(handler=handler, **INLINE)
    ticker = Ticker()
    ticker.tick()
    ticker.inline.finish(ticker.inline_aliases)
    assert FailedJob.objects.get().reason == reason
    assert not Job.objects.exists()
    assert schedule_history("bell")[0].outcome == "dead"
    assert ScheduleTick.objects.get().outcome == "dead"


SYNC = {"BACKEND": "django_jobs.backends.sync.SyncBackend"}


@pytest.fixture
def at_once(settings: Any) -> None:
    """Jobs run where they are enqueued."""
    settings.DJANGO_JOBS = {"BACKENDS": {"sync": SYNC}, "DEFAULT_BACKEND": "sync"}


def test_where_jobs_run_at_once_they_run_in_a_child(at_once: None, declare: Declare) -> None:
    declare(handler="inline_chime")
    (decided,) = tick_once()
    assert decided.decision == "enqueued"
    assert Order.objects.count() == 1
    (tick,) = schedule_history("bell")
    assert (tick.outcome, tick.job_id) == ("succeeded", decided.job_id)
    assert JobResult.objects.get().value != os.getpid()


def test_where_jobs_run_at_once_a_failure_is_the_outcome_of_the_tick(
    at_once: None, declare: Declare
) -> None:
    declare(handler="inline_failure", options={"max_retries": 0})
    tick_once()
    assert [tick.outcome for tick in schedule_history("bell")] == ["dead"]


def test_where_jobs_run_at_once_one_that_takes_its_process_with_it_is_told(
    at_once: None, declare: Declare
) -> None:
    declare(handler="inline_suicide")
    tick_once()
    (tick,) = schedule_history("bell")
    assert (tick.decision, tick.outcome) == ("enqueued", "unknown")
    assert tick.reason == "its process was killed by SIGKILL"


def test_a_tick_from_a_crontab_tells_that_its_child_could_not_enqueue(
    at_once: None, declare: Declare, schedules: list[Schedule]
) -> None:
    declare()
    (bell,), parent = schedules.copy(), os.getpid()
    schedules.clear()
    source = lambda: [bell] if os.getpid() == parent else []  # noqa: E731 - unknown in the child
    registry.register_source(source)
    try:
        (decided,) = tick_once()
    finally:
        registry._sources.remove(source)
    assert (decided.decision, decided.job_id) == ("failed", "")
    assert "bell" in decided.reason


def test_where_jobs_run_at_once_one_that_cannot_be_enqueued_is_told(
    at_once: None, declare: Declare, schedules: list[Schedule]
) -> None:
    declare()
    ticker = Ticker()
    ticker.tick()
    schedules.clear()  # the child is a copy of this process, and finds none of that name
    ticker.inline.finish([])
    (tick,) = schedule_history("bell")
    assert (tick.decision, tick.outcome, tick.job_id) == ("failed", "none", "")
    assert "bell" in tick.reason


def test_inline_jobs_are_given_back_though_the_store_fails_for_a_moment(
    clock: ManualClock, declare: Declare
) -> None:
    for number in range(3):
        declare(f"bell-{number}", handler="inline_long", **INLINE)
    loop = Loop()
    loop.step()
    assert loop.ticker.inline.running == 3
    failures = [OperationalError("gone")]

    def fail(execute: Callable[..., Any], sql: str, *given: Any) -> Any:
        if failures and sql.startswith(("UPDATE", "DELETE")) and "django_jobs_job" in sql:
            raise failures.pop()
        return execute(sql, *given)

    with connection.execute_wrapper(fail):
        loop.end(urgent=lambda: True)
    assert not failures
    told = set(Job.objects.values_list("state", "attempts", "crashes"))
    assert (told, Job.objects.count()) == ({(JobState.READY, 0, 0)}, 3)
