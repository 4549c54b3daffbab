"""The composition root: the only place that builds a working pipeline from settings."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from django.db import OperationalError, connections

from django_jobs.backends.base import Inspects, KeepsBreakers
from django_jobs.backends.breakers import asking
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.db.transactions import is_locked, naming_missing_tables
from django_jobs.enqueue import DEFAULT_QUEUE
from django_jobs.exceptions import BackendUnavailable
from django_jobs.handlers.registry import registry
from django_jobs.ids import process_name
from django_jobs.outbox.relay import Relay
from django_jobs.routers import outbox_database
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer
from django_jobs.worker.admission import Gatekeeper, Policies
from django_jobs.worker.cycle import EMPTY, Cycle, Renewer, Report
from django_jobs.worker.executor import Executor
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Asker, Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings

T = TypeVar("T")

LOCKED_PATIENCE = 30.0


def process_once(queue: str | Sequence[str] | None = None, *, backend: str | None = None) -> Report:
    """Process one due job in this process, and return a report.

    Without a queue it looks at those of the settings, or at ``default``. Inside an open
    transaction it uses savepoints and closes no connection, so that it works in a
    ``TestCase``. A backend that fails again and again is left alone for a while, which is
    ``circuit-open``; so is a queue whose breaker is open. A SQLite database that is locked by
    others is tried for half a minute, and at least once.
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
    """Try again if others held SQLite's only lock throughout the busy timeout.

    The lock is given in no order: among many processes one may always come last. Inside a
    transaction of the caller, it is up to the caller to start over.
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
    """Run and settle one lease, for a backend that runs jobs by itself."""
    cycle = build_cycle(backend, get_settings())
    cycle = replace(cycle, executor=replace(cycle.executor, lent=True))
    return cycle.deliver(lease, lease_seconds)


def build_cycle(backend: Backend, settings: JobsSettings) -> Cycle:
    """A cycle that fetches, runs and settles the jobs of one backend in this process."""
    renewer = Renewer(backend)
    executor = build_executor(backend, settings)
    return Cycle(
        executor=replace(executor, is_asked=renewer.is_asked),
        asker=build_asker(executor.settler),
        renewer=renewer,
    )


def build_executor(backend: Backend, settings: JobsSettings) -> Executor:
    """An executor for the jobs of one backend."""
    return Executor(
        backend=backend,
        settings=settings,
        gatekeeper=build_gatekeeper(backend, settings),
        settler=Settler(backend, settings),
        policies=Policies(settings, registry),
        worker=worker_name(),
    )


def build_gatekeeper(backend: Backend, settings: JobsSettings) -> Gatekeeper:
    """A gatekeeper, which decides what messages of a backend may run here."""
    return Gatekeeper(
        settings,
        build_opener(backend, settings),
        registry,
        runs_delayed=backend.runs_delayed,
    )


def build_asker(settler: Settler) -> Asker:
    """An asker, which settles with retries."""
    breaker = settler.settings.circuit_breaker
    database = settler.backend.home
    return Asker(settler, Outage(settler.backend.alias, breaker.threshold, database=database))


def build_relay(backend: Backend, settings: JobsSettings, home: str | None = None) -> Relay | None:
    """A relay for the outbox of a backend; None if it has none.

    ``home``: the database of the outbox, whatever the settings say.
    """
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
    """An opener for the messages of a backend.

    Access to a broker would be enough to have unverified messages run. So no setting switches
    verification off there, with or without the system checks.
    """
    return Opener(
        backend=backend.alias,
        site=settings.site,
        max_payload_bytes=settings.max_payload_bytes,
        signer=Signer(settings.signing_keys),
        verify_signatures=settings.verify_signatures or not backend.trusted_store,
    )


def worker_name() -> str:
    """The name of this worker in records: host and process."""
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
