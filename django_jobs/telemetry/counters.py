"""The totals of all workers' counters, kept in the database."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from django.db.models import Sum

from django_jobs.conf import get_settings
from django_jobs.db.minutes import plus
from django_jobs.db.transactions import in_transition
from django_jobs.models import Metric
from django_jobs.routers import job_databases
from django_jobs.telemetry.collectors import Snapshot, Spread
from django_jobs.telemetry.metrics import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper


SUM = "sum"  # microseconds
LONGER = "inf"
Part = tuple[str, str, str]


def add_counters(taken: Snapshot, using: str | None = None) -> None:
    """Add a worker's counters and histograms to the totals, all of them or none."""
    alias = using or job_databases(get_settings())[0]
    # All workers update the rows in the same order, so that they cannot deadlock.
    parts = sorted(_parts(taken).items())

    def work(_: BaseDatabaseWrapper) -> None:
        metrics = Metric.objects.using(alias)
        for (name, queue, part), value in parts:
            mine = metrics.filter(name=name, queue=queue, part=part)
            if not mine.update(value=plus("value", value)):
                new = Metric(name=name, queue=queue, part=part)
                metrics.bulk_create([new], ignore_conflicts=True)
                mine.update(value=plus("value", value))

    in_transition(alias, work)


def total_counters() -> Snapshot:
    """The metrics of all workers, from every database that has jobs or dead letters."""
    totals = Snapshot()
    summed: Counter[Part] = Counter()
    for alias in job_databases(get_settings()):
        rows = Metric.objects.using(alias).order_by().values_list("name", "queue", "part")
        for name, queue, part, value in rows.annotate(Sum("value")):
            summed[name, queue, part] += int(value)
    for (name, queue, part), value in summed.items():
        if not part:
            totals.counters[name, queue] = value
            continue
        if part != SUM and part not in _PLACES:
            continue  # no metric, but which process exports the gauges
        spread = totals.histograms.setdefault((name, queue), Spread())
        if part == SUM:
            spread.microseconds = value
        else:
            spread.counts[_PLACES[part]] = value
    return totals


_ENDS = [*(f"{end:g}" for end in BUCKETS), LONGER]


_PLACES = {end: place for place, end in enumerate(_ENDS)}


def _parts(taken: Snapshot) -> dict[Part, int]:
    counted = {(name, queue, ""): value for (name, queue), value in taken.counters.items()}
    return {**counted, **dict(_of_histograms(taken))}


def _of_histograms(taken: Snapshot) -> Iterator[tuple[Part, int]]:
    for (name, queue), spread in taken.histograms.items():
        yield (name, queue, SUM), spread.microseconds
        for end, count in zip(_ENDS, spread.counts, strict=True):
            if count:
                yield (name, queue, end), count
