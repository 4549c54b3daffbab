"""Views for probes and metrics scrapers. A site includes them with ``django_jobs.urls``."""

from __future__ import annotations

import hmac
from argparse import ArgumentTypeError
from dataclasses import asdict
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.db import Error
from django.http import HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.management.arguments import queue_name, seconds, whole
from django_jobs.operations.gauges import store_gauges
from django_jobs.operations.health import HealthLimits, find_problems
from django_jobs.telemetry.counters import total_counters
from django_jobs.telemetry.metrics import BUCKETS, COUNTERS, GAUGES, HISTOGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from django_jobs.telemetry.collectors import Snapshot


# Access: a request with ``MONITOR_TOKEN``, or of a user with the permission to view workers.

PERMISSION = "django_jobs.view_worker"
SCHEME = "bearer"


def for_monitors(
    view: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Restrict a view to GET and HEAD by authorized clients, and never cache it."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponseBase:
        return view(request) if is_authorized(request) else _unauthorized()

    return require_safe(never_cache(guarded))


def is_authorized(request: HttpRequest) -> bool:
    """Whether a request shows the token, or comes from a user with the permission."""
    if _has_token(request):
        return True
    user: Any = getattr(request, "user", None)
    return bool(user and user.is_active and user.has_perm(PERMISSION))


def _has_token(request: HttpRequest) -> bool:
    wanted = get_settings().monitor_token
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if wanted is None or scheme.lower() != SCHEME:
        return False
    # Bytes, because compare_digest raises for text that is not ASCII.
    return hmac.compare_digest(shown.strip().encode("utf-8", "replace"), wanted.encode())


def _unauthorized() -> HttpResponse:
    message = "show MONITOR_TOKEN as a bearer token, or log in with the permission to view workers"
    refused = JsonResponse({"error": message}, status=401)
    refused["WWW-Authenticate"] = 'Bearer realm="django_jobs"'
    return refused


# Health as JSON: 200 when all is well, 503 otherwise.

LIMITS: dict[str, Callable[[str], Any]] = {
    "max_age": seconds,
    "min_workers": whole,
    "queue": queue_name,
}


@for_monitors
def health(request: HttpRequest) -> JsonResponse:
    """The problems that ``jobs_status --check`` reports. The query has the limits."""
    try:
        limits = _limits(request)
    except ArgumentTypeError as error:
        return JsonResponse({"error": str(error)}, status=400)
    try:
        problems = [asdict(problem) for problem in find_problems(limits)]
    except Error as error:
        # The database's message may name hosts and users; it belongs only in the log.
        problems = [{"kind": "unreachable", "detail": type(error).__name__}]
    return JsonResponse({"ok": not problems, "problems": problems}, status=503 if problems else 200)


def _limits(request: HttpRequest) -> HealthLimits:
    limits = {}
    for name, text in request.GET.items():
        if name not in LIMITS:
            raise ArgumentTypeError(f"there is no limit {name!r}; known are {', '.join(LIMITS)}")
        try:
            limits[name] = LIMITS[name](str(text))
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{name}: {error}") from None
    return HealthLimits(**limits)


# Metrics for Prometheus, of all workers: they are in the database, so any process can serve them.

PREFIX = "django_jobs_"


@for_monitors
def metrics(_request: HttpRequest) -> HttpResponse:
    """The metrics in the format of Prometheus."""
    if find_spec("prometheus_client") is None:
        message = (
            "the metrics need prometheus-client; install django-durable-jobs[prometheus], "
            "as its README says under Installing\n"
        )
        return HttpResponse(message, status=501, content_type="text/plain")
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(_Collector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Collector:
    """Reads the metrics from the database, once per response."""

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        yield from _gauges()
        totals = total_counters()
        yield from _counters(totals)
        yield from _histograms(totals)


def _gauges() -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    samples = store_gauges.read()
    for name, kind in GAUGES.items():
        family = GaugeMetricFamily(PREFIX + name, kind.description, labels=kind.labels)
        for sample in samples:
            if sample.name == name:
                family.add_metric([sample.labels[label] for label in kind.labels], sample.value)
        yield family


def _counters(totals: Snapshot) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

    for name, description in COUNTERS.items():
        family = CounterMetricFamily(PREFIX + name, description, labels=("queue",))
        for (counted, queue), value in totals.counters.items():
            if counted == name:
                family.add_metric((queue,), value)
        yield family


def _histograms(totals: Snapshot) -> Iterator[Any]:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 - an extra

    for name, description in HISTOGRAMS.items():
        family = HistogramMetricFamily(PREFIX + name, description, labels=("queue",))
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
