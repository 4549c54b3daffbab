"""What workers with children count, together: every job once, whoever settled it."""

import pytest

from django_jobs import enqueue_many
from django_jobs.models import JobResult, Metric, QueueMinute
from django_jobs.telemetry import counters
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)

PROMETHEUS = ["django_jobs.telemetry.collectors.Prometheus"]


def test_two_workers_count_every_job_exactly_once(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(300)])
    enqueue_many([gang.note.using(timeout=5).prepare(None) for _ in range(4)])  # no path: it fails
    workers = [start("--until-empty", "-v0", METRICS=PROMETHEUS) for _ in range(2)]
    assert [worker.ended() for worker in workers] == [0, 0], workers[0].said
    totals = counters.total_counters()
    assert totals.counters == {
        ("jobs_fetched", "default"): 304,
        ("jobs_succeeded", "default"): 300,
        ("jobs_failed", "default"): 4,
        ("jobs_failed_permanently", "default"): 4,
    }
    assert totals.histograms["job_run_seconds", "default"].count == 304
    assert totals.histograms["job_wait_seconds", "default"].count == 304
    assert 0 < totals.histograms["job_run_seconds", "default"].microseconds < 60_000_000


def test_metrics_stay_out_of_the_database_unless_they_are_asked_for(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(10)])
    assert start("--until-empty", "-v0").ended() == 0
    assert not Metric.objects.exists()


@pytest.mark.parametrize("processes", [0, 1])
def test_a_clock_that_is_set_back_makes_no_run_shorter_and_loses_no_counts(start, diary, processes):
    gang.note.enqueue(str(diary))
    gang.sets_the_clock_back.enqueue(str(diary), 0.2)
    pool = start("--until-empty", processes=processes)
    assert pool.ended() == 0
    assert "does not answer" not in pool.said
    times = JobResult.objects.values_list("started_at", "finished_at")
    lengths = sorted((ended - began).total_seconds() for began, ended in times)
    assert 0 <= lengths[0] < 0.2 <= lengths[1] < 60
    minutes = QueueMinute.objects.all()
    assert sum(minute.succeeded for minute in minutes) == 2
    assert 200_000 <= sum(minute.run_microseconds for minute in minutes) < 60_000_000
