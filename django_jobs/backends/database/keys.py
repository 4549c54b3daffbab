"""Jobs that share a key: a limited number at a time, or the work of the key only once.

A running job takes a place of its key by its lease alone, until it is settled, given back or
reaped. A job without a free place is parked as blocked, where claims do not see it, and waits in
the line of the key that was full. Each queue has its own line, and when a place becomes free the
first jobs of every line are made ready. So waiting costs nothing and needs no polling, and a
paused or unserved queue does not hold up the others. A job that is woken but finds its place
taken again is parked again.

A change to what a key allows needs the lock on the key's row. Keys are locked in order and before
the rows of jobs, so that there are no deadlocks. The key of work that is to be done once, and
that no other job has, gets its row only when the work is done: creating the row locks it. The
number of statements does not depend on how many leases are admitted or settled at once.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Count, F, Value
from django.db.models.constants import OnConflict
from django.db.models.functions import Coalesce, Greatest
from django.db.models.lookups import Exact

from django_jobs.clock import to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.arrays import Among, plain_array, quoted_array
from django_jobs.db.transactions import (
    READ_COMMITTED,
    awaits_commit,
    in_reading,
    in_transition,
)
from django_jobs.models import Job, JobKey, JobState
from django_jobs.wire.envelope import MAX_MOMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease
    from django_jobs.db.clock import StoreClock

    Notify = Callable[[Iterable[str]], None]

_STORED = ("fence", "done_by", "places", "keep_until")
KEPT_MICROSECONDS = to_microseconds(86_400)
COLUMNS = ("concurrency_key", "idempotency_key")
AT_ONCE = 1000
"""The most jobs that are parked or woken in one step."""
KEYS_PER_STEP = 100
LOOK = 10
"""Read at least so many waiting jobs at a time, to need fewer statements for short lines."""


class _Row(NamedTuple):
    """The state of a key. A key without a row has the defaults."""

    fence: int = 0
    done_by: UUID | None = None
    places: int = 0
    keep_until: int = 0
    read_at: int = 0

    def is_done(self, now: int) -> bool:
        return self.done_by is not None and self.keep_until > now


def keys_of(leases: Iterable[Lease], *columns: str) -> list[str]:
    """The keys of leases in locking order; those of some columns, or of all."""
    indexes = [lease.message.index for lease in leases]
    return sorted(
        {key for name in columns or COLUMNS for index in indexes if (key := index.get(name))}
    )


def no_hints(_: Iterable[str]) -> None:
    """Send no hint about queues in which jobs were woken: workers find them at the next poll."""


# ---------------------------------------------------------------------------- claims


def admit(
    alias: str,
    clock: StoreClock,
    leases: Sequence[Lease],
    lease_seconds: float,
    notify: Notify = no_hints,
) -> list[Lease]:
    """Return the leases of one claim that may run, and park the others.

    A lease whose work is done already is returned with the id of the job that did it.
    """
    keys = keys_of(leases)
    if not keys:
        return list(leases)
    now = leases[0].expires_at - to_microseconds(lease_seconds)
    if _are_all_new(alias, leases, keys):
        return [_with_fence(lease, now + place) for place, lease in enumerate(leases)]

    def work(_: BaseDatabaseWrapper) -> list[Lease]:
        judged = None
        while judged is None:
            judged = _Admission(alias, clock, leases, keys, now).judged(notify)
        return judged

    return in_transition(alias, work, sees_commits=True)


def _are_all_new(alias: str, leases: Sequence[Lease], keys: Sequence[str]) -> bool:
    """Whether these have idempotency keys only, and no other job has used one of them.

    One statement, so that it sees one moment after the claim: either both the end of a job and
    the row that says its work is done, or neither. A later job with the same key sees this one
    running.
    """
    wanted = [key for lease in leases if (key := lease.message.index.get("idempotency_key"))]
    limits = keys_of(leases, "concurrency_key")
    if limits or len(wanted) > len(keys) or connections[alias].in_atomic_block:
        return False
    existing = JobKey.objects.using(alias).filter(Among("key", keys)).values_list("key")
    others = Job.objects.using(alias).filter(Among("idempotency_key", keys))
    others = others.filter(state=JobState.RUNNING).exclude(lease_token=leases[0].token)
    conflicts = existing.union(others.values_list("idempotency_key"), all=True)[:1]
    return not in_reading(alias, lambda: list(conflicts))


def _with_fence(lease: Lease, fence: int) -> Lease:
    return lease._replace(fence=fence) if keys_of([lease]) else lease


class _Admission:
    """Judges the leases of one claim while it holds their keys."""

    def __init__(
        self,
        alias: str,
        clock: StoreClock,
        leases: Sequence[Lease],
        keys: Sequence[str],
        now: int,
    ) -> None:
        self._alias = alias
        self._clock = clock
        self._leases = leases
        self._now = now
        self._rows = _locked(alias, clock, keys)
        own = {name: keys_of(leases, name) for name in COLUMNS}
        self._taken = _taken(alias, own, but=leases[0].token)
        self._granted: set[str] = set()
        self._parked: dict[str, list[Lease]] = {name: [] for name in COLUMNS}
        self._fence = (
            max([now, *(min(row.fence, MAX_MOMENT - 1) + 1 for row in self._rows.values())]) - 1
        )

    def judged(self, notify: Notify) -> list[Lease] | None:
        """The admitted leases; None if another process created one of the keys meanwhile."""
        admitted = [
            admissible for lease in self._leases if (admissible := self._judge(lease)) is not None
        ]
        full = {lease.message.index[name] for name in COLUMNS for lease in self._parked[name]}
        if not self._make_missing(full):
            return None
        self._note_granted()
        if full:
            self._park(full)
            self._pass_on(notify)
        return admitted

    def _judge(self, lease: Lease) -> Lease | None:
        index = lease.message.index
        once = self._rows.get(index.get("idempotency_key") or "")
        if once is not None and once.is_done(self._now):
            return lease._replace(done_by=str(once.done_by))
        keys = [(name, index[name]) for name in COLUMNS if index.get(name)]
        if not keys:
            return lease
        for name, key in keys:
            if self._taken[key] >= _limit(name, index.get("concurrency")):
                self._parked[name].append(lease)
                return None
        for _, key in keys:
            self._taken[key] += 1
            self._granted.add(key)
        self._fence += 1
        return lease._replace(fence=self._fence)

    def _make_missing(self, full: Collection[str]) -> bool:
        """Create the missing rows of keys; False if another process created one of them first.

        Nothing was locked until then. The other process has counted our leases, and we may have
        missed its own: so everything is judged again, with that row locked.
        """
        missing = [key for key in keys_of(self._leases) if key not in self._rows]
        new = {
            key: _Row(
                fence=self._fence if key in self._granted else 0,
                places=self._taken[key] if key in full else 0,
            )
            for key in missing
        }
        kept = max(self._fence - self._now, 0) + KEPT_MICROSECONDS
        return not new or _write(self._alias, self._clock, new, kept) == len(new)

    def _note_granted(self) -> None:
        granted = [key for key in sorted(self._granted) if key in self._rows]
        if granted:
            rows = JobKey.objects.using(self._alias).filter(Among("key", granted))
            kept = self._fence + KEPT_MICROSECONDS
            # done_by is from a period that has expired.
            rows.update(fence=self._fence, keep_until=Greatest("keep_until", kept), done_by=None)

    def _park(self, full: Collection[str]) -> None:
        # No job is parked that allows more than are running.
        rows = {key: row for key, row in self._rows.items() if key in full}
        more = {key: self._taken[key] for key, row in rows.items() if self._taken[key] > row.places}
        _note_places(self._alias, more)
        for name, leases in self._parked.items():
            if leases:
                _block(self._alias, name, leases)
                keys = {lease.message.index[name] for lease in leases}
                _park_others(self._alias, name, {key: self._taken[key] for key in keys})

    def _pass_on(self, notify: Notify) -> None:
        """Wake jobs that wait for places which the parked leases seemed to take."""
        keys = keys_of(lease for leases in self._parked.values() for lease in leases)
        rows = {key: self._rows[key] for key in keys if key in self._rows}
        open_to = {key: row for key, row in rows.items() if self._taken[key] < row.places}
        if open_to:
            notify(_wake(self._alias, open_to, self._now))


def _limit(column: str, concurrency: Any) -> int:
    return max(int(concurrency or 1), 1) if column == "concurrency_key" else 1


def _block(alias: str, column: str, leases: Sequence[Lease]) -> None:
    """Undo their leases, and hide them from claims."""
    rows = Job.objects.using(alias).filter(
        pk__in=sorted(lease.id for lease in leases), lease_token=leases[0].token
    )
    rows.update(
        state=JobState.BLOCKED,
        blocked_by=F(column),
        lease_token=None,
        lease_expires=None,
        worker=None,
        deliveries=F("deliveries") - 1,
    )


def _park_others(alias: str, column: str, taken: Mapping[str, int]) -> None:
    """Park ready jobs with the same keys at once, instead of claiming and parking each of them.

    Not those with two keys: the other one may not be locked here.
    """
    ready = Job.objects.using(alias).filter(Among(column, sorted(taken)), state=JobState.READY)
    for other in COLUMNS:
        if other != column:
            # Written so that MariaDB does not read every job without such a key.
            ready = ready.filter(Exact(Coalesce(other, Value("")), ""))
    candidates = ready.values_list("pk", column, "concurrency")[:AT_ONCE]
    chosen = [pk for pk, key, places in candidates if _limit(column, places) <= taken[key]]
    # By primary key alone: MariaDB locks every index entry that it reads, and claims deadlock.
    rows = Job.objects.using(alias).filter(pk__in=_unlocked(alias, chosen), state=JobState.READY)
    rows.update(state=JobState.BLOCKED, blocked_by=F(column))


# --------------------------------------------------------------------------- settles


class Keys:
    """The keys of leases that are about to be settled, locked by the transition that settles them.

    To be created before any row of a job is locked. Without keys it does nothing. ``once``: keys
    left to ``done``; mostly no other job has used them, and they have no row yet.
    """

    def __init__(
        self,
        alias: str,
        clock: StoreClock,
        keys: Sequence[str],
        notify: Notify = no_hints,
        once: Collection[str] = (),
    ) -> None:
        self._alias = alias
        self._clock = clock
        self._notify = notify
        needed = [key for key in keys if key not in once]
        # Including the rows of ``once``: all of them have to be locked in order.
        self._rows = _locked(alias, clock, keys) if needed else {}
        if missing := [key for key in needed if key not in self._rows]:
            # As a fence the time is greater than every fence given so far.
            now = clock.read(connections[alias])
            self._make({key: _Row(fence=now, read_at=now) for key in missing}, KEPT_MICROSECONDS)

    def _make(self, new: Mapping[str, _Row], kept: int) -> None:
        """Add rows; rows that another process created meanwhile are locked and left unchanged."""
        missing = new
        while missing:
            if _write(self._alias, self._clock, missing, kept) == len(missing):
                self._rows |= missing
                return
            self._rows |= _locked(self._alias, self._clock, sorted(missing))
            # A row that was in the way may have been swept before it could be locked.
            missing = {key: row for key, row in missing.items() if key not in self._rows}

    def done(self, leases: Iterable[Lease]) -> None:
        """Record that the work of these jobs is done, for as long as IDEMPOTENCY_TTL says."""
        doers = {
            key: lease
            for lease in leases
            if (key := lease.message.index.get("idempotency_key")) and not lease.done_by
        }
        ttl = to_microseconds(get_settings().idempotency_ttl)
        new = {
            key: _Row(fence=doers[key].fence or 0, done_by=UUID(doers[key].id))
            for key in sorted(doers)
            if key not in self._rows
        }
        if new:
            self._make(new, ttl)
        existing = {
            key: row._replace(done_by=UUID(doers[key].id), keep_until=row.read_at + ttl)
            for key, row in self._rows.items()
            if key in doers and row is not new.get(key)
        }
        if existing:
            self._rows |= existing
            _write(self._alias, self._clock, existing, ttl, over=("done_by", "keep_until"))

    def wake(self, least: Mapping[str, int] | None = None) -> None:
        """Make ready the jobs that have a place now. To be called after the settle.

        ``least``: for some keys, the places that a waiting job allows, whatever their rows say.
        """
        more = {key: n for key, n in (least or {}).items() if n > self._rows[key].places}
        _note_places(self._alias, more)
        self._rows |= {key: self._rows[key]._replace(places=n) for key, n in more.items()}
        awaited = {key: row for key, row in self._rows.items() if row.places}
        if awaited and _sees_old(connections[self._alias]):
            again = partial(wake, self._alias, self._clock, sorted(awaited), self._notify)
            transaction.on_commit(again, using=self._alias, robust=True)
        elif awaited:
            now = max(row.read_at for row in awaited.values())
            self._notify(_wake(self._alias, awaited, now))


def _sees_old(connection: Any) -> bool:
    """Whether a transaction of the site may miss jobs that were parked since it began.

    PostgreSQL reports this itself: it refuses to lock a key there that was changed since.
    """
    if connection.vendor != "mysql" or connection.isolation_level == READ_COMMITTED.lower():
        return False
    # A savepoint means it is the site's transaction; our own have the level they asked for.
    return bool(connection.savepoint_ids) and awaits_commit(connection)


def wake(
    alias: str,
    clock: StoreClock,
    keys: Collection[str],
    notify: Notify = no_hints,
    least: Mapping[str, int] | None = None,
) -> None:
    """Make ready the jobs that have a place now, in a transaction of its own."""

    def work(_: BaseDatabaseWrapper) -> None:
        Keys(alias, clock, sorted(keys), notify).wake(least)

    if keys:
        in_transition(alias, work, sees_commits=True)


# ---------------------------------------------------------------------- rows of keys


def _locked(alias: str, clock: StoreClock, keys: Sequence[str]) -> dict[str, _Row]:
    """Lock and return the rows of keys, as far as they exist."""
    rows = JobKey.objects.using(alias).filter(Among("key", keys)).order_by("pk")
    locked_rows = rows.select_for_update().annotate(read_at=clock.now())
    return {
        key: _Row(*columns) for key, *columns in locked_rows.values_list("key", *_STORED, "read_at")
    }


def _write(
    alias: str,
    clock: StoreClock,
    rows: Mapping[str, _Row],
    kept: int,
    over: Sequence[str] = (),
) -> int:
    """Insert rows of keys; return how many. Of existing rows only the columns ``over`` change.

    They are kept for ``kept`` microseconds from now on, whatever their own ``keep_until``.
    """
    connection = connections[alias]
    conflict = OnConflict.UPDATE if over else OnConflict.IGNORE
    quote = connection.ops.quote_name
    names = ("key", *_STORED)
    head = connection.ops.insert_statement(on_conflict=conflict)
    tail = connection.ops.on_conflict_suffix_sql([], conflict, over, ["key"])
    until = f"{clock.sql(connection.vendor)} + {int(kept)}"
    values, params = _values(connection, rows, until)
    columns = ", ".join(map(quote, names))
    with connection.cursor() as cursor:
        cursor.execute(f"{head} {quote(JobKey._meta.db_table)} ({columns}) {values} {tail}", params)
        return int(cursor.rowcount)


_FROM_ARRAYS = (
    "SELECT item.*, {until} FROM unnest(%s::text[], %s::bigint[], %s::uuid[], %s::int[]) AS item"
)


def _values(
    connection: BaseDatabaseWrapper, rows: Mapping[str, _Row], until: str
) -> tuple[str, list[Any]]:
    if connection.vendor == "postgresql":
        stored = ((str(row.fence), _or_null(row.done_by), str(row.places)) for row in rows.values())
        arrays = [plain_array(column) for column in zip(*stored, strict=True)]
        return _FROM_ARRAYS.format(until=until), [quoted_array(rows), *arrays]
    params: list[Any] = []
    for key, row in rows.items():
        params += (key, row.fence, _stored_id(connection, row.done_by), row.places)
    return f"VALUES {', '.join([f'(%s, %s, %s, %s, {until})'] * len(rows))}", params


def _or_null(job_id: UUID | None) -> str:
    return "NULL" if job_id is None else str(job_id)


def _stored_id(connection: BaseDatabaseWrapper, job_id: UUID | None) -> Any:
    return JobKey._meta.get_field("done_by").get_db_prep_value(job_id, connection)


def _note_places(alias: str, places: Mapping[str, int]) -> None:
    """Record how many places the waiting jobs of each key allow: one statement for each number."""
    for count, keys in groupby(sorted(places, key=places.__getitem__), key=places.__getitem__):
        rows = JobKey.objects.using(alias).filter(Among("key", sorted(keys)))
        rows.update(places=count)


def _taken(alias: str, keys: Mapping[str, Sequence[str]], but: str = "") -> Counter[str]:
    """How many running jobs have each of these keys, given by column; admitted or not.

    ``but``: the token of a claim whose own leases do not count.
    """
    running = Job.objects.using(alias).filter(state=JobState.RUNNING).order_by()
    if but:
        running = running.exclude(lease_token=but)
    first, *others = (
        running.filter(Among(name, some)).values_list(name).annotate(jobs=Count("pk"))
        for name, some in keys.items()
        if some
    )
    taken: Counter[str] = Counter()
    for key, count in first.union(*others, all=True) if others else first:
        taken[key] += count
    return taken


# ----------------------------------------------------------------------------- lines


def _wake(alias: str, rows: Mapping[str, _Row], now: int) -> set[str]:
    """Make ready the first jobs that wait for keys locked here; return their queues."""
    taken = _taken(alias, {name: list(rows) for name in COLUMNS})
    # A job whose work is done needs no place to be skipped.
    done = {key for key, row in rows.items() if row.is_done(now)}
    free = {
        key: AT_ONCE if key in done else min(row.places - taken[key], AT_ONCE)
        for key, row in rows.items()
    }
    free = {key: count for key, count in free.items() if count > 0}
    if not free:
        return set()
    lines = _lines(alias, free)
    ours = _unlocked(alias, [pk for waiting in lines.values() for pk, _ in waiting])
    going: dict[tuple[str, str], list[Any]] = {}
    for (key, queue), waiting in lines.items():
        places = [most if key not in done else AT_ONCE + taken[key] for _, most in waiting]
        going[key, queue] = _going(waiting, places, free[key], taken[key], ours)
    gone_on = {key for (key, _), some in going.items() if some}
    for key, queue in going:
        if key not in gone_on and not taken[key]:
            # No job would wake these later: rather wait for the lock on the first one. On MariaDB
            # a claim briefly locks rows that it only passes over.
            going[key, queue] = [lines[key, queue][0][0]]
    if woken := [pk for some in going.values() for pk in some]:
        # Only the holder of their key wakes them; they may have been cancelled.
        blocked = Job.objects.using(alias).filter(pk__in=woken, state=JobState.BLOCKED)
        blocked.update(state=JobState.READY, blocked_by=None)
    waited_for = {key for (key, queue), some in going.items() if len(some) < len(lines[key, queue])}
    left = {key: rows[key].places if key in waited_for else 0 for key in free}
    _note_places(alias, {key: count for key, count in left.items() if count != rows[key].places})
    return {queue for (_, queue), some in going.items() if some}


def _going(
    waiting: Sequence[tuple[Any, int]],
    places: Sequence[int],
    free: int,
    taken: int,
    ours: Collection[Any],
) -> list[Any]:
    """The jobs of one line to make ready: the first ones, without those locked elsewhere."""
    going: list[Any] = []
    for (pk, _), most in zip(waiting, places, strict=True):
        if len(going) == free or taken + len(going) >= most:
            break
        if pk in ours:
            going.append(pk)
    return going


def _unlocked(alias: str, ids: Sequence[Any]) -> set[Any]:
    """Those of some jobs that no other transaction has locked.

    A job that is replaced in a transaction of the site stays locked for as long as that takes,
    which is too long to hold keys. Replacing it wakes other jobs after the commit.
    """
    if not ids or not connections[alias].features.has_select_for_update_skip_locked:
        return set(ids)
    rows = Job.objects.using(alias).filter(pk__in=ids).select_for_update(skip_locked=True)
    unlocked = {pk.hex for pk in rows.values_list("pk", flat=True)}
    return {job_id for job_id in ids if str(job_id).replace("-", "") in unlocked}


_NEXT_IN_LINE = (
    "SELECT * FROM (SELECT {id}, {blocked_by}, {queue}, {concurrency_key}, {concurrency} "
    "FROM {job} WHERE {blocked_by} = %s AND {queue} > %s "
    "ORDER BY {queue}, {rank}, {due}, {id} LIMIT {limit}) AS part_{number}"
)


def _lines(alias: str, free: Mapping[str, int]) -> dict[tuple[str, str], list[tuple[Any, int]]]:
    """The first jobs of each line, and one more, with the number that each job allows.

    Reads the index from the first queue to the last, however many wait: each query begins after
    the last queue that was read completely.
    """
    lines: dict[tuple[str, str], list[tuple[Any, int]]] = {}
    behind = dict.fromkeys(free, "")
    while behind:
        seen = _looks(alias, behind, free)
        for key in list(behind):
            by_queue = seen.get(key, {})
            if sum(map(len, by_queue.values())) < _look_size(free[key]):
                del behind[key]
            elif len(by_queue[last := list(by_queue)[-1]]) > free[key]:
                behind[key] = last
            else:
                del by_queue[last]
                behind[key] = list(by_queue)[-1]
            lines |= {(key, queue): waiting for queue, waiting in by_queue.items()}
    return lines


def _looks(
    alias: str, behind: Mapping[str, str], free: Mapping[str, int]
) -> dict[str, dict[str, list[tuple[Any, int]]]]:
    """The next waiting jobs of each key, by queue."""
    connection = connections[alias]
    quote = connection.ops.quote_name
    columns = ("id", "queue", "rank", "due", "blocked_by", "concurrency_key", "concurrency")
    words = {name: quote(name) for name in columns} | {"job": quote(Job._meta.db_table)}
    lines: dict[str, dict[str, list[tuple[Any, int]]]] = {}
    keys = sorted(behind)
    for start in range(0, len(keys), KEYS_PER_STEP):
        chunk = keys[start : start + KEYS_PER_STEP]
        parts = [
            _NEXT_IN_LINE.format(**words, limit=_look_size(free[key]), number=number)
            for number, key in enumerate(chunk)
        ]
        with connection.cursor() as cursor:
            places = [word for key in chunk for word in (key, behind[key])]
            cursor.execute(" UNION ALL ".join(parts), places)
            for pk, key, queue, lock, concurrency in cursor.fetchall():
                column = COLUMNS[0] if key == lock else COLUMNS[1]
                line = lines.setdefault(key, {}).setdefault(queue, [])
                line.append((pk, _limit(column, concurrency)))
    return lines


def _look_size(free: int) -> int:
    return max(free + 1, LOOK)


# ---------------------------------------------------------------------- housekeeping


class Forgotten:
    """Wakes jobs that wait for a key without a holder: it was removed by other means.

    Each round looks at a limited number of blocked jobs, and the next one goes on after them, so
    that jobs which wait rightly do not hide the others.
    """

    def __init__(self, alias: str, clock: StoreClock, notify: Notify = no_hints) -> None:
        self._alias = alias
        self._clock = clock
        self._notify = notify
        self._seen: dict[str, tuple[int, int, UUID]] = {}

    def wake(self, queues: Iterable[str], limit: int) -> None:
        for queue in queues:
            rows = in_reading(self._alias, lambda: self._next(queue, limit))  # noqa: B023 - called at once
            self._seen.pop(queue, None)
            if len(rows) == limit:
                self._seen[queue] = rows[-1][:3]
            self._look_after(rows)

    def _look_after(self, rows: Sequence[Any]) -> None:
        least: dict[str, int] = {}
        for *_, key, lock, concurrency in rows:
            if key is not None:
                places = _limit(COLUMNS[0] if key == lock else COLUMNS[1], concurrency)
                least[key] = max(least.get(key, 0), places)
        keys = sorted(least)
        for start in range(0, len(keys), KEYS_PER_STEP):
            some = keys[start : start + KEYS_PER_STEP]
            columns = dict.fromkeys(COLUMNS, some)
            taken = in_reading(self._alias, lambda: _taken(self._alias, columns))  # noqa: B023 - called at once
            idle = {key: least[key] for key in some if taken[key] < least[key]}
            wake(self._alias, self._clock, idle, self._notify, idle)
        if lost := [pk for _, _, pk, key, *_ in rows if key is None]:
            blocked = Job.objects.using(self._alias).filter(pk__in=lost, state=JobState.BLOCKED)
            in_transition(
                self._alias, lambda _: blocked.filter(blocked_by=None).update(state=JobState.READY)
            )

    def _next(self, queue: str, limit: int) -> list[Any]:
        blocked = Job.objects.using(self._alias).filter(queue=queue, state=JobState.BLOCKED)
        rows = blocked.order_by("rank", "due", "id").values_list(
            "rank", "due", "pk", "blocked_by", "concurrency_key", "concurrency"
        )
        if queue not in self._seen:
            return list(rows[:limit])
        rank, due, pk = self._seen[queue]
        # Two queries: one with OR would read the index from its start.
        same_rank = list(rows.filter(rank=rank, due__gte=due).exclude(due=due, pk__lte=pk)[:limit])
        return same_rank + list(rows.filter(rank__gt=rank)[: limit - len(same_rank)])


def sweep(alias: str, clock: StoreClock, limit: int) -> int:
    """Delete keys that were not used for a while, and for which no job waits."""
    old = JobKey.objects.using(alias).filter(keep_until__lt=clock.now())
    expired = in_reading(
        alias, lambda: list(old.order_by("keep_until").values_list("pk", "places")[:limit])
    )
    if awaited := [key for key, places in expired if places]:
        wake(alias, clock, awaited)
        kept = JobKey.objects.using(alias).filter(pk__in=awaited)
        in_transition(alias, lambda _: kept.update(keep_until=clock.now() + KEPT_MICROSECONDS))
    over = old.filter(pk__in=[key for key, places in expired if not places], places=0)
    return int(in_transition(alias, lambda _: over.delete()[0])) if expired else 0
