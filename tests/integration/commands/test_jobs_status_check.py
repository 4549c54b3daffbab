"""jobs_status --check: a probe that fails when it should, and only then."""

import time

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import enqueue_many
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.models import Worker
from testproject.shop.jobs import doomed
from tests.integration.commands.test_jobs_status import age, lose, make_worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _served():
    make_worker(queues="every queue")


def test_a_probe_of_a_healthy_site(run):
    doomed.enqueue()
    doomed.using(delay=3600).enqueue()
    backends["database"].fetch(["default"], 1, 60.0)
    done = run("jobs_status", "--check")
    assert (done.code, done.out) == (0, "ok: nothing is overdue, no worker was lost\n")
    assert run("jobs_status", "--check", "--json").json() == {"ok": True, "problems": []}


@pytest.mark.parametrize("options", [{}, {"delay": 60}])
def test_a_probe_finds_overdue_jobs(run, options):
    """A scheduled one as well: without a worker nobody makes it ready."""
    doomed.using(**options).enqueue()
    age(301)
    done = run("jobs_status", "--check")
    assert done.code == 1
    assert done.out == "overdue: default (database) has 1 waiting, one for 5 min\n"
    assert run("jobs_status", "--check", "--max-age", "10m").code == 0
    assert run("jobs_status", "--check", "--queue", "mail").code == 0
    (one,) = run("jobs_status", "--check", "--json").json()["problems"]
    assert list(one) == ["kind", "backend", "queue", "jobs", "seconds", "detail", "at_least"]
    assert (one["kind"], one["jobs"]) == ("overdue", 1)


def test_a_probe_counts_overdue_jobs_to_an_end_and_finds_each(run, monkeypatch):
    """One alone is enough, also behind more of a higher priority than are counted."""
    monkeypatch.setattr("django_jobs.operations.health.COUNTED_AT_MOST", 3)
    enqueue_many([doomed.using(priority=50).prepare() for _ in range(9)])
    assert run("jobs_status", "--check").code == 0
    late = doomed.using(priority=-50).enqueue()
    age(7200, pk=late.id)
    (one,) = run("jobs_status", "--check", "--json").json()["problems"]
    assert (one["jobs"], one["at_least"]) == (1, False)
    assert 7200 <= one["seconds"] < 7260
    age(400, rank=-50)  # that is, those of priority 50
    assert run("jobs_status", "--check", "--queue", "mail").code == 0
    done = run("jobs_status", "--check", "--queue", "default")
    assert done.out == "overdue: default (database) has 4+ waiting, one for 2 h\n"


def test_a_probe_finds_workers_that_are_gone(run):
    lose(25)
    assert run("jobs_status", "--check").code == 0
    lose(31)
    done = run("jobs_status", "--check")
    assert done.code == 1
    assert done.out.startswith("lease expired: default (database) has 1 running")


def test_a_probe_finds_a_backend_that_cannot_be_asked(run, settings, monkeypatch):
    settings.DJANGO_JOBS = {
        "BACKENDS": {"memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}},
        "DEFAULT_BACKEND": "memory",
        "QUEUES": {"default": {}},
    }
    assert run("jobs_status", "--check").code == 0

    def broken(queue):
        raise ConnectionError("\x1b[31mrefused")

    monkeypatch.setattr(backends["memory"], "stats", broken)
    done = run("jobs_status", "--check")
    assert done.code == 1
    assert done.out == "unreachable: default (memory): ConnectionError\n"
    told = run("jobs_status").out
    assert "ConnectionError" in told
    assert "refused" not in told  # its words are for the log


def test_a_probe_finds_a_backend_that_cannot_name_its_queues(run, settings, monkeypatch):
    settings.DJANGO_JOBS = {
        "BACKENDS": {
            "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
            "memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
        },
    }

    def broken():
        raise ConnectionError("refused")

    monkeypatch.setattr(backends["memory"], "queues", broken)
    done = run("jobs_status", "--check", "--min-workers", "0")
    assert done.out == "unreachable: memory: ConnectionError\n"


def test_a_probe_counts_neither_jobs_nor_dead_letters(run):
    doomed.enqueue()
    with CaptureQueriesContext(connection) as sent:
        assert run("jobs_status", "--check").code == 0
    asked = [query["sql"] for query in sent.captured_queries]
    assert not any("failedjob" in sql for sql in asked)
    jobs = [sql for sql in asked if "django_jobs_job" in sql and "COUNT" in sql]
    assert all("due" in sql.partition("WHERE")[2] for sql in jobs)


def test_a_probe_misses_workers(run):
    """A worker that drains, or was not seen for a minute, takes no job."""
    make_worker(queues="mail", draining=True)
    make_worker(queues="mail", seen=time.time_ns() // 1000 - 61 * SECOND)
    assert run("jobs_status", "--check").code == 0
    done = run("jobs_status", "--check", "--min-workers", "2")
    assert done.code == 1
    assert done.out == "no worker: database: 1 seen within 60 s, 2 wanted\n"
    (one,) = run("jobs_status", "--check", "--min-workers", "2", "--json").json()["problems"]
    assert (one["kind"], one["backend"], one["queue"]) == ("no-worker", "database", "")


@pytest.mark.parametrize(
    ("queues", "code"), [("every queue", 0), ("", 0), ("mail", 0), ("a,mail:3", 0), ("mailing", 1)]
)
def test_a_probe_of_a_queue_wants_a_worker_that_serves_it(run, queues, code):
    Worker.objects.update(queues=queues)
    done = run("jobs_status", "--check", "--queue", "mail")
    assert done.code == code, done.out
    assert run("jobs_status", "--check", "--queue", "mail", "--min-workers", "0").code == 0


@pytest.mark.parametrize("wrong", ["-1", "one", "1.5"])
def test_a_number_of_workers_that_is_none_is_refused(run, wrong):
    assert "is no whole number from 0" in run("jobs_status", "--check", "--min-workers", wrong).err


def test_the_token_of_monitors_is_not_shown(run, settings):
    settings.DJANGO_JOBS = {"MONITOR_TOKEN": "s3cret-s3cret-s3cret-s3cret"}
    done = run("jobs_status", "--settings", "--json")
    (token,) = [one for one in done.json()["settings"] if one["name"] == "MONITOR_TOKEN"]
    assert token == {"name": "MONITOR_TOKEN", "value": "••••", "origin": "setting"}
