"""Old ticks are deleted, however many others are kept."""

from datetime import timedelta
from typing import Any

import pytest

from django_jobs.clock import SECOND, ManualClock
from django_jobs.cron import history
from django_jobs.cron.history import TickPurge, purge_ticks
from django_jobs.db.clock import for_people
from django_jobs.models import ScheduleTick, schedule_key

pytestmark = pytest.mark.django_db
DAY = 86_400 * SECOND
KEPT = 5


def ticks(name: str, count: int, every: int, now: int, begin: int = 0, **fields: str) -> None:
    moments = [now - begin - number * every for number in range(count)]
    given = {"decision": "enqueued", "outcome": "succeeded", **fields}
    ScheduleTick.objects.bulk_create(
        ScheduleTick(key=schedule_key(name), name=name, tick=at, decided_at=for_people(at), **given)
        for at in moments
    )


def left(name: str) -> int:
    return ScheduleTick.objects.filter(name=name).count()


def test_old_ticks_are_purged_beside_many_that_are_kept(clock: ManualClock) -> None:
    now = clock.now()
    for number in range(50):  # more kept ticks than all pages of a step could hold
        ticks(f"rare {number}", KEPT, 60 * DAY, now, begin=60 * DAY)
    ticks("often", 35, 60 * SECOND, now, begin=31 * DAY)
    gone = [purge_ticks("default", now, kept=KEPT, step=10) for _ in range(4)]
    assert gone == [10, 10, 10, 0]
    assert left("often") == KEPT
    assert ScheduleTick.objects.count() == 51 * KEPT


def test_one_round_reaches_every_schedule_wherever_it_begins(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "SCHEDULES_AT_ONCE", 3)
    now = clock.now()
    for number in range(20):
        ticks(f"bell {number}", KEPT + 2, DAY, now, begin=40 * DAY)
    purge = TickPurge("default", kept=KEPT)
    gone, steps = purge.step(now), 1
    while not purge.round_is_over:
        gone, steps = gone + purge.step(now), steps + 1
    assert gone == 40
    assert steps <= 20 / 3 + 2
    assert {left(f"bell {number}") for number in range(20)} == {KEPT}


def test_a_purge_costs_statements_by_schedules_and_not_by_ticks(
    clock: ManualClock, django_assert_num_queries: Any
) -> None:
    now = clock.now()
    for number in range(60):
        ticks(f"rare {number}", KEPT, 60 * DAY, now, begin=60 * DAY)
    purge = TickPurge("default", kept=KEPT)
    with django_assert_num_queries(2):
        assert purge.step(now) == 0


@pytest.mark.parametrize("fields", [{"outcome": "open"}, {"decision": "waiting"}])
def test_what_waits_or_has_a_live_job_stays_however_old(
    clock: ManualClock, fields: dict[str, str]
) -> None:
    now = clock.now()
    ticks("bell", 10, DAY, now, begin=100 * DAY, **fields)
    ticks("bell", 10, DAY, now, begin=50 * DAY)
    assert purge_ticks("default", now, older_than=timedelta(days=30), kept=KEPT) == 5
    assert left("bell") == 15
