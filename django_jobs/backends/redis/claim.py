"""Claims: fetch from queues in turn, past those that limits or breakers hold back."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from django.db import Error

from django_jobs.backends import crash_events
from django_jobs.backends.limits import QueueLimits, limits_of, report_unread
from django_jobs.backends.rates import SLOTS, Lateness
from django_jobs.backends.redis.breakers import RedisBreakers
from django_jobs.backends.redis.records import (
    header_of,
    lease_of,
    state_of,
    taken_of,
    unpack,
)
from django_jobs.backends.shared_breakers import LOOK_SECONDS, Closed
from django_jobs.backends.unanswered import UnansweredClaims
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.transactions import in_reading
from django_jobs.exceptions import StoreUnavailable
from django_jobs.ids import process_name
from django_jobs.models import QueueControl
from django_jobs.routers import job_databases
from django_jobs.telemetry.events import LimitsUnreadable, emit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.backends.redis.store import RedisStore


LOOK_AGAIN_SECONDS = 5.0
VALUES = 6
RATE, LATE = 1, 4
NO_LIMITS = QueueLimits()


class HeldQueues(NamedTuple):
    """The limits and pauses of a backend's queues."""

    limits: dict[str, QueueLimits]
    paused: frozenset[str]


class LimitsInForce:
    """The limits and pauses of one backend's queues, at most half a second old.

    Operators set them in the Django database; while that is away, the last values read apply.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._held = HeldQueues({}, frozenset())
        self._look_at = float("-inf")
        self._lateness: defaultdict[str, Lateness] = defaultdict(Lateness)

    def rated(self, queues: Iterable[str]) -> set[str]:
        """The queues that have a rate limit."""
        limits = self._current().limits
        return (
            {name for name in queues if name in limits and limits[name].rate} if limits else set()
        )

    def claimed(self, leases: Sequence[Lease]) -> None:
        """Note that leases are about to start."""
        if leases[0].start_by is not None:
            self._lateness[leases[0].queue].claimed(leases[0])

    def returned(self, queue: str, leases: Sequence[Lease]) -> None:
        """Note that leases were given back before they started."""
        rate = self._current().limits.get(queue, NO_LIMITS).rate
        if rate is not None:
            self._lateness[queue].returned(rate, leases)

    def args(self, queues: list[str]) -> list[str | int]:
        """Six values for each queue: paused, rate, window, slots, lateness, places.

        Empty if no queue has any: there may be thousands of queues.
        """
        held = self._current()
        if not any(queue in held.limits or queue in held.paused for queue in queues):
            return []
        values: list[str | int] = []
        for queue in queues:
            limits = held.limits.get(queue, NO_LIMITS)
            rate, places = limits.rate, limits.concurrency
            values += [
                int(queue in held.paused),
                rate.limit if rate else 0,
                rate.window if rate else 0,
                SLOTS,
                self._lateness[queue].allowed(rate) if rate else 0,
                -1 if places is None else places,
            ]
        return values

    def limits(self) -> dict[str, QueueLimits]:
        """The limits of queues that are not paused."""
        held = self._current()
        return {name: limits for name, limits in held.limits.items() if name not in held.paused}

    def is_paused(self, queue: str) -> bool:
        """Whether an operator has paused the queue."""
        return queue in self._current().paused

    def _current(self) -> HeldQueues:
        if time.monotonic() >= self._look_at:
            try:
                database = job_databases(get_settings())[0]
                before, self._held = self._held, in_reading(database, lambda: self._read(database))
                report_unread(self._backend, before.limits, self._held.limits)
                self._look_at = time.monotonic() + LOOK_SECONDS
            except Error as error:
                emit(LimitsUnreadable(backend=self._backend, error=error))
                self._look_at = time.monotonic() + LOOK_AGAIN_SECONDS
        return self._held

    def _read(self, database: str) -> HeldQueues:
        paused = QueueControl.objects.using(database).filter(backend=self._backend, paused=True)
        return HeldQueues(
            limits_of(database, self._backend), frozenset(paused.values_list("queue", flat=True))
        )


PROMOTED_AT_ONCE = 1000
FETCHED_AT_ONCE = 1000
MORE = -2
SCRIPTS = 20
"""How many scripts one claim runs to get past jobs that cannot run now."""
TURNS = 5
"""How many claims of one fetch may yield nothing to run. Each puts its jobs off in bulk."""


class QueueGlance(NamedTuple):
    """The state of a group of queues: moments on the store's clock, -1 for none."""

    now: int
    soonest: int
    lease_ends: int
    due: int
    parked: int
    kept_till: int


NOTHING_SEEN = QueueGlance(0, -1, -1, -1, 0, -1)


class Claims:
    """The claims of one backend."""

    def __init__(self, store: RedisStore, backend: str) -> None:
        self._store = store
        self._backend = backend
        self._limits = LimitsInForce(backend)
        self.ended_early = False
        self._broken = Closed()
        self._limited = Closed()
        self._claimed: list[tuple[list[str], str]] = []
        self.breakers = RedisBreakers(store, backend, self._broken)
        self.unanswered = UnansweredClaims[tuple[list[str], str]](self._return)

    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        """See ``Backend.fetch``."""
        self.unanswered.give_back()
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
        """The claimed leases that may run; None if there was nothing to claim.

        After any error the claimed jobs would never run, so they are given back.
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
            self.unanswered.add(self._claimed, lease_seconds)
            raise

    def _return(self, claim: tuple[list[str], str]) -> int:
        queues, token = claim

        def work(some: list[str]) -> int:
            return int(self._store.run_on("unanswered", some, [token]))

        def guarded(group: list[str]) -> list[int]:
            return self._store.past_unreadable(group, work, none=0)

        return sum(self._store.past_away([queues], guarded))

    def _turns(self, queues: Sequence[str]) -> list[list[str]]:
        """The queues in groups that one script can reach; a queue with an open breaker is alone."""
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
        """Leases from the first queue of a group that has any."""
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
            answer = self._store.run_on("fetch", queues, [*args, *limits])
            # A script looks at a bounded number of jobs, and the next continues after them.
            if int(answer[0]) != MORE:
                break
        else:
            self.ended_early = True
            return []
        if int(answer[0]) < 0:
            for queue, till in zip(queues, answer[1:], strict=True):
                if int(till) > 0:
                    self._limited.shut(queue, int(till) / SECOND, "rate-limited")
            return []
        place, expires_at = int(answer[0]) - 1, int(answer[1])
        queue = queues[place]
        leases = [
            lease_of(*parts, queue=queue, backend=self._backend, token=token, expires_at=expires_at)
            for text in answer[3:]
            for parts in taken_of(text)
        ]
        if limits and int(limits[place * VALUES + RATE]):
            late = int(limits[place * VALUES + LATE])
            start_by, counted = asked_at + late / SECOND, expires_at - length + late
            leases = [lease._replace(start_by=start_by, counted=counted) for lease in leases]
        if not answer[2]:
            return leases
        stops = answer[2].decode().split(",")
        return [lease._replace(cancelled=True) if lease.id in stops else lease for lease in leases]

    def rated(self, queues: Sequence[str]) -> set[str]:
        """The queues that have a rate limit."""
        return self._limits.rated(queues)

    def limited(self, queues: Sequence[str] | None) -> list[str]:
        """The limited queues, of these or of all, without those that a breaker holds back."""
        limits = self._limits.limits()
        names = limits if queues is None else [name for name in queues if name in limits]
        return [name for name in names if not self.breakers.is_open(name)]

    def places(self, queue: str) -> int | None:
        """The concurrency limit of a queue, if any."""
        limits = self._limits.limits().get(queue)
        return limits.concurrency if limits else None

    def return_starts(self, queue: str, leases: Sequence[Lease]) -> None:
        """Note that leases were given back before they started."""
        self._limits.returned(queue, leases)
        if counted := [lease.counted for lease in leases if lease.counted]:
            # The jobs are back already, so a key of another type must raise no error here.
            self._store.past_unreadable(
                [queue], lambda some: self._store.run("uncount", some[0], counted), none=0
            )

    def reap(self, queue: str, limit: int) -> int:
        """Return lost jobs of a queue, and report charged ones; returns how many were lost."""
        delays = map(to_microseconds, crash_events.CRASH_DELAYS)
        count, *charged = self._store.run("reap", queue, [limit, *delays])
        for at in range(0, len(charged), 3):
            place, line, text = charged[at : at + 3]
            header = header_of(place, state_of(text))
            _, message = unpack(
                line, place=place, queue=queue, backend=self._backend, header=header
            )
            crash_events.emit_crash_of(message)
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
        """Seconds until something can be fetched, or None if that is unknown."""
        closed = [left for queue in queues if (left := self._broken.left(queue))]
        others = [queue for queue in queues if not self._broken.left(queue)]
        times = [seen.soonest / SECOND for seen in self.look(others) if seen.soonest >= 0]
        return min([*times, *closed], default=None)

    def look(self, queues: Sequence[str]) -> list[QueueGlance]:
        """The state of each group of queues that one script can reach."""

        def work(some: list[str]) -> QueueGlance:
            return QueueGlance(*map(int, self._store.run_on("look", some, self._limits.args(some))))

        return list(self._store.by_group(queues, work, none=NOTHING_SEEN))


@lru_cache(maxsize=1)
def _process(pid: int) -> str:
    """The name of this process, cached by pid because a fork has another one."""
    del pid
    return process_name()
