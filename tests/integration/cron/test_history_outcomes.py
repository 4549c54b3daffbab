"""How the jobs of ticks ended is known, whatever is kept of their results."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs.backends.home import store_now
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND, ManualClock
from django_jobs.conf import get_settings
from django_jobs.cron.history import Outcomes
from django_jobs.cron.options import Dependency, Overlap
from django_jobs.cron.problems import unrunnable
from django_jobs.cron.schedule import Schedule, keeping_results
from django_jobs.cron.tick import Ticker
from django_jobs.db.clock import StoreClock
from django_jobs.definition import Options
from django_jobs.models import Job, JobResult, OutboxJob, ScheduleTick
from django_jobs.worker.build import build_relay, process_once
from tests.conformance.redis_hooks import emptied
from tests.services import REDIS_URL

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
Declare = Callable[..., Schedule]
PREFIX = f"outcomes-{os.getpid()}"
CARRIERS = {
    "tables": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
    "other": {
        "BACKEND": "django_jobs.backends.database.DatabaseBackend",
        "OPTIONS": {"DATABASE": "other"},
    },
    "outbox": {
        "BACKEND": "django_jobs.backends.database.DatabaseBackend",
        "OPTIONS": {"DATABASE": "other"},
        "OUTBOX": "default",
    },
    "redis": {
        "BACKEND": "django_jobs.backends.redis.RedisBackend",
        "OPTIONS": {"URL": REDIS_URL, "PREFIX": PREFIX},
    },
    "memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
}


@pytest.fixture(
    params=[
        "tables",
        "other",
        "outbox",
        "memory",
        pytest.param("redis", marks=pytest.mark.needs("redis")),
    ]
)
def carrier(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """What carries the jobs of a site that keeps no results; its ticks are in "default"."""
    settings.DJANGO_JOBS = {
        "BACKENDS": {"tables": CARRIERS["tables"], request.param: CARRIERS[request.param]},
        "DEFAULT_BACKEND": "tables",
        "RESULT_TTL": 0,
    }
    yield str(request.param)
    if request.param == "redis":
        emptied(backends["redis"].store.connection.client, PREFIX)  # type: ignore[attr-defined] # Redis'


class Site:
    """A scheduler whose clock can be moved, and a worker."""

    def __init__(self, carrier: str) -> None:
        self.carrier = carrier
        self.ticker = Ticker()
        now = store_now("default")
        self.clock = ManualClock(now - now % (60 * SECOND) + SECOND)
        self.ticker.clock = StoreClock(self.clock)

    def decided(self) -> list[tuple[str, str]]:
        found = [(one.name, one.decision) for one in self.ticker.tick()]
        self.clock.advance(60)
        return found

    def work(self, queue: str = "clockwork") -> None:
        self.push()
        assert process_once(queue, backend=self.carrier).status == "acked"

    def push(self) -> None:
        if relay := build_relay(backends[self.carrier], get_settings()):
            relay.step()


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE_ONE])
def test_a_job_that_keeps_no_result_overlaps_no_later_tick(
    carrier: str, declare: Declare, overlap: Overlap
) -> None:
    options = {"backend": carrier, "result_ttl": 0}
    declare(overlap=overlap, options=options)
    site = Site(carrier)
    for _ in range(4):
        assert site.decided() == [("bell", "enqueued")]
        site.work()
    assert site.decided() == [("bell", "enqueued")]
    if overlap is Overlap.SKIP:
        assert site.decided() == [("bell", "skipped")]  # this one does live


@pytest.mark.parametrize("ttl", [None, 0])
def test_a_dependency_that_keeps_no_result_has_succeeded_when_it_has(
    carrier: str, declare: Declare, ttl: float | None
) -> None:
    declare("report", depends_on=("load",), dependency=Dependency.SUCCEEDED)
    options = {"backend": carrier, "queue": "loading", "result_ttl": ttl}
    declare("load", options=options)
    site = Site(carrier)
    assert site.decided() == [("load", "enqueued"), ("report", "waiting")]
    site.work("loading")
    assert ("report", "enqueued") in site.decided()
    assert ScheduleTick.objects.filter(name="load", outcome="succeeded").count() == 1


def test_a_result_that_would_go_between_two_looks_is_kept_for_a_day() -> None:
    day = 86_400.0
    assert keeping_results(Options(result_ttl=2.5), 2 * day).result_ttl == day
    assert keeping_results(Options(), 2.5).result_ttl == day
    assert keeping_results(Options(result_ttl=2 * day), 0).result_ttl == 2 * day
    assert keeping_results(Options(), day).result_ttl is None


@pytest.mark.parametrize("carrier", ["tables"], indirect=True)
def test_a_job_that_is_gone_from_the_ticks_own_database_has_ended(
    carrier: str, declare: Declare
) -> None:
    declare(overlap=Overlap.SKIP)
    site = Site(carrier)
    assert site.decided() == [("bell", "enqueued")]
    site.work()
    JobResult.objects.all().delete()  # as jobs_purge does
    assert site.decided() == [("bell", "enqueued")]
    outcomes = ScheduleTick.objects.order_by("tick").values_list("outcome", flat=True)
    assert list(outcomes) == ["unknown", "open"]


@pytest.mark.parametrize("carrier", ["outbox"], indirect=True)
def test_a_job_that_waits_in_an_outbox_is_open_however_long(carrier: str, declare: Declare) -> None:
    declare(overlap=Overlap.SKIP, options={"backend": carrier, "result_ttl": 0})
    site = Site(carrier)
    assert site.decided() == [("bell", "enqueued")]
    assert OutboxJob.objects.count() == 1
    site.clock.advance(3600)
    Outcomes("default").step(site.ticker.now())
    assert ScheduleTick.objects.get().outcome == "open"
    site.push()
    Outcomes("default").step(site.ticker.now())
    assert ScheduleTick.objects.get().outcome == "open"
    site.work()
    Outcomes("default").step(site.ticker.now())
    assert ScheduleTick.objects.get().outcome == "succeeded"


@pytest.mark.needs("redis")
def test_a_schedule_whose_job_keeps_no_result_may_go_through_an_outbox(
    declare: Declare, settings: Any
) -> None:
    settings.DJANGO_JOBS = {"BACKENDS": {"redis": {**CARRIERS["redis"], "OUTBOX": True}}}
    settings.DJANGO_JOBS["DEFAULT_BACKEND"] = "redis"
    assert list(unrunnable(declare(options={"result_ttl": 0}))) == []
    assert not Job.objects.exists()
