"""Who moves a queue of the outbox: one relay at a time, so that its jobs keep their order."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from django.db.models import Q

from django_jobs.backends.database.transactions import in_reading, in_transition
from django_jobs.clock import to_microseconds
from django_jobs.models import RelayLease

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_jobs.backends.database.clock import StoreClock


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
        if self._taken(queue):
            return True
        if in_reading(self._home, self._rows(queue).exists):
            return False
        missing = RelayLease(backend=self._backend, queue=queue)
        rows = RelayLease.objects.using(self._home)
        in_transition(self._home, lambda _: rows.bulk_create([missing], ignore_conflicts=True))
        return self._taken(queue)

    def _taken(self, queue: str) -> bool:
        now = self._clock.now()
        mine = self._rows(queue).filter(Q(token=self._token) | Q(expires__lte=now))
        expires = now + to_microseconds(self._seconds)
        return bool(
            in_transition(self._home, lambda _: mine.update(token=self._token, expires=expires))
        )

    def release(self, queue: str) -> None:
        """Let others have it at once."""
        mine = self._rows(queue).filter(token=self._token)
        in_transition(self._home, lambda _: mine.update(expires=0))

    def _rows(self, queue: str) -> QuerySet[RelayLease]:
        return RelayLease.objects.using(self._home).filter(backend=self._backend, queue=queue)
