"""jobs_status: the queues, the workers, the settings, and a probe that fails when it should."""

import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.conf import JobsSettings
from django_jobs.models import Job, QueueControl, Worker
from django_jobs.operations.overview import overview
from testproject.shop.jobs import doomed
from tests.integration.commands.conftest import HOSTILE, ROOT, assert_harmless

pytestmark = pytest.mark.django_db
NOT_SECRET = {"token": "t0psecret"}


def age(seconds, **chosen):
    """Let jobs have become due some time ago."""
    Job.objects.filter(**chosen).update(due=time.time_ns() // 1000 - int(seconds * SECOND))


def lose(seconds_ago):
    """Let a worker have vanished with a job."""
    doomed.enqueue()
    backends["database"].fetch(["default"], 1, -seconds_ago)


def make_worker(**values):
    now = time.time_ns() // 1000
    given = {"queues": "mail", "processes": 2, "started_at": datetime.now(UTC), "seen": now}
    return Worker.objects.create(
        id=uuid4(), backend="database", host="web-1", pid=7, **{**given, **values}
    )


def test_nothing(run):
    done = run("jobs_status")
    assert done.out == "No queue has anything in it.\n\nNo worker is known.\n"
    nothing = {"queues": [], "breakers": [], "workers": [], "outbox": []}
    assert run("jobs_status", "--json").json() == nothing


def test_queues(run, die):
    die()
    doomed.enqueue()
    doomed.using(delay=60).enqueue()
    doomed.using(queue="mail").enqueue()
    QueueControl.objects.create(backend="database", queue="mail", paused=True, reason="a\x1b[0m")
    age(7200, queue="mail")
    headers, default, mail, *_ = run("jobs_status").out.splitlines()
    assert headers.split("  ")[0] == "queue"
    assert default.split()[:8] == ["default", "database", "1", "1", "0", "0", "0", "1"]
    assert mail.split("  ")[-1].strip() == r"yes: a\x1b[0m"
    assert "2 h" in mail
    told = run("jobs_status", "--queue", "mail", "--json").json()["queues"]
    assert [one["queue"] for one in told] == ["mail"]
    assert list(told[0]) == [
        *("backend", "queue", "ready", "scheduled", "running", "blocked"),
        *("suspect", "dead"),
        *("oldest_ready_seconds", "paused", "paused_reason", "breaker", "problem"),
        *("rate", "used", "concurrency", "at_least"),
    ]


def test_workers(run):
    make_worker(draining=True, running=1, queues=HOSTILE.replace("\x00", ""))
    done = run("jobs_status")
    assert "web-1:7" in done.out
    assert "1 (draining)" in done.out
    assert_harmless(done.out)
    (one,) = run("jobs_status", "--json").json()["workers"]
    assert list(one) == [
        *("id", "host", "pid", "backend", "queues", "processes", "concurrency", "running"),
        *("draining", "started_at", "seen_at", "seen_seconds_ago"),
    ]


def test_settings_with_origin_and_without_secrets(run, settings, monkeypatch):
    monkeypatch.setenv("JOBS_SIGNING_KEY", "s3cret-from-outside")
    settings.DJANGO_JOBS = {
        "TIMEOUT": 5,
        "QUEUES": {"mail": {"TIMEOUT": None}},
        "BACKENDS": {
            "database": {
                "BACKEND": "django_jobs.backends.database.DatabaseBackend",
                "OPTIONS": {"DATABASE": "default", "URL": "x://u:s3cret@h", "N": 1, "API_KEY": 5},
            }
        },
        "SCHEDULE": {
            "nightly": {"CRON": "@daily", "HANDLER": "x", "PAYLOAD": {"token": "s3cret", "a": [1]}}
        },
    }
    done = run("jobs_status", "--settings", "--json")
    assert done.code == 0, done.err
    found = {one["name"]: one for one in done.json()["settings"]}
    assert list(found) == [name.upper() for name in JobsSettings.__dataclass_fields__]
    assert found["TIMEOUT"] == {"name": "TIMEOUT", "value": 5.0, "origin": "setting"}
    assert found["MAX_RETRIES"] == {"name": "MAX_RETRIES", "value": 0, "origin": "default"}
    assert found["SIGNING_KEYS"]["origin"] == "env"
    assert found["BACKENDS"]["value"]["database"] == {
        "BACKEND": "django_jobs.backends.database.DatabaseBackend",
        "OPTIONS": {"DATABASE": "default", "URL": "••••", "N": 1, "API_KEY": "••••"},
        "ON_COMMIT": None,
        "OUTBOX": False,
    }
    assert found["QUEUES"]["value"]["mail"]["TIMEOUT"] is None
    assert found["SCHEDULE"]["value"]["nightly"]["PAYLOAD"] == {"token": "••••", "a": [1]}
    assert "s3cret" not in done.out + run("jobs_status", "--show-settings").out


def test_given_keys_are_a_setting(run, settings):
    settings.DJANGO_JOBS = {"SIGNING_KEYS": [("first", "s3cret-s3cret")]}
    found = run("jobs_status", "--settings", "--json").json()["settings"]
    (keys,) = [one for one in found if one["name"] == "SIGNING_KEYS"]
    assert keys == {"name": "SIGNING_KEYS", "value": ["first: ••••"], "origin": "setting"}


@pytest.mark.parametrize(
    "options", [("--watch", "--check"), ("--settings", "--watch"), ("--watch", "--json")]
)
def test_what_does_not_go_together(run, options):
    assert run("jobs_status", *options).code == 2


@pytest.mark.django_db(transaction=True)
def test_exit_codes_in_a_process(manage):
    assert manage("jobs_status", "--check", "--min-workers", "0").returncode == 0
    doomed.enqueue()
    age(400)
    assert manage("jobs_status", "--check").returncode == 1
    assert manage("jobs_status", "--max-age", "-1").returncode == 2
    shown = manage("jobs_status", "--settings")
    assert shown.returncode == 0
    assert shown.stdout.startswith("setting ")
    with_module = manage("jobs_status", "--settings", "testproject.settings")
    assert with_module.stdout.startswith("queue ")


@pytest.mark.django_db(transaction=True)
def test_watching_until_interrupted(site_environment):
    overview()
    command = [sys.executable, str(ROOT / "testproject/manage.py"), "jobs_status", "--watch"]
    with subprocess.Popen(
        [*command, "--interval", "0.05"], env=site_environment, stdout=subprocess.PIPE, text=True
    ) as child:
        seen = [child.stdout.readline() for _ in range(10)]
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0
    assert seen.count("No queue has anything in it.\n") >= 2
