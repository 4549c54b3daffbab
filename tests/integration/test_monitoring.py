"""What probes and scrapers get, and who gets it."""

import time
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.db import DatabaseError
from django.urls import reverse

from django_jobs import views
from django_jobs.clock import SECOND
from django_jobs.models import Job, QueueControl, Worker
from django_jobs.telemetry import counters
from django_jobs.telemetry.collectors import InMemory
from django_jobs.telemetry.metrics import add_successes
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db

TOKEN = "a-token-that-is-only-for-tests"
HEALTH, METRICS = "/jobs/health/", "/jobs/metrics/"


@pytest.fixture
def monitor(client, settings):
    settings.DJANGO_JOBS = {"MONITOR_TOKEN": TOKEN}

    def get(path, **query):
        return client.get(path, query, headers={"Authorization": f"Bearer {TOKEN}"})

    return get


def make_worker(**values):
    given = {"queues": "", "seen": time.time_ns() // 1000, "started_at": datetime.now(UTC)}
    return Worker.objects.create(
        id=uuid4(), backend="database", host="web-1", pid=7, **{**given, **values}
    )


def late(seconds):
    doomed.enqueue()
    Job.objects.update(due=time.time_ns() // 1000 - seconds * SECOND)


def test_they_have_names():
    assert reverse("django_jobs:health") == HEALTH
    assert reverse("django_jobs:metrics") == METRICS


@pytest.mark.parametrize("path", [HEALTH, METRICS])
@pytest.mark.parametrize(
    "shown",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \xfc",
        "Bearer None",
    ],
)
@pytest.mark.parametrize("token", [TOKEN, None])
def test_who_shows_no_token_gets_nothing(client, settings, path, shown, token):
    settings.DJANGO_JOBS = {"MONITOR_TOKEN": token}
    refused = client.get(path, headers={"Authorization": shown})
    assert refused.status_code == 401
    assert refused["WWW-Authenticate"].startswith("Bearer")
    assert list(refused.json()) == ["error"]
    assert TOKEN not in refused.content.decode()


@pytest.mark.parametrize("path", [HEALTH, METRICS])
def test_a_user_needs_the_permission_to_see_workers(client, django_user_model, path):
    user = django_user_model.objects.create_user("ann")
    client.force_login(user)
    assert client.get(path).status_code == 401
    user.user_permissions.add(Permission.objects.get(codename="view_worker"))
    assert client.get(path).status_code in {200, 503}
    user.is_active = False
    user.save()
    assert client.get(path).status_code == 401


@pytest.mark.parametrize("path", [HEALTH, METRICS])
def test_they_only_tell_and_are_never_cached(client, monitor, path):
    assert client.post(path).status_code == 405
    assert "no-store" in monitor(path)["Cache-Control"]


def test_a_healthy_site(monitor):
    make_worker()
    told = monitor(HEALTH)
    assert (told.status_code, told.json()) == (200, {"ok": True, "problems": []})


def test_what_is_wrong(monitor):
    late(301)
    told = monitor(HEALTH)
    assert told.status_code == 503
    assert [(one["kind"], one["jobs"]) for one in told.json()["problems"]] == [
        ("overdue", 1),
        ("no-worker", 0),
    ]


def test_limits_are_parameters(monitor):
    late(301)
    assert monitor(HEALTH, max_age="10m", min_workers="0").json()["ok"]
    assert monitor(HEALTH, queue="mail", min_workers="0").json()["ok"]
    assert not monitor(HEALTH, queue="default", min_workers="0").json()["ok"]


@pytest.mark.parametrize(
    "query", [{"max_age": "soon"}, {"min_workers": "-1"}, {"queue": "A B"}, {"max-age": "5"}]
)
def test_a_limit_that_is_none_is_an_error_and_not_healthy(monitor, query):
    make_worker()
    refused = monitor(HEALTH, **query)
    assert refused.status_code == 400
    assert next(iter(query)) in refused.json()["error"]


def test_a_database_that_does_not_answer_is_told_without_its_words(monitor, monkeypatch):
    def gone(_limits):
        raise DatabaseError("password=s3cret")

    monkeypatch.setattr(views, "find_problems", gone)
    told = monitor(HEALTH)
    assert told.status_code == 503
    assert told.json()["problems"] == [{"kind": "unreachable", "detail": "DatabaseError"}]


def test_metrics_for_prometheus(monitor):
    for _ in range(2):
        kept = InMemory()
        add_successes(kept, "mail", [400.0], [0.02])
        counters.add_counters(kept.take())
    doomed.enqueue()
    doomed.using(delay=60).enqueue()
    QueueControl.objects.create(backend="database", queue="mail", paused=True)
    make_worker()
    make_worker(seen=1)
    told = monitor(METRICS)
    assert told.status_code == 200
    assert told["Content-Type"].startswith("text/plain")
    lines = told.content.decode().splitlines()
    for line in (
        'django_jobs_jobs_succeeded_total{queue="mail"} 2.0',
        'django_jobs_job_run_seconds_bucket{le="0.01",queue="mail"} 0.0',
        'django_jobs_job_run_seconds_bucket{le="0.025",queue="mail"} 2.0',
        'django_jobs_job_run_seconds_bucket{le="+Inf",queue="mail"} 2.0',
        'django_jobs_job_run_seconds_count{queue="mail"} 2.0',
        'django_jobs_job_run_seconds_sum{queue="mail"} 0.04',
        'django_jobs_job_wait_seconds_bucket{le="300.0",queue="mail"} 0.0',
        'django_jobs_job_wait_seconds_bucket{le="+Inf",queue="mail"} 2.0',
        'django_jobs_jobs{backend="database",queue="default",state="ready"} 1.0',
        'django_jobs_jobs{backend="database",queue="default",state="scheduled"} 1.0',
        'django_jobs_jobs{backend="database",queue="default",state="blocked"} 0.0',
        'django_jobs_jobs_in_flight{backend="database",queue="default"} 0.0',
        'django_jobs_queue_paused{backend="database",queue="mail"} 1.0',
        'django_jobs_workers{backend="database"} 1.0',
    ):
        assert line in lines, line


def test_what_is_missing_is_named(monitor, monkeypatch):
    monkeypatch.setattr("django_jobs.views.find_spec", lambda _name: None)
    told = monitor(METRICS)
    assert told.status_code == 501
    assert "django-durable-jobs[prometheus]" in told.content.decode()
