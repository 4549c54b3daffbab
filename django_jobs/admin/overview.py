"""The overview: all queues and workers on one page that refreshes itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.forms.widgets import Script
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.http import urlencode

from django_jobs.admin.base import ReadOnlyAdmin, jobs_url, narrowed_to
from django_jobs.admin.payloads import shortened, shown
from django_jobs.backends.home import jobs_database, moments
from django_jobs.models import Overview
from django_jobs.operations.brokers import open_breakers, until
from django_jobs.operations.causes import span
from django_jobs.operations.overview import (
    Counts,
    by_queue,
    overview_of_some,
    series,
)
from django_jobs.operations.workers import workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from django_jobs.operations.brokers import OpenBreaker
    from django_jobs.operations.overview import QueueOverview, Series
    from django_jobs.operations.workers import WorkerSeen


# Charts: the numbers of an SVG that a template renders, without script, style or library.

WIDTH = 600
TOP, BOTTOM = 14, 126
LEFT = 34
GAP_SHARE = 0.25
TABLE_ROWS = 12
KINDS = ("succeeded", "retried", "dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A segment of a bar. ``kind`` decides its colour."""

    kind: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """A row of the table with the same numbers."""

    since: str
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, ready to be rendered."""

    id: str
    title: str
    description: str
    bars: list[Bar]
    most: str
    half: str
    begins: str
    middle: str
    total: Counts
    rows: list[OverviewRow]


def chart(name: str, title: str, series: Series) -> Chart:
    """Stacked bars, one for each slot."""
    most = nice(max((slot.total for slot in series.slots), default=0))
    total = series.total
    rows = series.by(max(len(series.slots) // TABLE_ROWS, 1))
    return Chart(
        id=name,
        title=title,
        description=(
            f"{total.succeeded} runs succeeded, {total.retried} failed and were to be retried, "
            f"{total.dead} ended as dead letters; at most {most} in {series.slot_minutes} minutes."
        ),
        bars=list(_bars(series, most)),
        most=_short(most),
        half=_short(most / 2) if most > 1 else "",
        begins=_clock(series.begins),
        middle=_clock(_moment(series, len(series.slots) // 2)),
        total=total,
        rows=[
            OverviewRow(since=_clock(_moment(rows, place)), counts=counts)
            for place, counts in enumerate(rows.slots)
        ],
    )


def nice(number: int) -> int:
    """The next round number for the end of an axis."""
    if number <= 0:
        return 1
    size = int(10 ** (len(str(number)) - 1))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= number)


def _bars(series: Series, most: int) -> Iterator[Bar]:
    step = (WIDTH - LEFT) / len(series.slots)
    for place, counts in enumerate(series.slots):
        y = float(BOTTOM)
        for kind in KINDS:
            if not (count := getattr(counts, kind)):
                continue
            # Even a single run stays visible beside high bars.
            height = max(count / most * (BOTTOM - TOP), 1.0)
            y -= height
            yield Bar(
                kind=kind,
                x=f"{LEFT + place * step + step * GAP_SHARE / 2:.2f}",
                y=f"{y:.2f}",
                width=f"{step * (1 - GAP_SHARE):.2f}",
                height=f"{height:.2f}",
            )


def _moment(series: Series, place: int) -> datetime:
    return series.begins + timedelta(minutes=series.slot_minutes * place)


def _clock(moment: datetime) -> str:
    return date_format(timezone.localtime(moment), "H:i")


def _short(number: float) -> str:
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


# The page.

REFRESH_SECONDS = 5
WORKERS_SHOWN = 50
JOBS_SHOWN = 8
QUEUES_SHOWN = 100
COUNTED_AT_MOST = 1_000  # the page is refreshed every few seconds
_MICRO = 1_000_000
_COLUMNS = ("ready", "scheduled", "running", "blocked")


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin):
    """The first page to open when something is wrong."""

    class Media:
        css = {"all": ("django_jobs/overview.css",)}
        js = (Script("django_jobs/overview.js", defer=True),)

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        wrap = self.admin_site.admin_view
        # There are no rows, so none of the usual pages.
        return [
            path("", wrap(self.page), name=f"{name}_changelist"),
            path("fragment/", wrap(self.fragment), name=f"{name}_fragment"),
        ]

    def page(self, request: HttpRequest) -> HttpResponse:
        """The whole page."""
        context = {
            **self._live(request),
            "title": "Overview",
            "refresh_seconds": REFRESH_SECONDS,
        }
        return self.page_of(request, "overview/page.html", context)

    def fragment(self, request: HttpRequest) -> HttpResponse:
        """The part of the page that is refreshed."""
        live = shown(self._live(request))
        answer = TemplateResponse(request, "admin/django_jobs/overview/live.html", live)
        answer["Cache-Control"] = "no-store"
        return answer

    def _live(self, request: HttpRequest) -> dict[str, Any]:
        if not self.has_view_permission(request):
            raise PermissionDenied
        at = moments()
        hour, day = series(60, 1, at), series(48, 30, at)
        breakers = open_breakers()
        queues, more = overview_of_some(
            COUNTED_AT_MOST, at=at, breakers=breakers, queues_at_most=QUEUES_SHOWN
        )
        lately, broken = by_queue(60, at), _breakers(breakers, at[jobs_database()])
        seen = workers(with_jobs=True, at=at)
        may = _Rights(request)
        return {
            "tiles": _tiles(queues, seen, hour.total, more=more > 0),
            "more_queues": more,
            "queues": [
                _queue(queue, lately.get((queue.backend, queue.queue)), may)
                | {"breakers": broken.get((queue.backend, queue.queue), [])}
                for queue in queues
            ],
            "breakers": broken.get(("", ""), []),
            "workers": [_worker(worker, may) for worker in seen[:WORKERS_SHOWN]],
            "more_workers": max(len(seen) - WORKERS_SHOWN, 0),
            "charts": [
                chart("dj-hour", "The last hour, by minute", hour),
                chart("dj-day", "The last day, by half hour", day),
            ],
            "may": may,
        }


def _breakers(breakers: list[OpenBreaker], now: int) -> dict[tuple[str, str], list[str]]:
    """The open breakers by backend and queue; queues share those of handlers: ("", "")."""
    by_place: dict[tuple[str, str], list[str]] = {}
    for breaker in breakers:
        of_queue = breaker.kind == "queue"
        place = (breaker.backend, breaker.name) if of_queue else ("", "")
        whose = "" if of_queue else f" of {shortened(breaker.name, 60)}"
        by_place.setdefault(place, []).append(f"breaker{whose} {until(breaker, now)}")
    return by_place


class _Rights:
    """What the user may see and do from the overview."""

    def __init__(self, request: HttpRequest) -> None:
        def may(*names: str) -> bool:
            return request.user.has_perms([f"django_jobs.{name}" for name in names])

        self.see_jobs = may("view_job")
        self.see_dead = may("view_failedjob")
        self.pause = may("view_queuecontrol", "pause_queue")
        self.limit = may("view_queuecontrol", "limit_queue")
        self.drain = may("view_worker", "drain_worker")


def _sum(queues: list[QueueOverview], name: str, *, more: bool) -> str:
    plus = "+" if more or any(name in queue.at_least for queue in queues) else ""
    return f"{sum(getattr(queue, name) for queue in queues):,}{plus}"


def _tiles(
    queues: list[QueueOverview], seen: list[WorkerSeen], hour: Counts, *, more: bool
) -> list[dict[str, str | bool]]:
    present = sum(worker.is_present for worker in seen)
    oldest = max((queue.oldest_ready_seconds for queue in queues), default=0.0)
    dead = _sum(queues, "dead", more=more)
    return [
        {"name": "Ready", "value": _sum(queues, "ready", more=more)},
        {"name": "Running", "value": _sum(queues, "running", more=more)},
        {"name": "Oldest wait", "value": span(oldest * _MICRO) if oldest else "–"},
        {"name": "Dead letters", "value": dead, "bad": any(queue.dead for queue in queues)},
        {"name": "Workers", "value": str(present), "bad": not present},
        {"name": "Done in an hour", "value": f"{hour.succeeded:,}"},
    ]


def _queue(depth: QueueOverview, lately: Counts | None, may: _Rights) -> dict[str, Any]:
    named = urlencode({"ids": f"{depth.backend}/{depth.queue}", "back": "overview"})
    dead = reverse("admin:django_jobs_failedjob_changelist")
    narrowed = urlencode({"queue": depth.queue, **narrowed_to(depth.backend)})
    verbs = []
    if may.pause:
        verb = "resume" if depth.paused else "pause"
        verbs.append((verb.capitalize(), reverse(f"admin:django_jobs_queuecontrol_{verb}")))
    if may.limit:
        verbs.append(("Limit", reverse("admin:django_jobs_queuecontrol_limit")))
    return {
        "name": depth.queue,
        "backend": depth.backend,
        "cells": [
            {
                "name": state,
                "count": depth.shown(state),
                "zero": not getattr(depth, state),
                "url": jobs_url(depth.backend, depth.queue, state) if may.see_jobs else "",
            }
            for state in _COLUMNS
        ],
        "dead": depth.shown("dead"),
        "has_dead": depth.dead > 0,
        "dead_url": f"{dead}?{narrowed}" if may.see_dead else "",
        "oldest": span(depth.oldest_ready_seconds * _MICRO) if depth.ready else "–",
        "lately": lately or Counts(),
        "paused": depth.paused,
        "reason": shortened(depth.paused_reason),
        "rate": depth.rate if depth.used is None else f"{depth.used} of {depth.rate}",
        "places": depth.concurrency,
        "problem": shortened(depth.problem),
        "verbs": [{"label": label, "url": f"{url}?{named}"} for label, url in verbs],
    }


def _worker(seen: WorkerSeen, may: _Rights) -> dict[str, Any]:
    worker = seen.worker
    named = urlencode({"ids": str(worker.pk), "back": "overview"})
    state = "draining" if worker.draining else "here"
    return {
        "name": str(worker),
        "backend": worker.backend,
        "queues": worker.queues,
        "size": f"{worker.processes} × {worker.concurrency}" if worker.processes else "1",
        "state": state if seen.is_present else "lost",
        "seen": span(seen.seconds_ago * _MICRO),
        "jobs": [
            {
                "handler": shortened(job.name or job.handler, 60),
                "queue": job.queue,
                "since": span(max(seen.now - (job.leased_at or seen.now), 0)),
                "stopping": job.cancel_requested,
                "url": reverse("admin:django_jobs_job_change", args=[job.pk])
                if may.see_jobs
                else "",
            }
            for job in seen.jobs[:JOBS_SHOWN]
        ],
        "more": max(len(seen.jobs) - JOBS_SHOWN, 0),
        "drain_url": (
            f"{reverse('admin:django_jobs_worker_drain')}?{named}"
            if may.drain and not worker.draining
            else ""
        ),
    }
