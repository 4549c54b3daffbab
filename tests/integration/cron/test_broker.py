"""Schedules whose jobs go to a broker, and schedulers that are killed before it hears of them."""

import collections
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from django_jobs.backends.home import store_now
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.cron.history import Outcomes
from django_jobs.models import OutboxJob, ScheduleTick
from testproject.shop.models import Order
from tests.conformance.redis_hooks import emptied
from tests.services import REDIS_URL

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.needs("redis")]
ROOT = Path(__file__).resolve().parents[3]
PREFIX = f"cron-{os.getpid()}"
PATIENCE_SECONDS = 120
DIES = ("-m", "tests.integration.cron.dying")
TICKS = ("testproject/manage.py", "jobs_cron")
WORKS = ("testproject/manage.py", "jobs_work", "--processes", "1", "--until-empty")
NAMES = ("one", "two")


class Runs(Protocol):
    def __call__(self, *command: str, code: int = 0) -> str: ...


@pytest.fixture
def site(
    request: pytest.FixtureRequest, site_environment: dict[str, str], settings: Any
) -> Callable[..., Runs]:
    """Runs a command in a site whose schedules have their jobs in Redis."""

    def configured(**said: Any) -> Runs:
        jobs = {
            "BACKENDS": {
                "broker": {
                    "BACKEND": "django_jobs.backends.redis.RedisBackend",
                    "OPTIONS": {"URL": REDIS_URL, "PREFIX": PREFIX},
                    **said,
                }
            },
            "DEFAULT_BACKEND": "broker",
            "SCHEDULE": {
                name: {
                    "HANDLER": "depot.deliver",
                    "CRON": "* * * * *",
                    "ARGS": [name],
                    "QUEUE": "depot",
                }
                for name in NAMES
            },
        }
        settings.DJANGO_JOBS = jobs
        client = backends["broker"].store.connection.client  # type: ignore[attr-defined] # Redis'
        request.addfinalizer(lambda: emptied(client, PREFIX))
        environment = {
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.outbox.depot.settings",
            "DEPOT_JOBS": json.dumps(jobs),
        }

        def run(*command: str, code: int = 0) -> str:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            assert done.returncode == code, done.stderr[-3000:]
            return done.stdout

        return run

    return configured


def delivered() -> collections.Counter[str]:
    """How often each schedule's handler ran, as its rows tell."""
    found = Order.objects.filter(email__endswith="@delivered.example")
    emails = found.values_list("email", flat=True)
    return collections.Counter(email.partition("@")[0] for email in emails)


def enqueued() -> collections.Counter[str]:
    rows = ScheduleTick.objects.filter(decision="enqueued", outcome__in=("open", "succeeded"))
    return collections.Counter(rows.values_list("name", flat=True))


def test_killed_between_commit_and_push_with_an_outbox_each_tick_has_one_job(
    site: Callable[..., Runs],
) -> None:
    run = site(OUTBOX=True)
    run(*DIES, code=-signal.SIGKILL)
    assert OutboxJob.objects.count() == ScheduleTick.objects.count() == len(NAMES)
    assert not delivered()
    run(*TICKS)
    run(*WORKS)
    assert delivered() == enqueued()
    assert set(delivered()) == set(NAMES)
    assert not OutboxJob.objects.exists()
    assert "succeeded" in run(*TICKS, "--list", "--json")


def test_killed_between_commit_and_push_without_an_outbox_the_tick_tells_that_its_job_is_lost(
    site: Callable[..., Runs],
) -> None:
    """What an outbox is for; and it shows that the signal comes where it is meant to."""
    run = site()
    run(*DIES, code=-signal.SIGKILL)
    lost = list(ScheduleTick.objects.all())
    assert {(one.decision, one.outcome) for one in lost} == {("enqueued", "open")}
    run(*TICKS)
    run(*WORKS)
    wanted = enqueued() - collections.Counter(one.name for one in lost)
    assert delivered() == wanted
    Outcomes("default").step(store_now("default") + 600 * SECOND)
    for one in lost:
        one.refresh_from_db()
        assert one.outcome == "unknown"
