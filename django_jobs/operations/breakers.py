"""The circuit breakers that workers share, as they stand."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from django_jobs.backends.base import Standing
from django_jobs.backends.breakers import Circuit
from django_jobs.backends.registry import backends
from django_jobs.backends.shared_breakers import rule_of
from django_jobs.clock import SECOND, to_datetime, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.home import store_now
from django_jobs.models import Breaker
from django_jobs.operations.causes import span
from django_jobs.routers import job_databases


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """A breaker that lets nothing pass, or one job to try.

    ``state``: ``open`` while it cools down, for so many seconds, then ``half-open``.
    """

    kind: str
    backend: str
    name: str
    state: str
    failures: int
    seconds_left: float


def until(breaker: OpenBreaker, now: int) -> str:
    """How it stands, in words, with the moment when that changes, by the store's clock."""
    if not breaker.seconds_left:
        return "half-open: it lets one job at a time try"
    left = to_microseconds(breaker.seconds_left)
    return f"open until {to_datetime(now + left):%Y-%m-%d %H:%M:%S} UTC, for {span(left)}"


def open_breakers() -> list[OpenBreaker]:
    """Those of all databases that carry jobs and of other backends, by backend and name."""
    found = []
    for database in job_databases(get_settings()):
        rows = Breaker.objects.using(database).filter(opened_at__isnull=False)
        if not (opened := list(rows)):
            continue
        now = store_now(database)
        for row in opened:
            circuit = Circuit(row.failures, row.opened_at)
            found += _known(row.backend, Standing(row.kind, row.name, circuit, now))
    for alias in get_settings().backends:
        for standing in _kept_by(alias):
            found += _known(alias, standing)
    return sorted(found, key=lambda one: (one.backend, one.kind, one.name))


def _kept_by(alias: str) -> list[Standing]:
    try:
        return backends[alias].open_breakers()
    except (OSError, ImproperlyConfigured):  # it does not answer, which is told elsewhere
        return []


def _known(backend: str, standing: Standing) -> list[OpenBreaker]:
    rule = rule_of(standing.kind, standing.name)
    if rule is None:  # of settings that are no more
        return []
    left = standing.circuit.cools_for(standing.now, rule.cooldown) / SECOND
    return [
        OpenBreaker(
            kind=standing.kind,
            backend=backend,
            name=standing.name,
            state="open" if left else "half-open",
            failures=standing.circuit.failures,
            seconds_left=left,
        )
    ]
