"""The figures of all workers for Prometheus, from the database: any process can serve them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse

from django_jobs.clock import SECOND
from django_jobs.operations.figures import totals as total_counters
from django_jobs.operations.gauges import gauges
from django_jobs.telemetry.metrics import BUCKETS, COUNTERS, GAUGES, HISTOGRAMS
from django_jobs.views.access import for_monitors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest

    from django_jobs.telemetry.collectors import Snapshot

PREFIX = "django_jobs_"


@for_monitors
def metrics(_request: HttpRequest) -> HttpResponse:
    """What ``prometheus_client`` makes of the figures."""
    if find_spec("prometheus_client") is None:
        told = 'install the extra: pip install "django-durable-jobs[prometheus]"\n'
        return HttpResponse(told, status=501, content_type="text/plain")
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(_Shown())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Shown:
    """Asked once for each answer."""

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        yield from _gauges()
        totals = total_counters()
        yield from _counters(totals)
        yield from _histograms(totals)


def _gauges() -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    told = gauges.read()
    for name, kind in GAUGES.items():
        family = GaugeMetricFamily(PREFIX + name, kind.told, labels=kind.labels)
        for one in told:
            if one.name == name:
                family.add_metric([one.labels[label] for label in kind.labels], one.value)
        yield family


def _counters(totals: Snapshot) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

    for name, told in COUNTERS.items():
        family = CounterMetricFamily(PREFIX + name, told, labels=("queue",))
        for (counted, queue), value in totals.counters.items():
            if counted == name:
                family.add_metric((queue,), value)
        yield family


def _histograms(totals: Snapshot) -> Iterator[Any]:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 - an extra

    for name, told in HISTOGRAMS.items():
        family = HistogramMetricFamily(PREFIX + name, told, labels=("queue",))
        for (counted, queue), spread in totals.histograms.items():
            if counted == name:
                buckets = list(_cumulative(spread.counts))
                family.add_metric((queue,), buckets, spread.microseconds / SECOND)
        yield family


def _cumulative(counts: list[int]) -> Iterator[tuple[str, float]]:
    seen = 0
    for end, count in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
        seen += count
        yield end, seen
