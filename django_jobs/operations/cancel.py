"""Cancel jobs: one that waits is cancelled at once, one that runs is asked to stop.

A job moves from the outbox to its backend, so they are searched in that order.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from django.db import connections

from django_jobs import outbox
from django_jobs.backends.base import Cancels, can_peek, lacking
from django_jobs.backends.home import jobs_database, record
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.db.transactions import in_transition
from django_jobs.ids import parse_id
from django_jobs.models import Job
from django_jobs.routers import database_of, job_databases, outbox_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.backends.base import Backend, Glimpse
    from django_jobs.outbox.withdrawal import Withdrawn

    Witness = Callable[[str], None]
    """Called with the new status, in the transaction that makes the change."""

CancelStatus = Literal["cancelled", "asked", "already-asked", "moving", "gone"]
MOVING_SECONDS = 2.0
LOOK_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """The result of cancelling a job, or of asking it to stop.

    ``cancelled``: it waited, and is over. ``asked``: it runs, and its handler can see that
    it is to stop; ``already-asked``: it was asked before. ``moving``: it is on its way from the
    outbox to its backend, and may have arrived or not; try again. ``gone``: it ended, never
    existed, or its backend cannot cancel it.
    """

    job_id: str
    status: CancelStatus


def cancel_or_ask_to_stop(
    job_id: str, *, by: str, reason: str = "", witness: Witness | None = None
) -> CancelResult:
    """Cancel a job that waits, or ask a running one to stop. Calling it again changes nothing."""
    key = parse_id(job_id)
    status: CancelStatus = "gone"
    for place in [] if key is None else _places(key, by, reason):
        if (status := place.cancel_or_ask_to_stop(witness)) != "gone":
            break
    return CancelResult(job_id=key or job_id, status=status)


def cancel(job_id: str, *, by: str, reason: str = "") -> bool:
    """Cancel a job that waits; False when it runs, has ended or never existed."""
    key = parse_id(job_id)
    places = [] if key is None else _places(key, by, reason)
    return any(place.cancel() for place in places)


def _places(key: str, by: str, reason: str) -> Iterator[_Place]:
    """The places where a job is or may be."""
    for name in get_settings().backends:
        home = outbox_database(get_settings(), name)
        if home is not None and (waiting := outbox.find(name, key)):
            yield _Outbox(key, backends[name], waiting.queue, home, by, reason)
            break
    for alias in job_databases(get_settings()):
        row = Job.objects.using(alias).filter(pk=key).values("backend", "queue").first()
        if row is not None:
            yield _Place(key, backends[row["backend"]], row["queue"], alias, by, reason)
            return
    for name, config in get_settings().backends.items():
        if database_of(config) is None and (backend := backends[name]).capabilities.cancel:
            glimpse = _live(backend, key)
            queue = "" if glimpse is None else glimpse.queue
            yield _Place(key, backend, queue, jobs_database(), by, reason)


def _live(backend: Backend, key: str) -> Glimpse | None:
    """A live job, if its backend can show it."""
    if can_peek(backend):
        return backend.find(key)
    return None


@dataclass(frozen=True, slots=True)
class _Place:
    """A job on its backend, with the operator and the reason to record."""

    key: str
    backend: Backend
    queue: str
    alias: str
    by: str
    reason: str

    def cancel(self) -> bool:
        return in_transition(self.alias, lambda _: self._cancel())

    def cancel_or_ask_to_stop(self, witness: Witness | None) -> CancelStatus:
        def work(_: object) -> CancelStatus:
            status: CancelStatus = "cancelled"
            if not self._cancel():
                status = self._ask_to_stop()
            if witness is not None and status in {"cancelled", "asked"}:
                witness(status)
            return status

        return in_transition(self.alias, work)

    def _cancel(self) -> bool:
        if not isinstance(self.backend, Cancels):
            raise lacking(self.backend, "cancel", self.key)
        done = self.backend.cancel(self.key)
        if done:
            self._record("cancel")
        return done

    def _ask_to_stop(self) -> CancelStatus:
        if isinstance(self.backend, Cancels) and self.backend.ask_to_stop(self.key):
            self._record("stop")
            return "asked"
        return "already-asked" if self._was_asked() else "gone"

    def _was_asked(self) -> bool:
        asked = Job.objects.using(self.alias).filter(pk=self.key, cancel_requested=True)
        if asked.exists():
            return True
        glimpse = _live(self.backend, self.key)
        return glimpse is not None and bool(glimpse.extra.get("asked_to_stop"))

    def _record(self, action: str) -> None:
        record(
            self.alias,
            action,
            by=self.by,
            reason=self.reason,
            backend=self.backend.alias,
            queue=self.queue,
            subject=self.key,
        )


class _Outbox(_Place):
    """A job in the outbox of its backend; ``alias`` is the outbox's database."""

    def cancel(self) -> bool:
        return self._withdraw_after_push(None) == "cancelled"

    def cancel_or_ask_to_stop(self, witness: Witness | None) -> CancelStatus:
        return self._withdraw_after_push(witness)

    def _withdraw_after_push(self, witness: Witness | None) -> Withdrawn:
        """Withdraw it, waiting for a push under way: that takes milliseconds.

        Does not wait in a transaction of the caller, which may hold locks.
        """
        until = time.monotonic() + MOVING_SECONDS
        while True:
            status = in_transition(self.alias, lambda _: self._withdraw(witness))
            free = not connections[self.alias].in_atomic_block
            if status != "moving" or not free or time.monotonic() > until:
                return status
            time.sleep(LOOK_EVERY_SECONDS)

    def _withdraw(self, witness: Witness | None) -> Withdrawn:
        status = outbox.withdraw(self.alias, self.backend, self.key)
        if status == "cancelled":
            self._record("cancel")
            if witness is not None:
                witness(status)
        return status
