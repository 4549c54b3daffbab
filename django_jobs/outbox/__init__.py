"""The outbox: a job for a broker is a row of the caller's transaction, and is moved on later.

These are called from modules that are imported before the apps are loaded; what they
call has to do with models, which cannot be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_jobs.backends.base import Account, Backend, Ended, Enqueued
    from django_jobs.models import OutboxJob
    from django_jobs.outbox.withdrawal import Withdrawn
    from django_jobs.wire.envelope import Outgoing


def write(home: str, backend: str, outgoing: Sequence[Outgoing]) -> list[Enqueued]:
    """Store messages for a backend in the outbox of the database ``home``."""
    from django_jobs.outbox import insert  # noqa: PLC0415 - see above

    return insert.write(home, backend, outgoing)


def known_ids(home: str, backend: Backend, jobs: Mapping[str, str]) -> set[str]:
    """Those of some jobs, by id with their queues, that have been enqueued before."""
    from django_jobs.outbox import lookup  # noqa: PLC0415 - see above

    return lookup.known_ids(home, backend, jobs)


def find(backend: str, job_id: str) -> OutboxJob | None:
    """The row of a job that is in the outbox of a backend, or None."""
    from django_jobs.outbox import lookup  # noqa: PLC0415 - see above

    return lookup.find(backend, job_id)


def state(backend: str, job_id: str) -> str | None:
    """The state of a job that is in the outbox of a backend, or None."""
    from django_jobs.outbox import lookup  # noqa: PLC0415 - see above

    return lookup.state(backend, job_id)


def ended(backend: str, job_id: str) -> Ended | None:
    """How a job ended that never got out of the outbox alive, or None."""
    from django_jobs.outbox import lookup  # noqa: PLC0415 - see above

    return lookup.ended(backend, job_id)


def account(backend: str, job_id: str) -> Account | None:
    """All that is known of a job that is in the outbox, or died there; or None."""
    from django_jobs.outbox import lookup  # noqa: PLC0415 - see above

    return lookup.account(backend, job_id)


def withdraw(home: str, backend: Backend, job_id: str) -> Withdrawn:
    """End a job that waits in the outbox of a backend, in the caller's transaction."""
    from django_jobs.outbox import withdrawal  # noqa: PLC0415 - see above

    return withdrawal.withdraw(home, backend, job_id)
