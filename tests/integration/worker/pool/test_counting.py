"""What workers with children count, together: every job once, whoever settled it."""

import pytest

from django_jobs import enqueue_many
from django_jobs.models import Figure
from django_jobs.operations import figures
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)

PROMETHEUS = ["django_jobs.telemetry.collectors.Prometheus"]


def test_two_workers_count_every_job_exactly_once(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(300)])
    enqueue_many([gang.note.using(timeout=5).prepare(None) for _ in range(4)])  # no path: it fails
    workers = [start("--until-empty", "-v0", METRICS=PROMETHEUS) for _ in range(2)]
    assert [worker.ended() for worker in workers] == [0, 0], workers[0].said
    totals = figures.totals()
    assert totals.counters == {
        ("jobs_fetched", "default"): 304,
        ("jobs_succeeded", "default"): 300,
        ("jobs_failed", "default"): 4,
        ("jobs_failed_permanently", "default"): 4,
    }
    assert totals.histograms["job_run_seconds", "default"].count == 304
    assert totals.histograms["job_wait_seconds", "default"].count == 304
    assert 0 < totals.histograms["job_run_seconds", "default"].microseconds < 60_000_000


def test_figures_stay_out_of_the_database_unless_they_are_asked_for(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(10)])
    assert start("--until-empty", "-v0").ended() == 0
    assert not Figure.objects.exists()
