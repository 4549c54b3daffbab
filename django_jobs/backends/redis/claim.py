"""Claiming from queues in turn, past what closes them."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from django.db import Error

from django_jobs.backends import crash_events
from django_jobs.backends.limits import Limits, limits_of, tell_of_unread
from django_jobs.backends.rates import SLOTS, Lateness
from django_jobs.backends.redis.breakers import Breakers
from django_jobs.backends.redis.records import (
    header_of,
    lease_of,
    state_of,
    taken_of,
    unpack,
)
from django_jobs.backends.shared_breakers import LOOK_SECONDS, Closed
from django_jobs.backends.unanswered import Unheard
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.transactions import in_reading
from django_jobs.exceptions import StoreUnavailable
from django_jobs.ids import process_name
from django_jobs.models import QueueControl
from django_jobs.routers import job_databases
from django_jobs.telemetry.events import LimitsUnread, emit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.backends.redis.store import Store


# What operators and settings hold queues to, as scripts are told it.
#
# It stands in the Django database, where operators set it. While that is away, what was
# read last holds.


LOOK_AGAIN_SECONDS = 5.0
VALUES = 6
RATE, LATE = 1, 4
NO_LIMITS = Limits()


class Held(NamedTuple):
    """What holds for the queues of a backend."""

    limits: dict[str, Limits]
    paused: frozenset[str]


class QueueLimits:
    """The limits of one backend's queues, at most half a second old."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._held = Held({}, frozenset())
        self._look_at = float("-inf")
        self._lateness: defaultdict[str, Lateness] = defaultdict(Lateness)

    def rated(self, queues: Iterable[str]) -> set[str]:
        """Those of some queues with a rate limit."""
        known = self._current().limits
        return {name for name in queues if name in known and known[name].rate} if known else set()

    def claimed(self, leases: Sequence[Lease]) -> None:
        """These are about to start."""
        if leases[0].start_by is not None:
            self._lateness[leases[0].queue].claimed(leases[0])

    def returned(self, queue: str, leases: Sequence[Lease]) -> None:
        """These were given back and did not start."""
        rate = self._current().limits.get(queue, NO_LIMITS).rate
        if rate is not None:
            self._lateness[queue].returned(rate, leases)

    def args(self, queues: list[str]) -> list[str | int]:
        """Six values for each queue: paused, rate, window, slots, lateness, places.

        None at all where no queue has any: there may be thousands.
        """
        held = self._current()
        if not any(queue in held.limits or queue in held.paused for queue in queues):
            return []
        told: list[str | int] = []
        for queue in queues:
            limits = held.limits.get(queue, NO_LIMITS)
            rate, places = limits.rate, limits.concurrency
            told += [
                int(queue in held.paused),
                rate.limit if rate else 0,
                rate.window if rate else 0,
                SLOTS,
                self._lateness[queue].allowed(rate) if rate else 0,
                -1 if places is None else places,
            ]
        return told

    def limits(self) -> dict[str, Limits]:
        """What queues are limited to, of those that are not paused."""
        held = self._current()
        return {name: one for name, one in held.limits.items() if name not in held.paused}

    def is_paused(self, queue: str) -> bool:
        """Whether an operator lets nothing be claimed from the queue."""
        return queue in self._current().paused

    def _current(self) -> Held:
        if time.monotonic() >= self._look_at:
            try:
                database = job_databases(get_settings())[0]
                before, self._held = self._held, in_reading(database, lambda: self._read(database))
                tell_of_unread(self._backend, before.limits, self._held.limits)
                self._look_at = time.monotonic() + LOOK_SECONDS
            except Error as error:
                emit(LimitsUnread(backend=self._backend, error=error))
                self._look_at = time.monotonic() + LOOK_AGAIN_SECONDS
        return self._held

    def _read(self, database: str) -> Held:
        paused = QueueControl.objects.using(database).filter(backend=self._backend, paused=True)
        return Held(
            limits_of(database, self._backend), frozenset(paused.values_list("queue", flat=True))
        )


PROMOTED_AT_ONCE = 1000
FETCHED_AT_ONCE = 1000
MORE = -2
SCRIPTS = 20
"""So many are asked to pass over jobs that cannot be had, until a worker does something else."""
TURNS = 5
"""Claims of one fetch of which nothing may run. Each puts off in bulk what it met."""


class Seen(NamedTuple):
    """How queues stand: moments on the store's clock, -1 for none."""

    now: int
    soonest: int
    lease_ends: int
    due: int
    parked: int
    kept_till: int


NOTHING_SEEN = Seen(0, -1, -1, -1, 0, -1)


class Claims:
    """The claims of one backend."""

    def __init__(self, store: Store, backend: str) -> None:
        self._store = store
        self._backend = backend
        self._limits = QueueLimits(backend)
        self.ended_early = False
        self._broken = Closed()
        self._limited = Closed()
        self._claimed: list[tuple[list[str], str]] = []
        self.breakers = Breakers(store, backend, self._broken)
        self.unheard = Unheard[tuple[list[str], str]](self._return)

    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        """See ``Backend.fetch``."""
        self.unheard.give_back()
        self.ended_early, turns = False, TURNS

        def work(group: list[str]) -> list[list[Lease]]:
            nonlocal turns
            while turns and (leases := self._admitted(group, limit, lease_seconds)) is not None:
                if leases:
                    self._store.served(leases[0].queue)
                    return [leases]
                turns -= 1
                self.ended_early = not turns
            return []

        groups = self._turns(self._store.readable(queues))
        return next(self._store.past_away(groups, work), [])

    def _admitted(self, group: list[str], limit: int, lease_seconds: float) -> list[Lease] | None:
        """What may run of what was claimed; None where there was nothing to claim.

        Whatever fails after a claim, nobody is going to run what it took: it goes back.
        """
        self._claimed.clear()
        try:
            leases = self._first(group, min(limit, FETCHED_AT_ONCE), lease_seconds)
            if not leases:
                return None
            admitted = self.breakers.admit(leases)
            if admitted:
                self._limits.claimed(admitted)
            return admitted
        except BaseException:
            self.unheard.add(self._claimed, lease_seconds)
            raise

    def _return(self, claim: tuple[list[str], str]) -> int:
        queues, token = claim

        def work(some: list[str]) -> int:
            return int(self._store.run_on("unheard", some, [token]))

        def guarded(group: list[str]) -> list[int]:
            return self._store.past_unreadable(group, work, none=0)

        return sum(self._store.past_away([queues], guarded))

    def _turns(self, queues: Sequence[str]) -> list[list[str]]:
        """As many as one script may be asked about, and a queue with an open breaker alone."""
        turns: list[list[str]] = []
        together: list[str] = []
        for queue in queues:
            if self.breakers.is_open(queue):
                turns += [*self._store.layout.groups(together), [queue]]
                together = []
            else:
                together.append(queue)
        return [*turns, *self._store.layout.groups(together)]

    def _first(self, group: list[str], limit: int, lease_seconds: float) -> list[Lease]:
        """Leases of the first queue of a group that has any."""
        taken: list[Lease] = []

        def work(some: list[str]) -> None:
            nonlocal taken
            taken = taken or self._from(some, limit, lease_seconds)

        self._store.past_unreadable(group, work, none=None)
        return taken

    def _from(self, group: list[str], limit: int, lease_seconds: float) -> list[Lease]:
        if self.breakers.is_open(group[0]):
            if self._broken.left(group[0]):
                return []
            return self.breakers.let_one_pass(
                group[0], lambda token: self._take(group, 1, lease_seconds, token)
            )
        return self._take(group, limit, lease_seconds, uuid4().hex)

    def _take(self, queues: list[str], limit: int, lease_seconds: float, token: str) -> list[Lease]:
        claim = (queues, token)
        self._claimed.append(claim)
        try:
            return self._taken(queues, limit, lease_seconds, token)
        except StoreUnavailable as error:
            if error.undone:
                self._claimed.remove(claim)
            raise

    def _taken(
        self, queues: list[str], limit: int, lease_seconds: float, token: str
    ) -> list[Lease]:
        length = to_microseconds(lease_seconds)
        args = [limit, length, token, _process(os.getpid()), PROMOTED_AT_ONCE]
        for _ in range(SCRIPTS):
            limits, asked_at = self._limits.args(queues), time.monotonic()
            told = self._store.run_on("fetch", queues, [*args, *limits])
            # No script holds up others by looking at all; what it passed does not come again.
            if int(told[0]) != MORE:
                break
        else:
            self.ended_early = True
            return []
        if int(told[0]) < 0:
            for queue, till in zip(queues, told[1:], strict=True):
                if int(till) > 0:
                    self._limited.shut(queue, int(till) / SECOND, "rate-limited")
            return []
        place, expires_at = int(told[0]) - 1, int(told[1])
        queue = queues[place]
        leases = [
            lease_of(*parts, queue=queue, backend=self._backend, token=token, expires_at=expires_at)
            for text in told[3:]
            for parts in taken_of(text)
        ]
        if limits and int(limits[place * VALUES + RATE]):
            late = int(limits[place * VALUES + LATE])
            start_by, counted = asked_at + late / SECOND, expires_at - length + late
            leases = [lease._replace(start_by=start_by, counted=counted) for lease in leases]
        if not told[2]:
            return leases
        stops = told[2].decode().split(",")
        return [one._replace(cancelled=True) if one.id in stops else one for one in leases]

    def rated(self, queues: Sequence[str]) -> set[str]:
        """Those of some queues with a rate limit."""
        return self._limits.rated(queues)

    def limited(self, queues: Sequence[str] | None) -> list[str]:
        """Those of some queues, or of all, that only a limit holds back, if anything does."""
        known = self._limits.limits()
        wanted = known if queues is None else [name for name in queues if name in known]
        return [name for name in wanted if not self.breakers.is_open(name)]

    def places(self, queue: str) -> int | None:
        """How many jobs of a queue may run at a time, if that is limited."""
        limits = self._limits.limits().get(queue)
        return limits.concurrency if limits else None

    def return_starts(self, queue: str, leases: Sequence[Lease]) -> None:
        """These were given back and did not start."""
        self._limits.returned(queue, leases)
        if counted := [lease.counted for lease in leases if lease.counted]:
            # A key of another type must not make a job that went back look as if it had not.
            self._store.past_unreadable(
                [queue], lambda some: self._store.run("uncount", some[0], counted), none=0
            )

    def reap(self, queue: str, limit: int) -> int:
        """Return what was lost in a queue; how many. Of those that are charged is told."""
        delays = map(to_microseconds, crash_events.CRASH_DELAYS)
        count, *told = self._store.run("reap", queue, [limit, *delays])
        for at in range(0, len(told), 3):
            place, line, text = told[at : at + 3]
            header = header_of(place, state_of(text))
            _, message = unpack(
                line, place=place, queue=queue, backend=self._backend, header=header
            )
            crash_events.tell_of(message)
        return int(count)

    def held_back(self, queues: Sequence[str]) -> str | None:
        """See ``KeepsBreakers.held_back``."""
        for queue in queues:
            why = self._broken.why(queue) or self._limited.why(queue)
            why = "paused" if self._limits.is_paused(queue) else why
            if not why and any(seen.soonest > 0 for seen in self.look([queue])):
                why = "rate-limited"
            if why and int(self._store.run("stats", queue, [])[0]):
                return why
        return None

    def due_in(self, queues: Sequence[str]) -> float | None:
        """Seconds until something can be fetched, as far as anything tells."""
        closed = [left for queue in queues if (left := self._broken.left(queue))]
        others = [queue for queue in queues if not self._broken.left(queue)]
        found = [seen.soonest / SECOND for seen in self.look(others) if seen.soonest >= 0]
        return min([*found, *closed], default=None)

    def look(self, queues: Sequence[str]) -> list[Seen]:
        """For each group of queues that one script may be asked about."""

        def work(some: list[str]) -> Seen:
            return Seen(*map(int, self._store.run_on("look", some, self._limits.args(some))))

        return list(self._store.by_group(queues, work, none=NOTHING_SEEN))


@lru_cache(maxsize=1)
def _process(pid: int) -> str:
    """The name of this process, asked for once; a fork has another pid."""
    del pid
    return process_name()
