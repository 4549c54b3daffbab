"""A broker that is told after the commit, and does not answer: nobody is told that all is well."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_jobs.clock import ManualClock
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.tick import Ticker
from django_jobs.ids import new_id
from django_jobs.models import ScheduleTick, schedule_key

pytestmark = pytest.mark.django_db(transaction=True)
Declare = Callable[..., Schedule]
Run = Callable[..., Any]
NOBODY_THERE = {
    "BACKEND": "django_jobs.backends.redis.RedisBackend",
    "OPTIONS": {"URL": "redis://127.0.0.1:1/0"},
}


@pytest.fixture
def bell(settings: Any, request: pytest.FixtureRequest) -> ManualClock:
    """A schedule whose jobs go there. Settings before any clock: they bring new backends."""
    database = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}
    settings.DJANGO_JOBS = {
        "BACKENDS": {"database": database, "away": NOBODY_THERE},
        "QUEUES": {"clockwork": {"BACKEND": "away"}},
    }
    clock: ManualClock = request.getfixturevalue("clock")
    request.getfixturevalue("declare")()
    return clock


def test_a_tick_tells_that_it_failed(bell: ManualClock) -> None:
    (decided,) = Ticker().tick()
    assert (decided.decision, decided.job_id) == ("failed", "")
    assert decided.reason
    row = ScheduleTick.objects.get()
    assert (row.decision, row.outcome, row.job_id) == ("failed", "none", None)


def test_jobs_cron_ends_with_a_failure(bell: ManualClock, run: Run) -> None:
    for command in ((), ("--run-now", "bell")):
        done = run("jobs_cron", *command, "--json")
        assert done.code == 1
        assert [one["decision"] for one in done.json()["decided"]] == ["failed"]


def test_the_admin_says_so(bell: ManualClock, admin_client: Client) -> None:
    page = reverse("admin:django_jobs_schedulestate_run", args=[schedule_key("bell")])
    answer = admin_client.post(page, {"press": new_id()}, follow=True)
    (message,) = answer.context["messages"]
    assert message.level_tag == "error"
    assert "could not be enqueued" in message.message
