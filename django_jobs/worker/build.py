"""The composition root: the only place that turns settings into a working pipeline."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from django.db import OperationalError, connections

from django_jobs.backends.base import Inspects, KeepsBreakers
from django_jobs.backends.breakers import asking
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.db.missing_tables import naming_missing_tables
from django_jobs.db.transactions import is_locked
from django_jobs.enqueue import DEFAULT_QUEUE
from django_jobs.exceptions import BackendUnavailable
from django_jobs.handlers.registry import registry
from django_jobs.ids import process_name
from django_jobs.outbox.relay import Relay
from django_jobs.routers import outbox_database
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer
from django_jobs.worker.admission import Gatekeeper, Policies
from django_jobs.worker.cycle import EMPTY, Cycle, Report
from django_jobs.worker.executor import Executor
from django_jobs.worker.renewal import Renewer
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Asker, Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings

T = TypeVar("T")

LOCKED_PATIENCE = 30.0


def process_once(queue: str | Sequence[str] | None = None, *, backend: str | None = None) -> Report:
    """Process one due job here and now, and say what became of it.

    Without a queue those of the settings are looked at, or ``default``. Inside an open
    transaction it uses savepoints and closes no connection, so that it works in a
    ``TestCase``. Where the backend failed again and again it is left alone for a while,
    which is ``circuit-open``; so is a queue whose jobs nobody gets because of its breaker.
    A SQLite database that others keep locked is asked for half a minute, and once at least.
    """
    settings = get_settings()
    cycle = build_cycle(backends[backend or settings.default_backend], settings)
    with naming_missing_tables(cycle.backend.alias):
        return _once(cycle, queue, settings)


def _once(cycle: Cycle, queue: str | Sequence[str] | None, settings: JobsSettings) -> Report:
    if relay := build_relay(cycle.backend, settings):
        _though_locked(relay.step)
    queues = _queues(queue, cycle.backend, settings)
    left_alone = False
    for name in queues:
        try:
            with asking(cycle.backend.alias, name):
                report = _though_locked(lambda: cycle.once([name]))  # noqa: B023 - called at once
        except BackendUnavailable:
            left_alone = True
            continue
        if report:
            return report
    held_back = "circuit-open" if left_alone else _held_back(cycle.backend, queues)
    return Report(held_back) if held_back else EMPTY


def _held_back(backend: Backend, queues: Sequence[str]) -> str | None:
    return backend.held_back(queues) if isinstance(backend, KeepsBreakers) else None


def _though_locked(work: Callable[[], T]) -> T:
    """Ask again where SQLite gave its one lock to others throughout the busy timeout.

    It gives it in no order, so that among many processes one may get it last every time. In
    a transaction of the caller it is the caller's to begin anew.
    """
    until = time.monotonic() + LOCKED_PATIENCE
    while True:
        try:
            return work()
        except OperationalError as error:
            in_block = any(x.in_atomic_block for x in connections.all(initialized_only=True))
            if not is_locked(error) or in_block or time.monotonic() >= until:
                raise


def run_lease(backend: Backend, lease: Lease, lease_seconds: float) -> Report:
    """Take one lease to its end, for a backend that runs jobs by itself."""
    cycle = build_cycle(backend, get_settings())
    cycle = replace(cycle, executor=replace(cycle.executor, lent=True))
    return cycle.deliver(lease, lease_seconds)


def build_cycle(backend: Backend, settings: JobsSettings) -> Cycle:
    """What fetches, runs and settles the jobs of one backend, in this process."""
    renewer = Renewer(backend)
    executor = build_executor(backend, settings)
    return Cycle(
        executor=replace(executor, is_asked=renewer.is_asked),
        asker=build_asker(executor.settler),
        renewer=renewer,
    )


def build_executor(backend: Backend, settings: JobsSettings) -> Executor:
    """What runs the jobs of one backend."""
    return Executor(
        backend=backend,
        settings=settings,
        gatekeeper=build_gatekeeper(backend, settings),
        settler=Settler(backend, settings),
        policies=Policies(settings, registry),
        worker=worker_name(),
    )


def build_gatekeeper(backend: Backend, settings: JobsSettings) -> Gatekeeper:
    """What decides which messages of a backend may run here."""
    return Gatekeeper(
        settings,
        build_opener(backend, settings),
        registry,
        runs_delayed=backend.runs_delayed,
    )


def build_asker(settler: Settler) -> Asker:
    """What settles patiently."""
    breaker = settler.settings.circuit_breaker
    database = settler.backend.home
    return Asker(settler, Outage(settler.backend.alias, breaker.threshold, database=database))


def build_relay(backend: Backend, settings: JobsSettings, home: str | None = None) -> Relay | None:
    """What moves the outbox of a backend; None where it has none. ``home``: even so, from there."""
    database = home or outbox_database(settings, backend.alias)
    if database is None:
        return None
    opener = build_opener(backend, settings)
    return Relay(
        backend,
        database,
        opener,
        lease_seconds=settings.lease_seconds,
        patience=settings.unknown_patience,
    )


def build_opener(backend: Backend, settings: JobsSettings) -> Opener:
    """What opens the messages of a backend.

    Whoever reaches a broker could have anything run that is not verified, so no setting
    switches that off there, with or without the system checks.
    """
    return Opener(
        backend=backend.alias,
        site=settings.site,
        max_payload_bytes=settings.max_payload_bytes,
        signer=Signer(settings.signing_keys),
        verify_signatures=settings.verify_signatures or not backend.trusted_store,
    )


def worker_name() -> str:
    """Who ran a job: host and process."""
    return process_name()


def _queues(
    queue: str | Sequence[str] | None, backend: Backend, settings: JobsSettings
) -> Sequence[str]:
    if isinstance(queue, str):
        return [queue]
    if queue is not None:
        return queue
    mine = [name for name in settings.queues if settings.backend_for(name) == backend.alias]
    there = backend.queues() if isinstance(backend, Inspects) else []
    return mine or there or [DEFAULT_QUEUE]
