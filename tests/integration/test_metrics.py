"""Metrics of several processes, added up in the database."""

import pytest

from django_jobs.backends.registry import backends
from django_jobs.models import Metric
from django_jobs.telemetry import counters, events, metrics
from django_jobs.telemetry.collectors import InMemory, Prometheus, Snapshot
from django_jobs.telemetry.metrics import add
from django_jobs.worker import duties
from django_jobs.worker.build import process_once
from django_jobs.worker.duties import Ledger
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db

PROMETHEUS = "django_jobs.telemetry.collectors.Prometheus"
IN_MEMORY = "django_jobs.telemetry.collectors.InMemory"


class Broken:
    def increment(self, name, queue, by=1):
        raise RuntimeError("full")

    observe = increment


@pytest.fixture
def collect(settings):
    def choose(*paths):
        settings.DJANGO_JOBS = {"METRICS": list(paths)}
        for collector in metrics.of_kind(InMemory):
            collector.take()
        return metrics.collectors()

    return choose


def some():
    kept = InMemory()
    for event in (
        events.JobSucceeded(job_id="1", queue="mail", handler="a", seconds=0.02, waited=400),
        events.Reaped(backend="database", count=3),
    ):
        add(kept, event)
    return kept.take()


def test_what_two_workers_counted_is_added_up():
    counters.add_counters(some())
    counters.add_counters(some())
    totals = counters.total_counters()
    assert totals.counters["jobs_succeeded", "mail"] == 2
    assert totals.counters["leases_reaped", ""] == 6
    run, wait = (totals.histograms[f"job_{what}_seconds", "mail"] for what in ("run", "wait"))
    assert (run.count, run.microseconds) == (2, 40_000)
    assert (wait.counts[-1], wait.microseconds) == (2, 800_000_000)


def test_nothing_to_add_writes_nothing():
    counters.add_counters(Snapshot())
    assert not Metric.objects.exists()


def test_a_worker_adds_what_its_jobs_came_to(collect):
    (prometheus,) = collect(PROMETHEUS)
    assert isinstance(prometheus, Prometheus)
    doomed.enqueue()
    process_once()
    ledger = Ledger(backends["database"])
    ledger.write()
    assert not Metric.objects.exists(), "it is not time yet"
    ledger.end()
    totals = counters.total_counters()
    assert totals.counters == {
        ("jobs_fetched", "default"): 1,
        ("jobs_failed", "default"): 1,
        ("jobs_failed_permanently", "default"): 1,
    }
    ledger.end()
    assert counters.total_counters() == totals, "it was added twice"


def test_what_could_not_be_written_is_kept_for_later(collect, monkeypatch):
    (prometheus,) = collect(PROMETHEUS)
    prometheus.increment("jobs_succeeded", "mail")
    ledger = Ledger(backends["database"])
    with monkeypatch.context() as patched:

        def refused(*_):
            raise OSError("no route")

        patched.setattr(duties, "add_counters", refused)
        ledger.end()
    assert not Metric.objects.exists()
    ledger.end()
    assert counters.total_counters().counters == {("jobs_succeeded", "mail"): 1}


@pytest.mark.parametrize("said", [[], None])
def test_nothing_is_collected_where_the_settings_say_so(settings, said):
    settings.DJANGO_JOBS = {"METRICS": said}
    assert metrics.collectors() == ()
    doomed.enqueue()
    assert process_once().status == "dead-lettered"


def test_by_default_figures_are_kept_in_memory(settings):
    settings.DJANGO_JOBS = {}
    (memory,) = metrics.collectors()
    assert type(memory) is InMemory
    memory.take()
    doomed.enqueue()
    process_once()
    assert memory.take().counters["jobs_failed_permanently", "default"] == 1


def test_a_collector_that_raises_hurts_neither_the_job_nor_the_others(collect, caplog):
    found = collect(f"{__name__}.Broken", IN_MEMORY)
    doomed.enqueue()
    assert process_once().status == "dead-lettered"
    assert found[1].take().counters["jobs_failed", "default"] == 1
    assert "the collector Broken raised" in caplog.text


def test_a_collector_that_is_not_there_is_told_and_left_out(collect, caplog):
    found = collect("shop.no.Such", IN_MEMORY)
    assert [type(one) for one in found] == [InMemory]
    assert "METRICS: shop.no.Such is not used" in caplog.text
