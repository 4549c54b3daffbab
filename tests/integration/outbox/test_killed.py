"""Killed between COMMIT and push, and between push and note: nothing lost, nothing doubled.

What ran is told by the rows of the handlers, and by nothing of ours. Each process that is
killed has to be started; ``DJANGO_JOBS_KILLS=100`` makes it a long one.
"""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_jobs.backends.registry import backends
from django_jobs.models import OutboxJob
from testproject.shop.models import Order
from tests.conformance.redis_hooks import emptied
from tests.integration.outbox.conftest import BROKER
from tests.services import REDIS_URL

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

ROOT = Path(__file__).resolve().parents[3]
TIMES = int(os.environ.get("DJANGO_JOBS_KILLS", "20"))
QUEUES = 25
PATIENCE_SECONDS = 300


PREFIX = f"outbox-{os.getpid()}"
CARRIERS = {
    "database": BROKER,
    "redis": {
        "BACKEND": "django_jobs.backends.redis.RedisBackend",
        "OPTIONS": {"URL": REDIS_URL, "PREFIX": PREFIX},
    },
}


def there(backend):
    """How many jobs the broker has."""
    seen = [backend.stats(f"q{number}") for number in range(QUEUES)]
    return sum(one.ready + one.scheduled + one.running for one in seen)


@pytest.fixture(params=["database", pytest.param("redis", marks=pytest.mark.needs("redis"))])
def site(request, site_environment, settings):
    """Runs a command in the site whose jobs go to a broker, with or without an outbox."""

    def configured(**said):
        jobs = {
            "BACKENDS": {"broker": {**CARRIERS[request.param], **said}},
            "DEFAULT_BACKEND": "broker",
            "LEASE_SECONDS": 3,
            "KILL_GRACE": 1,
            "POLL_INTERVAL": 0.05,
        }
        settings.DJANGO_JOBS = jobs
        if request.param == "redis":
            client = backends["broker"].store.connection.client
            request.addfinalizer(lambda: emptied(client, PREFIX))
        environment = {
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.outbox.depot.settings",
            "DEPOT_JOBS": json.dumps(jobs),
        }

        def run(*command):
            done = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            return done.stdout

        return run

    return configured


def killed(run, role, times=TIMES):
    """Let so many processes be killed; how many of them were, as the system tells who waits."""
    return len(json.loads(run("-m", "tests.integration.outbox.dying", role, str(times))))


def work(run):
    run("testproject/manage.py", "jobs_work", "--processes", "2", "--until-empty")


def delivered():
    found = Order.objects.filter(email__endswith="@delivered.example")
    return collections.Counter(found.values_list("email", flat=True))


def each_once():
    return {f"{number}@delivered.example": 1 for number in range(TIMES)}


def placed():
    return Order.objects.filter(email__endswith="@placed.example").count()


def test_killed_between_commit_and_push_with_an_outbox_nothing_is_lost_or_doubled(site):
    run = site(OUTBOX="default")
    assert killed(run, "commit") == TIMES
    assert (placed(), OutboxJob.objects.count(), len(delivered())) == (TIMES, TIMES, 0)
    work(run)
    assert delivered() == each_once()
    assert not OutboxJob.objects.exists()
    assert not there(backends["broker"])


def test_killed_between_commit_and_push_without_an_outbox_the_jobs_are_lost(site):
    """What the outbox is for; and it shows that the signal comes where it is meant to."""
    run = site(ON_COMMIT="default")
    assert killed(run, "commit", 10) == 10
    assert placed() == 10
    work(run)
    assert not delivered()


@pytest.mark.parametrize("ended", [False, True], ids=["which-live", "which-have-ended"])
def test_killed_between_push_and_note_jobs_are_not_doubled(site, ended):
    run = site(OUTBOX="default")
    assert killed(run, "commit") == TIMES
    deaths = 0
    while deaths < TIMES:  # each holds a queue until its lease ends
        deaths += killed(run, "relay", max(TIMES // 2, QUEUES))
    assert there(backends["broker"]) == TIMES
    if ended:
        run("-m", "tests.integration.outbox.dying", "run", "1")
        assert delivered() == each_once()
    assert OutboxJob.objects.count() == TIMES
    work(run)
    assert delivered() == each_once()
    assert not OutboxJob.objects.exists()
    assert not there(backends["broker"])
