"""The relay pushes the jobs of the outbox to their backend, then deletes them from the outbox.

If a relay is killed between the push and the deletion, the job is pushed again, and
``RemembersEnded.push`` recognizes the duplicate. So no job is lost or duplicated.

A queue that cannot be pushed rests for a while; the others go on. Before a push, the relay
notes the last row with its lease, so that nothing else removes these rows meanwhile.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from django.db import Error, connections
from django.db.models import Min, Q, Value

from django_jobs.backends.base import Failure, Lease, push
from django_jobs.backends.ended_jobs import failed_job_of
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.db.clock import StoreClock
from django_jobs.db.dead_letters import add_dead_letter
from django_jobs.db.transactions import in_reading, in_transition, is_connection_lost
from django_jobs.exceptions import EnqueueOutcomeUnknown, InvalidJob, Rejection
from django_jobs.execution.errors import error_text
from django_jobs.models import OutboxJob, RelayLease
from django_jobs.outbox.lookup import message_of, plain_index
from django_jobs.retry import Backoff
from django_jobs.telemetry import events
from django_jobs.wire.envelope import Outgoing, index_of
from django_jobs.wire.opening import NotJudged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.db.models import QuerySet

    from django_jobs.backends.base import Backend
    from django_jobs.wire.opening import Opener


# One relay at a time moves a queue of the outbox, so that its jobs keep their order.


class RelayLeases:
    """The leases of one relay on the queues of a backend, on the clock of their database."""

    def __init__(self, home: str, backend: str, clock: StoreClock, seconds: float) -> None:
        self._home = home
        self._backend = backend
        self._clock = clock
        self._seconds = seconds
        self._token = uuid4().hex

    def take(self, queue: str) -> bool:
        """Take or prolong the lease on a queue; False while another relay holds it."""

        def work(_: Any) -> bool:
            lease = self.hold(queue)
            if lease is not None:
                self.note(lease)
            return lease is not None

        take = partial(in_transition, self._home, work)
        return take() or (self.create(queue) and take())

    def hold(self, queue: str) -> RelayLease | None:
        """Lock the lease for the caller's transaction; None if it cannot be taken or prolonged."""
        ours = Q(token=self._token) | Q(expires__lte=self._clock.now())
        return self._free(queue).filter(ours).first()

    def note(self, lease: RelayLease, row_id: int = 0) -> None:
        """Take or prolong a locked lease, and note the last row of the next push."""
        self._rows(lease.queue).update(
            token=self._token,
            expires=self._clock.now() + to_microseconds(self._seconds),
            moving_to=max(lease.moving_to, row_id),
        )

    def prolong(self, queue: str) -> bool:
        """Renew the lease; False if it has expired since it was taken."""

        def work(_: Any) -> bool:
            now = self._clock.now()
            lease = self._free(queue).filter(token=self._token, expires__gt=now).first()
            if lease is not None:
                self.note(lease)
            return lease is not None

        return in_transition(self._home, work)

    def create(self, queue: str) -> bool:
        """Create the row of a queue's lease; False if it exists already."""
        if in_reading(self._home, self._rows(queue).exists):
            return False
        create_lease(self._home, self._backend, queue)
        return True

    def release(self, queue: str, noted: int | None = 0) -> None:
        """Release the lease. With ``noted=None`` keep ``moving_to``.

        If a cancel has locked the row, let the lease expire.
        """
        changes = {"expires": 0} if noted is None else {"expires": 0, "moving_to": noted}

        def work(_: Any) -> None:
            lease = self._free(queue).filter(token=self._token).first()
            if lease is not None:
                self._rows(queue).update(**changes)

        in_transition(self._home, work)

    def _free(self, queue: str) -> QuerySet[RelayLease]:
        """Select the row for update, skipping it if it is locked.

        A cancel locks it until its caller commits; other queues must not wait for that.
        """
        skips = connections[self._home].features.has_select_for_update_skip_locked
        return self._rows(queue).select_for_update(skip_locked=skips)

    def _rows(self, queue: str) -> QuerySet[RelayLease]:
        return RelayLease.objects.using(self._home).filter(backend=self._backend, queue=queue)


def create_lease(home: str, backend: str, queue: str) -> None:
    """Create the row of a queue's lease unless it exists."""
    missing = RelayLease(backend=backend, queue=queue)
    rows = RelayLease.objects.using(home)
    in_transition(home, lambda _: rows.bulk_create([missing], ignore_conflicts=True))


BATCH = 200
BATCHES_PER_STEP = 10
MOST_REFUSALS = 12
LONGEST_PAUSE = 300.0
REFUSED = "refused-by-backend"
A_DAY = 86_400.0
FIRST_REST = 0.1
LONGEST_REST = 3.0
NEVER = float("-inf")
MOST_FAILING_SECONDS = 5.0
"""After this time, a step in which a queue could not be pushed tries no further queue."""


class Rest(NamedTuple):
    """A queue that could not be pushed, on the clock of ``time.monotonic()``.

    ``pushed``: how many jobs the relay had pushed by then. ``blamed``: its first job is at
    fault, since the backend accepted others.
    """

    error: Exception
    since: float
    failed_at: float
    backoff: Backoff
    pause: float
    pushed: int
    blamed: bool

    @property
    def until(self) -> float:
        """When it is tried again."""
        return self.failed_at + self.pause


class _Stuck(Exception):
    """Pushing a queue failed.

    ``refused``: its first job, if the backend refused it. ``noted_before``: jobs up to this
    row may have been pushed earlier without an answer.
    """

    def __init__(self, error: Exception, refused: tuple[OutboxJob, Outgoing] | None = None) -> None:
        super().__init__()
        self.error = error
        self.refused = refused
        self.queue = ""
        self.moved = 0
        self.noted_before: int | None = None


class Moved(NamedTuple):
    """What one step did. ``left``: jobs remain, for this relay or the one with the lease."""

    jobs: int
    left: bool


class Relay:
    """Moves the outbox of one backend, in the database ``home``, to that backend.

    ``patience``: how many seconds it postpones a job that it cannot judge. ``stuck``: the queues
    whose last push failed.
    """

    def __init__(
        self,
        backend: Backend,
        home: str,
        opener: Opener,
        *,
        lease_seconds: float,
        patience: float = A_DAY,
        clock: StoreClock | None = None,
    ) -> None:
        self.backend = backend
        self.home = home
        self.clock = clock or StoreClock()
        self._opener = opener
        self._patience = patience
        self._leases = RelayLeases(home, backend.alias, self.clock, lease_seconds)
        self._lease_seconds = lease_seconds
        self._held_since = NEVER
        self._pushed = 0
        self.stuck: dict[str, Rest] = {}

    def step(self) -> Moved:
        """Move a bounded number of jobs of every queue; raise if the backend accepts none."""
        began, before = time.monotonic(), self._pushed
        queues = in_reading(self.home, lambda: list(self._queues()))
        self.stuck = {name: rest for name, rest in self.stuck.items() if name in queues}
        tried = [queue for queue in queues if not self._rests(queue, began)]
        jobs, left = 0, len(tried) < len(queues)
        stuck: list[_Stuck] = []
        # The earliest failures come first: each attempt may take the whole timeout of a driver.
        for queue in sorted(tried, key=self._failed_at):
            if stuck and time.monotonic() - began > MOST_FAILING_SECONDS:
                left = True
                break
            try:
                moved, more = self._leased(queue)
            except _Stuck as failed:
                stuck.append(failed)
                moved, more = failed.moved, True
            jobs, left = jobs + moved, left or more
        for failure in stuck:
            self._judge(failure, before)
        if stuck and self._pushed == before:
            raise stuck[-1].error
        return Moved(jobs, left)

    def _rests(self, queue: str, now: float) -> bool:
        return queue in self.stuck and self.stuck[queue].until > now

    def _failed_at(self, queue: str) -> float:
        return self.stuck[queue].failed_at if queue in self.stuck else 0.0

    def _judge(self, stuck: _Stuck, before: int) -> None:
        """Let a queue rest, and blame its first job if others were accepted since its refusal."""
        rest, now = self.stuck.get(stuck.queue), time.monotonic()
        others_taken = self._pushed > (before if rest is None else rest.pushed)
        blamed = stuck.refused is not None and others_taken
        if blamed:
            self._blame(stuck)
        backoff = Backoff(FIRST_REST, LONGEST_REST) if rest is None else rest.backoff
        self.stuck[stuck.queue] = Rest(
            error=stuck.error,
            since=now if rest is None else rest.since,
            failed_at=now,
            backoff=backoff,
            pause=backoff.next(),
            pushed=self._pushed,
            blamed=blamed,
        )

    def _blame(self, stuck: _Stuck) -> None:
        """Count the refusal, unless another relay has the queue now and may have pushed the job."""
        if stuck.refused is None or not self._leases.take(stuck.queue):
            return
        try:
            row, outgoing = stuck.refused
            self._refused(row, stuck.error, index_of(outgoing.id, outgoing.terms))
        finally:
            self._leases.release(stuck.queue, None)

    def due_in(self) -> float | None:
        """Seconds until a job can be moved: 0 if one can be now, None if the outbox is empty."""
        if in_reading(self.home, self._rows().filter(retry_at=0).exists):
            return 0.0
        soonest: int | None = in_reading(
            self.home, lambda: self._rows().aggregate(at=Min("retry_at"))["at"]
        )
        if soonest is None:
            return None
        now = in_reading(self.home, lambda: self.clock.read(connections[self.home]))
        return max(soonest - now, 0) / SECOND

    def _rows(self) -> QuerySet[OutboxJob]:
        return OutboxJob.objects.using(self.home).filter(backend=self.backend.alias)

    def _queues(self) -> Iterator[str]:
        """The queues with due jobs, at the cost of one index lookup each."""
        due = self._rows().filter(retry_at__lte=self.clock.now())
        names = due.order_by("queue", "id").values_list("queue", flat=True)
        name = names.first()
        while name is not None:
            yield name
            name = names.filter(queue__gt=name).first()

    def _leased(self, queue: str) -> tuple[int, bool]:
        """Move jobs of a queue under its lease; return how many, and whether more remain."""
        rows = self._begun(queue)
        if rows is None and self._leases.create(queue):
            rows = self._begun(queue)
        if rows is None:
            return 0, True
        noted = None
        try:
            moved, more = self._queue(queue, rows)
            noted = None if more else 0
            self.stuck.pop(queue, None)
        except _Stuck as stuck:
            if getattr(stuck.error, "undone", False):
                noted = stuck.noted_before
            stuck.queue = queue
            raise
        finally:
            self._leases.release(queue, noted)
        return moved, more

    def _begun(self, queue: str) -> list[OutboxJob] | None:
        """The next jobs of a queue, noted as about to be pushed; None without the lease.

        In one transaction: anything else that removes a row of the outbox locks the lease first.
        """

        def work(_: Any) -> list[OutboxJob] | None:
            lease = self._leases.hold(queue)
            if lease is None:
                return None
            rows = self._due(queue, lease.moving_to)
            if rows:
                self._leases.note(lease, rows[-1].pk)
            return rows

        self._held_since = time.monotonic()
        return in_transition(self.home, work, sees_commits=True)

    def _queue(self, queue: str, rows: list[OutboxJob] | None) -> tuple[int, bool]:
        moved = 0
        for batch in range(BATCHES_PER_STEP):
            rows = self._begun(queue) if batch else rows
            if not rows:
                return moved, rows is None
            try:
                moved += self._move(rows)
            except _Stuck as stuck:
                stuck.moved += moved
                stuck.noted_before = rows[0].noted_before  # type: ignore[attr-defined]  # annotated
                raise
            if self._held_seconds() > self._lease_seconds / 2:
                return moved, True  # perhaps not all of them were pushed
            if len(rows) < BATCH:
                return moved, False
        return moved, True

    def _held_seconds(self) -> float:
        """An upper bound for the age of the lease."""
        return time.monotonic() - self._held_since

    def _due(self, queue: str, noted: int) -> list[OutboxJob]:
        """Due rows in order, each with the row id noted with the lease before this push."""
        due = self._rows().filter(queue=queue, retry_at__lte=self.clock.now()).order_by("id")
        return list(due.annotate(noted_before=Value(noted))[:BATCH])

    def _move(self, rows: Sequence[OutboxJob]) -> int:
        """Push rows in order and remove them; return how many left the outbox."""
        sound: list[tuple[OutboxJob, Outgoing]] = []
        dead = 0
        for row in rows:
            try:
                sound.append((row, self._opened(row)))
            except NotJudged as unknown:  # another relay may be able to judge it
                dead += self._put_off(row, unknown)
            except Rejection as rejection:
                dead += self._make_dead_letter(row, rejection.reason, rejection, {})
        return dead + (self._push(sound) if sound else 0)

    def _opened(self, row: OutboxJob) -> Outgoing:
        message = message_of(row, {"id": str(row.job_id)})
        terms = self._opener.open(message, row.queue).terms
        return Outgoing(str(row.job_id), row.body, row.signature, row.key_id, terms)

    def _push(self, sound: Sequence[tuple[OutboxJob, Outgoing]]) -> int:
        if self._held_seconds() >= self._lease_seconds:
            return 0  # the lease expired: the jobs may have been pushed or cancelled
        try:
            push(self.backend, [outgoing for _, outgoing in sound])
        except Exception as error:
            if _is_outage(error):
                raise _Stuck(error) from error
            return self._push_singly(sound) if self._prolonged(sound[0][0].queue) else 0
        self._pushed += len(sound)
        return self._remove([row for row, _ in sound])

    def _prolonged(self, queue: str) -> bool:
        now = time.monotonic()
        prolonged = self._leases.prolong(queue)
        self._held_since = now if prolonged else NEVER
        return prolonged

    def _push_singly(self, sound: Sequence[tuple[OutboxJob, Outgoing]]) -> int:
        """Find the refused jobs by pushing one at a time.

        If none is accepted, the backend may be at fault, not the jobs.
        """
        taken: list[OutboxJob] = []
        refused: list[tuple[OutboxJob, Outgoing, Exception]] = []
        dead = 0
        for row, outgoing in sound:
            if self._held_seconds() > self._lease_seconds / 2:
                break  # a later step pushes the others, under a fresh lease
            try:
                why = self._refusal_of(outgoing)
            except _Stuck:
                self._remove(taken)
                raise
            if why is None:
                taken.append(row)
            elif isinstance(why, InvalidJob):
                dead += self._make_dead_letter(
                    row, REFUSED, why, index_of(outgoing.id, outgoing.terms)
                )
            else:
                refused.append((row, outgoing, why))
        gone = self._remove(taken) + dead
        if refused and not taken:
            row, outgoing, why = refused[0]
            stuck = _Stuck(why, (row, outgoing))
            stuck.moved = dead
            raise stuck from why
        for row, outgoing, why in refused:
            gone += self._refused(row, why, index_of(outgoing.id, outgoing.terms))
        return gone

    def _refusal_of(self, outgoing: Outgoing) -> Exception | None:
        """Push one job; return the error that refused it, or None if it was accepted."""
        try:
            push(self.backend, [outgoing])
        except Exception as error:
            if _is_outage(error):
                raise _Stuck(error) from error
            return error
        self._pushed += 1
        return None

    def _remove(self, rows: Sequence[OutboxJob]) -> int:
        if not rows:
            return 0
        pushed = self._rows().filter(pk__in=[row.pk for row in rows])
        return in_transition(self.home, lambda _: int(pushed._raw_delete(self.home)))  # noqa: SLF001 - no signals, no collector

    def _refused(self, row: OutboxJob, error: Exception, index: Any) -> int:
        """Postpone a refused job; after too many refusals, make it a dead letter."""
        refusals = row.refusals + 1
        if refusals >= MOST_REFUSALS:
            return self._make_dead_letter(row, REFUSED, error, dict(index))
        pause = min(2.0**refusals, LONGEST_PAUSE)
        mine = self._rows().filter(pk=row.pk, refusals=row.refusals)
        counted = in_transition(
            self.home,
            lambda _: mine.update(
                refusals=refusals,
                retry_at=self.clock.now() + int(pause * SECOND),
                problem=problem_of(error),
            ),
        )
        if not counted:  # another relay counted it, or pushed the job
            return 0
        about = {"job_id": str(row.job_id), "queue": row.queue, "handler": row.handler}
        alias = self.backend.alias
        events.emit(events.PushRefused(backend=alias, **about, refusals=refusals, error=error))
        return 0

    def _put_off(self, row: OutboxJob, unknown: NotJudged) -> int:
        """Postpone a job for a relay that can judge it; in the end make it a dead letter."""
        now = in_reading(self.home, lambda: self.clock.read(connections[self.home]))
        since = now if row.put_off_since is None else min(row.put_off_since, now)
        waited = (now - since) / SECOND
        left = self._patience - waited
        if left <= 0:
            return self._make_dead_letter(row, unknown.reason, unknown, {})
        pause = min(max(waited, 2.0), LONGEST_PAUSE, left)
        mine = self._rows().filter(pk=row.pk)
        in_transition(
            self.home,
            lambda _: mine.update(
                put_off_since=since, retry_at=now + int(pause * SECOND), problem=problem_of(unknown)
            ),
        )
        about = {"job_id": str(row.job_id), "queue": row.queue, "handler": row.handler}
        alias = self.backend.alias
        events.emit(events.PushPutOff(backend=alias, **about, delay=pause, error=unknown))
        return 0

    def _make_dead_letter(
        self, row: OutboxJob, reason: str, error: Exception, index: dict[str, Any]
    ) -> int:
        """Make a job a dead letter, in one transaction with its removal."""
        lease = Lease(
            str(row.job_id), row.queue, "", 0, message_of(row, {**plain_index(row), **index})
        )
        shown = error.detail if isinstance(error, Rejection) else error_text(error).message
        kind = "" if isinstance(error, Rejection) else type(error).__name__
        failure = Failure(reason=reason, error_type=kind, error_message=shown)

        def work(connection: Any) -> int:
            if not self._rows().filter(pk=row.pk, refusals=row.refusals).delete()[0]:
                return 0
            dead = failed_job_of(lease, failure, self.clock.read(connection))
            add_dead_letter(self.home, dead)
            return 1

        removed = in_transition(self.home, work)
        if removed:
            about: dict[str, Any] = {"job_id": lease.id, "queue": row.queue}
            about |= {"handler": row.handler, "error_type": kind, "error_message": shown}
            events.emit(events.JobDied(**about, reason=reason))
        return removed


def _is_outage(error: Exception) -> bool:
    """Whether the backend did not answer at all, so that every other push would fail too."""
    if isinstance(error, Error):
        return is_connection_lost(error)
    return isinstance(error, OSError | EnqueueOutcomeUnknown)


def problem_of(error: Exception) -> str:
    """An error as text, without secrets."""
    return f"{type(error).__name__}: {error_text(error).message}"
