"""Which relay moves a queue of the outbox: one at a time, so that its jobs keep their order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.db import connections
from django.db.models import Q

from django_jobs.clock import to_microseconds
from django_jobs.db.transactions import in_reading, in_transition
from django_jobs.models import RelayLease

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_jobs.db.clock import StoreClock


class RelayLeases:
    """The leases of one relay on the queues of a backend, on the clock of their database."""

    def __init__(self, home: str, backend: str, clock: StoreClock, seconds: float) -> None:
        self._home = home
        self._backend = backend
        self._clock = clock
        self._seconds = seconds
        self._token = uuid4().hex

    def take(self, queue: str) -> bool:
        """Take or prolong the lease on a queue; False while another relay has it."""

        def work(_: Any) -> bool:
            lease = self.hold(queue)
            if lease is not None:
                self.note(lease)
            return lease is not None

        take = partial(in_transition, self._home, work)
        return take() or (self.create(queue) and take())

    def hold(self, queue: str) -> RelayLease | None:
        """The lease, locked for the caller's transaction, where it can be taken or prolonged."""
        ours = Q(token=self._token) | Q(expires__lte=self._clock.now())
        return self._free(queue).filter(ours).first()

    def note(self, lease: RelayLease, row_id: int = 0) -> None:
        """Take or prolong what is held, and say up to which row jobs are pushed from now on."""
        self._rows(lease.queue).update(
            token=self._token,
            expires=self._clock.now() + to_microseconds(self._seconds),
            moving_to=max(lease.moving_to, row_id),
        )

    def prolong(self, queue: str) -> bool:
        """Begin the lease anew; False where it has ended since it was taken."""

        def work(_: Any) -> bool:
            now = self._clock.now()
            lease = self._free(queue).filter(token=self._token, expires__gt=now).first()
            if lease is not None:
                self.note(lease)
            return lease is not None

        return in_transition(self._home, work)

    def create(self, queue: str) -> bool:
        """Make the row of a queue's lease; False where it is there already."""
        if in_reading(self._home, self._rows(queue).exists):
            return False
        create_lease(self._home, self._backend, queue)
        return True

    def release(self, queue: str, noted: int | None = 0) -> None:
        """Let others have it at once; None leaves the note as it is.

        Where a cancel has it locked, it ends by itself.
        """
        changes = {"expires": 0} if noted is None else {"expires": 0, "moving_to": noted}

        def work(_: Any) -> None:
            lease = self._free(queue).filter(token=self._token).first()
            if lease is not None:
                self._rows(queue).update(**changes)

        in_transition(self._home, work)

    def _free(self, queue: str) -> QuerySet[RelayLease]:
        """The row, locked, unless it is already.

        A cancel locks it until its caller commits, and other queues are not to wait for that.
        """
        skips = connections[self._home].features.has_select_for_update_skip_locked
        return self._rows(queue).select_for_update(skip_locked=skips)

    def _rows(self, queue: str) -> QuerySet[RelayLease]:
        return RelayLease.objects.using(self._home).filter(backend=self._backend, queue=queue)


def create_lease(home: str, backend: str, queue: str) -> None:
    """Make the row of a queue's lease, unless it is there already."""
    missing = RelayLease(backend=backend, queue=queue)
    rows = RelayLease.objects.using(home)
    in_transition(home, lambda _: rows.bulk_create([missing], ignore_conflicts=True))
