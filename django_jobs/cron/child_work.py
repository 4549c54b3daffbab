"""What the children of a scheduler do. Only ever called in a child."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.registry import backends
from django_jobs.cron import gates
from django_jobs.cron.enqueue import prepared
from django_jobs.cron.registry import find
from django_jobs.worker.build import run_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_jobs.backends.base import Lease


def ask(name: str) -> bool:
    """Run the ``when`` of a schedule."""
    return bool(gates.run_when(find(name)))


def run(backend: str, lease: Lease, lease_seconds: float) -> str:
    """Run an inline job and settle it."""
    return run_lease(backends[backend], lease, lease_seconds).status


def enqueue(name: str, tick: int, job_id: str) -> str:
    """Enqueue the job of a tick to a backend that runs jobs at enqueue."""
    job = prepared(find(name), tick)
    job.id = job_id
    return job.enqueue().id


WORK: Mapping[str, Callable[..., Any]] = {"ask": ask, "run": run, "enqueue": enqueue}
