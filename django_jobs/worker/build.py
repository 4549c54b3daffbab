"""The composition root: the only place that turns settings into a working pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.enqueue import DEFAULT_QUEUE
from django_jobs.handlers.registry import registry
from django_jobs.ids import process_name
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer
from django_jobs.worker.admission import Gatekeeper
from django_jobs.worker.asking import Asker
from django_jobs.worker.cycle import Cycle
from django_jobs.worker.policies import Policies
from django_jobs.worker.renewal import Renewer
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Outage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.worker.cycle import Report


def process_once(queue: str | Sequence[str] | None = None, *, backend: str | None = None) -> Report:
    """Process one due job here and now, and say what became of it.

    Without a queue those of the settings are looked at, or ``default``. Inside an open
    transaction it uses savepoints and closes no connection, so that it works in a
    ``TestCase``.
    """
    settings = get_settings()
    cycle = build_cycle(backends[backend or settings.default_backend], settings)
    return cycle.once(_queues(queue, cycle.backend, settings))


def run_lease(backend: Backend, lease: Lease, lease_seconds: float) -> Report:
    """Take one lease to its end, for a backend that runs jobs by itself."""
    return build_cycle(backend, get_settings()).deliver(lease, lease_seconds)


def build_cycle(backend: Backend, settings: JobsSettings) -> Cycle:
    """The pipeline of one backend."""
    settler = Settler(backend, settings)
    return Cycle(
        backend=backend,
        settings=settings,
        gatekeeper=Gatekeeper(settings, build_opener(backend.alias, settings), registry),
        settler=settler,
        asker=Asker(settler, Outage(backend.alias)),
        policies=Policies(settings, registry),
        renewer=Renewer(backend),
        worker=worker_name(),
    )


def build_opener(backend: str, settings: JobsSettings) -> Opener:
    """What opens the messages of a backend."""
    return Opener(
        backend=backend,
        site=settings.site,
        max_payload_bytes=settings.max_payload_bytes,
        signer=Signer(settings.signing_keys),
        verify_signatures=settings.verify_signatures,
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
    return mine or backend.queues() or [DEFAULT_QUEUE]
