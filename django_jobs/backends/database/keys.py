"""Jobs that share a key: so many at a time, or the work of it once.

The place that a running job takes is its lease and nothing beside it: when the lease ends,
whoever ends it, the place is free. A job for which there is no place is parked as blocked,
where claims do not see it, and the settle that frees a place makes the next one ready. So
waiting costs nothing, and nobody polls.

Whoever changes what a key allows holds the key's row. It is always locked before the rows
of jobs, and several keys in their order, so that no two wait for each other in a ring.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connections
from django.db.models import F

from django_jobs.backends.database.transactions import in_reading, in_transition
from django_jobs.clock import to_microseconds
from django_jobs.conf import get_settings
from django_jobs.models import Job, JobKey, JobState
from django_jobs.wire.rules import MAX_MOMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease
    from django_jobs.backends.database.clock import StoreClock

KEPT_MICROSECONDS = to_microseconds(86_400)
COLUMNS = ("concurrency_key", "idempotency_key")
WOKEN_AT_ONCE = 1000


def keys_of(leases: Iterable[Lease]) -> list[str]:
    """The keys of leases, in the order in which they are locked."""
    indexes = [lease.message.index for lease in leases]
    return sorted({index[name] for index in indexes for name in COLUMNS if index.get(name)})


def admit(alias: str, clock: StoreClock, leases: Sequence[Lease]) -> list[Lease]:
    """Of leases just given, those that may run; for the others there is no place yet.

    One whose work was done comes along with the id of the job that did it.
    """
    keys = keys_of(leases)
    if not keys:
        return list(leases)

    def work(connection: BaseDatabaseWrapper) -> list[Lease]:
        now = clock.read(connection)
        return _Admission(alias, now, _locked(alias, keys, now)).judge(leases)

    return in_transition(alias, work)


class _Admission:
    """Judges leases while it holds their keys."""

    def __init__(self, alias: str, now: int, rows: dict[str, JobKey]) -> None:
        self._alias = alias
        self._now = now
        self._rows = rows
        self._taken = {key: _holders(alias, key, now) for key in rows}
        self._full: Counter[str] = Counter()

    def judge(self, leases: Sequence[Lease]) -> list[Lease]:
        admitted, parked = [], []
        for lease in leases:
            held = keys_of([lease])
            once = self._rows.get(lease.message.index.get("idempotency_key") or "")
            if once is not None and once.done_by is not None and once.keep_until > self._now:
                admitted.append(lease._replace(done_by=str(once.done_by)))
            elif full := [key for key in held if self._taken[key] >= _limit(lease, key)]:
                parked.append(lease)
                self._full.update(full)
            else:
                admitted.append(self._given(lease, held) if held else lease)
        if parked:
            _park(self._alias, parked)
            _park_all(self._alias, self._taken, self._full)
        return admitted

    def _given(self, lease: Lease, held: Sequence[str]) -> Lease:
        rows = [self._rows[key] for key in held]
        fence = max(self._now, *(min(row.fence, MAX_MOMENT - 1) + 1 for row in rows))
        for key, row in zip(held, rows, strict=True):
            row.fence, row.keep_until = fence, max(row.keep_until, fence + KEPT_MICROSECONDS)
            row.done_by = None  # of a time that is over
            row.save(using=self._alias)
            self._taken[key] += 1
        mine = Job.objects.using(self._alias).filter(pk=lease.id, lease_token=lease.token)
        mine.update(fence=fence)
        return lease._replace(fence=fence)


def _limit(lease: Lease, key: str) -> int:
    index = lease.message.index
    return int(index.get("concurrency") or 1) if key == index.get("concurrency_key") else 1


def _locked(alias: str, keys: Sequence[str], now: int) -> dict[str, JobKey]:
    """The rows of keys, made where they are missing, and nobody else's until we end."""
    rows = JobKey.objects.using(alias).filter(pk__in=keys).order_by("pk")
    found = {row.key: row for row in rows.select_for_update()}
    if len(found) < len(keys):
        missing = [JobKey(key=key, keep_until=now + KEPT_MICROSECONDS) for key in keys]
        JobKey.objects.using(alias).bulk_create(missing, ignore_conflicts=True)
        found = {row.key: row for row in rows.select_for_update()}
    return found


def _holders(alias: str, key: str, now: int) -> int:
    """How many run by leave of a key, with a lease that still holds."""
    running = Job.objects.using(alias).filter(
        state=JobState.RUNNING, fence__isnull=False, lease_expires__gt=now
    )
    return sum(running.filter(**{column: key}).count() for column in COLUMNS)


def _park(alias: str, leases: Sequence[Lease]) -> None:
    """As if they had never been leased, but out of the way of claims."""
    tokens = {lease.token for lease in leases}
    rows = Job.objects.using(alias).filter(
        pk__in=sorted(lease.id for lease in leases), lease_token__in=tokens
    )
    rows.update(
        state=JobState.BLOCKED,
        lease_token=None,
        lease_expires=None,
        worker=None,
        deliveries=F("deliveries") - 1,
    )


def _park_all(alias: str, taken: dict[str, int], full: Iterable[str]) -> None:
    """The others that wait for a full key, before each is claimed and parked by itself."""
    for key in sorted(full):
        ready = Job.objects.using(alias).filter(state=JobState.READY)
        ready.filter(concurrency_key=key, concurrency__lte=taken[key]).update(
            state=JobState.BLOCKED
        )
        ready.filter(idempotency_key=key).update(state=JobState.BLOCKED)


class Keys:
    """The keys of leases that are about to be settled, held by the transition that does it.

    To be made before any row of a job is locked. Without keys it does nothing.
    """

    def __init__(self, alias: str, clock: StoreClock, keys: Sequence[str]) -> None:
        self._alias = alias
        self._now = clock.read(connections[alias]) if keys else 0
        self._rows = _locked(alias, keys, self._now) if keys else {}

    def done(self, leases: Sequence[Lease]) -> None:
        """The work of these is done, and not to be done again for as long as the site says."""
        ttl_seconds = get_settings().idempotency_ttl if self._rows else 0
        for lease in leases:
            row = self._rows.get(lease.message.index.get("idempotency_key") or "")
            if row is not None and not lease.done_by:
                row.done_by = UUID(lease.id)
                row.keep_until = self._now + to_microseconds(ttl_seconds)
                row.save(using=self._alias)

    def wake(self) -> None:
        """Make ready what there is a place for now. To be called after the settle."""
        for key, row in self._rows.items():
            _wake(self._alias, key, self._now, done=bool(row.done_by))


def _wake(alias: str, key: str, now: int, *, done: bool) -> None:
    taken = _holders(alias, key, now)
    blocked = Job.objects.using(alias).filter(state=JobState.BLOCKED).order_by("rank", "due", "id")
    woken: list[UUID] = []
    waiting = blocked.filter(concurrency_key=key).values_list("pk", "concurrency")
    for pk, limit in waiting[:WOKEN_AT_ONCE]:
        if taken + len(woken) >= max(limit or 1, 1):
            break
        woken.append(pk)
    if done or not taken:
        # What was done needs no place to be skipped.
        count = WOKEN_AT_ONCE if done else 1
        woken += blocked.filter(idempotency_key=key).values_list("pk", flat=True)[:count]
    if woken:
        Job.objects.using(alias).filter(pk__in=woken, state=JobState.BLOCKED).update(
            state=JobState.READY
        )


class Forgotten:
    """Wakes what waits for nobody any more: a holder that was removed by other means.

    Each round looks at so many of the jobs that are blocked, and the next one goes on behind
    them, so that those who wait for good reasons hide nobody.
    """

    def __init__(self, alias: str, clock: StoreClock) -> None:
        self._alias = alias
        self._clock = clock
        self._seen: dict[str, tuple[int, int, UUID]] = {}

    def wake(self, queues: Iterable[str], limit: int) -> None:
        for queue in queues:
            rows = in_reading(self._alias, lambda: self._next(queue, limit))  # noqa: B023 - called at once
            self._seen.pop(queue, None)
            if len(rows) == limit:
                self._seen[queue] = rows[-1][:3]
            wake(self._alias, self._clock, {key for row in rows for key in row[3:] if key})

    def _next(self, queue: str, limit: int) -> list[Any]:
        blocked = Job.objects.using(self._alias).filter(queue=queue, state=JobState.BLOCKED)
        rows = blocked.order_by("rank", "due", "id").values_list("rank", "due", "pk", *COLUMNS)
        if queue not in self._seen:
            return list(rows[:limit])
        rank, due, pk = self._seen[queue]
        # In two parts: an OR over the whole place would read the index from its start.
        found = list(rows.filter(rank=rank, due__gte=due).exclude(due=due, pk__lte=pk)[:limit])
        return found + list(rows.filter(rank__gt=rank)[: limit - len(found)])


def wake(alias: str, clock: StoreClock, keys: Iterable[str]) -> None:
    """Make ready what there is a place for, one key after the other."""
    for key in sorted(keys):
        in_transition(alias, lambda _: Keys(alias, clock, [key]).wake())  # noqa: B023 - called at once


def sweep(alias: str, clock: StoreClock, limit: int) -> int:
    """Forget keys that nobody asked for in a while."""
    old = JobKey.objects.using(alias).filter(keep_until__lt=clock.now()).order_by("keep_until")
    keys = list(old.values_list("pk", flat=True)[:limit])
    return old.filter(pk__in=keys).delete()[0] if keys else 0
