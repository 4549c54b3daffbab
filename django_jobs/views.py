"""What probes and scrapers ask for, to be included by a site: ``django_jobs.urls``."""

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
from django_jobs.operations.health import Limits, troubles
from django_jobs.telemetry.counters import total_counters
from django_jobs.telemetry.metrics import BUCKETS, COUNTERS, GAUGES, HISTOGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from django_jobs.telemetry.collectors import Snapshot


# Who may look: whoever shows ``MONITOR_TOKEN``, or a user with the permission to see workers.


PERMISSION = "django_jobs.view_worker"
SCHEME = "bearer"


def for_monitors(
    view: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """A view for GET and HEAD, never cached, for those who may look."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponseBase:
        return view(request) if may_look(request) else _refused()

    return require_safe(never_cache(guarded))


def may_look(request: HttpRequest) -> bool:
    """Whether a request comes from somebody who may."""
    if _shows_token(request):
        return True
    user: Any = getattr(request, "user", None)
    return bool(user and user.is_active and user.has_perm(PERMISSION))


def _shows_token(request: HttpRequest) -> bool:
    wanted = get_settings().monitor_token
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if wanted is None or scheme.lower() != SCHEME:
        return False
    # Bytes: text that is not ASCII would raise instead of being different.
    return hmac.compare_digest(shown.strip().encode("utf-8", "replace"), wanted.encode())


def _refused() -> HttpResponse:
    told = "show MONITOR_TOKEN as a bearer token, or log in with the permission to view workers"
    refused = JsonResponse({"error": told}, status=401)
    refused["WWW-Authenticate"] = 'Bearer realm="django_jobs"'
    return refused


# The health of queues and workers as JSON: 200 when all is well, 503 when it is not.


LIMITS: dict[str, Callable[[str], Any]] = {
    "max_age": seconds,
    "min_workers": whole,
    "queue": queue_name,
}


@for_monitors
def health(request: HttpRequest) -> JsonResponse:
    """What ``jobs_status --check`` finds. The limits are parameters of the query."""
    try:
        limits = _limits(request)
    except ArgumentTypeError as error:
        return JsonResponse({"error": str(error)}, status=400)
    try:
        found = [asdict(one) for one in troubles(limits)]
    except Error as error:
        # What the database says may name hosts and users, and belongs into the log alone.
        found = [{"kind": "unreachable", "detail": type(error).__name__}]
    return JsonResponse({"ok": not found, "troubles": found}, status=503 if found else 200)


def _limits(request: HttpRequest) -> Limits:
    given = {}
    for name, text in request.GET.items():
        if name not in LIMITS:
            raise ArgumentTypeError(f"there is no limit {name!r}; known are {', '.join(LIMITS)}")
        try:
            given[name] = LIMITS[name](str(text))
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{name}: {error}") from None
    return Limits(**given)


# The figures of all workers for Prometheus, from the database: any process can serve them.


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

    told = store_gauges.read()
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
