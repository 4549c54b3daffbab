"""What becomes of gauges in the SDK of OpenTelemetry and in the text for Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from django_jobs.models import QueueControl, Worker
from django_jobs.operations.gauges import StoreGauges, store_gauges
from django_jobs.telemetry import metrics as our_metrics
from django_jobs.telemetry.metrics import GAUGES
from testproject.shop.jobs import doomed
from tests.integration.test_monitoring import make_worker

pytestmark = pytest.mark.django_db
OTEL = "django_jobs.telemetry.opentelemetry.OpenTelemetry"
TOKEN = "a-token-that-is-only-for-tests"
BOTH = [OTEL, "django_jobs.telemetry.collectors.InMemory"]


@pytest.fixture
def exported(settings, monkeypatch):
    """What the SDK exports, by name: (labels, value) of each point."""
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    from opentelemetry import metrics  # noqa: PLC0415 - after the skip
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - as above

    reader = export.InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    # A process can set its provider once; every test has one of its own.
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    monkeypatch.setattr(our_metrics, "_made", {})
    settings.DJANGO_JOBS = {"METRICS": BOTH, "MONITOR_TOKEN": TOKEN}
    our_metrics.collectors()

    def read():
        store_gauges.forget()
        data = reader.get_metrics_data()
        return {
            metric.name: [
                (dict(point.attributes), getattr(point, "value", None))
                for point in metric.data.data_points
            ]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    yield read
    provider.shutdown()


def scraped(client):
    answer = client.get("/jobs/metrics/", headers={"Authorization": f"Bearer {TOKEN}"})
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(answer.text)
        if family.type == "gauge"
    }


def stock():
    doomed.enqueue()
    doomed.enqueue()
    doomed.using(delay=60).enqueue()
    QueueControl.objects.create(backend="database", queue="mail", paused=True)
    make_worker()


def test_the_sdk_exports_how_queues_stand(exported):
    stock()
    found = exported()
    assert found.keys() == {f"django_jobs.{name}" for name in GAUGES}
    here = {"backend": "database", "queue": "default"}
    assert ({**here, "state": "ready"}, 2) in found["django_jobs.jobs"]
    assert ({**here, "state": "scheduled"}, 1) in found["django_jobs.jobs"]
    assert (here, 0) in found["django_jobs.jobs_in_flight"]
    ((_, age),) = [one for one in found["django_jobs.oldest_ready_seconds"] if one[0] == here]
    assert 0 < age < 60
    assert ({**here, "queue": "mail"}, 1) in found["django_jobs.queue_paused"]
    assert found["django_jobs.workers"] == [({"backend": "database"}, 1)]


def test_it_goes_on_with_what_has_changed(exported):
    stock()
    exported()
    doomed.enqueue()
    Worker.objects.all().delete()
    found = exported()
    assert ({"backend": "database", "queue": "default", "state": "ready"}, 3) in found[
        "django_jobs.jobs"
    ]
    assert "django_jobs.workers" not in found


def test_where_another_process_tells_the_sdk_exports_nothing(exported):
    stock()
    assert StoreGauges().in_turn()
    assert exported() == {}


def test_what_is_counted_is_exported_beside_them(exported):
    (otel, _) = our_metrics.collectors()
    otel.increment("jobs_succeeded", "mail", 2)
    doomed.enqueue()
    found = exported()
    assert found["django_jobs.jobs_succeeded"] == [({"queue": "mail"}, 2)]
    assert "django_jobs.jobs" in found


def test_prometheus_the_sdk_and_memory_tell_the_same(exported, client):
    stock()
    shown = exported()
    (_, memory) = our_metrics.collectors()
    kept = memory.gauges()
    for name, points in scraped(client).items():
        name = name.removeprefix("django_jobs_")  # noqa: PLW2901 - without whose it is
        expected = sorted(points, key=str)
        assert sorted(((dict(p), float(v)) for p, v in shown[f"django_jobs.{name}"]), key=str) == (
            expected
        )
        mine = [(dict(one.labels), float(one.value)) for one in kept if one.name == name]
        assert sorted(mine, key=str) == expected
        assert expected
