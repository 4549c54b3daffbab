"""NOTIFY: hints to idle workers on PostgreSQL that there may be work.

A hint is sent after the caller's COMMIT, in a statement of its own, and not inside the
caller's transaction. PostgreSQL commits transactions with a NOTIFY one at a time and holds
the lock while it writes its log: every commit that enqueues would wait for every other. A
NOTIFY alone writes no log. Leaving out hints that follow closely is safe, as that is decided
after the commit: a worker that receives the last hint of this process, and polls once more
after ``QUIET_SECONDS``, sees the job whose hint was left out.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from django.db import Error, connections, transaction

from django_jobs.backends.base import Settled
from django_jobs.clock import SECOND, SystemClock
from django_jobs.db.transactions import awaits_commit
from django_jobs.models import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease
    from django_jobs.wire.envelope import Outgoing, Terms

QUIET_SECONDS = 0.02
HORIZON_SECONDS = 60.0
"""No worker sleeps longer than this without polling, so a job due later needs no hint."""

# One channel for each table. Sites that share a database have their tables in schemas of
# their own, and only the server knows for sure which table a name means.
CHANNEL = f"'django_jobs_' || '{Job._meta.db_table}'::regclass::oid"

_clock = SystemClock()


class Hints:
    """Sends hints about the queues of one backend, at a limited rate per process and queue."""

    def __init__(self, database: str, backend: str) -> None:
        self._database = database
        self._backend = backend
        self._notified_at: dict[str, float] = {}
        self._notifiers: dict[str, Callable[[], None]] = {}

    def enqueued(self, outgoing: Sequence[Outgoing]) -> None:
        """Send hints for messages that were stored, after the caller's commit if there is one."""
        self.due(dict.fromkeys(m.terms.queue for m in outgoing if _is_due_soon(m.terms)))

    def returned(self, leases: Sequence[Lease], answers: Sequence[Settled]) -> None:
        """Send hints for jobs that were given back: this worker may be stopping."""
        answered = zip(leases, answers, strict=True)
        self.due({lease.queue for lease, answer in answered if answer is Settled.SETTLED})

    def due(self, queues: Iterable[str]) -> None:
        """Send hints for these queues, once the caller's transaction is committed."""
        connection = connections[self._database]
        if connection.vendor != "postgresql":
            return
        for queue in queues:
            notify = self._notifiers.setdefault(queue, partial(self._notify, queue))
            if connection.in_atomic_block:
                _after_commit(connection, notify)
            elif connection.get_autocommit():
                notify()
            # Without autocommit there is no hint: if it failed, it would break the caller's
            # transaction.

    def _notify(self, queue: str) -> None:
        now = time.monotonic()
        if now - self._notified_at.get(queue, float("-inf")) < QUIET_SECONDS:
            return
        self._notified_at[queue] = now
        try:
            with connections[self._database].cursor() as cursor:
                cursor.execute(f"SELECT pg_notify({CHANNEL}, %s)", [payload(self._backend, queue)])
        except Error:
            return  # the job is stored; a worker finds it at its next poll


def payload(backend: str, queue: str) -> str:
    """The text of a hint; no queue's name contains a space."""
    return f"{backend} {queue}"


def _is_due_soon(terms: Terms) -> bool:
    if terms.schedule is not None:
        return terms.schedule - _clock.now() < HORIZON_SECONDS * SECOND
    return (terms.delay or 0) < HORIZON_SECONDS


def _after_commit(connection: BaseDatabaseWrapper, notify: Callable[[], None]) -> None:
    if not awaits_commit(connection):
        return  # a test around it might count the callbacks
    hooks = connection.run_on_commit
    if hooks and hooks[-1][1] is notify and hooks[-1][0] == set(connection.savepoint_ids):
        return  # one callback is enough for thousands of jobs enqueued one by one
    transaction.on_commit(notify, using=connection.alias)
