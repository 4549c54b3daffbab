"""jobs_reap returns what was lost, all of it, and says how much."""

import pytest

from django_jobs.backends.registry import backends
from django_jobs.management.commands import jobs_reap
from django_jobs.models import Job
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db


def lose(count, queue="default"):
    for _ in range(count):
        doomed.using(queue=queue).enqueue()
    backend = backends["database"]
    while backend.fetch([queue], 1, 0.0):
        pass


def test_nothing_to_reap(run):
    done = run("jobs_reap")
    assert (done.code, done.out) == (0, "0 jobs returned\n")


def test_it_goes_on_until_nothing_is_left(run, monkeypatch):
    monkeypatch.setattr(jobs_reap, "BATCH", 2)
    lose(5)
    assert run("jobs_reap").out == "5 jobs returned\n"
    assert Job.objects.filter(suspect=True).count() == 5


def test_only_one_queue(run):
    lose(2, "mail")
    lose(1, "bulk")
    assert run("jobs_reap", "--queue", "mail").out == "2 jobs returned\n"


def test_an_unknown_backend_names_the_nearest(run):
    refused = run("jobs_reap", "--backend", "databse")
    assert refused.code == 2
    assert "did you mean 'database'?" in refused.err


@pytest.mark.django_db(transaction=True)
def test_no_queue_can_be_called_that(manage):
    refused = manage("jobs_reap", "--queue", "No Queue")
    assert refused.returncode == 2
    assert "'No Queue' is no queue name" in refused.stderr


@pytest.mark.django_db(transaction=True)
def test_without_tables_it_says_what_to_do(manage, tmp_path):
    refused = manage(
        "jobs_reap",
        DJANGO_JOBS_TEST_DB="sqlite",
        DJANGO_JOBS_SQLITE_PATH=str(tmp_path / "empty.sqlite3"),
    )
    assert refused.returncode == 1
    assert "run manage.py migrate --database default" in refused.stderr
    assert "Traceback" not in refused.stderr
