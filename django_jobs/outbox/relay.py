"""The relay: what the outbox holds goes to its backend, and then out of the outbox.

A relay that is killed between the push and the removal leaves a row that is pushed again,
which ``Backend.push`` takes for what it is. So nothing is lost and nothing is done twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error, connections
from django.db.models import F, Min

from django_jobs.backends.base import Failure, Lease
from django_jobs.backends.database.clock import StoreClock
from django_jobs.backends.database.grouping import bury
from django_jobs.backends.database.rows import failed_job_of
from django_jobs.backends.database.transactions import (
    in_reading,
    in_transition,
    is_connection_lost,
)
from django_jobs.clock import SECOND
from django_jobs.exceptions import EnqueueOutcomeUnknown, InvalidJob, Rejection
from django_jobs.execution.errors import error_text
from django_jobs.models import OutboxJob
from django_jobs.outbox.leases import RelayLeases
from django_jobs.telemetry import events, trouble_events
from django_jobs.wire.envelope import Header, Message, Outgoing, index_of
from django_jobs.wire.opening import NotJudged
from django_jobs.wire.rules import MAX_MOMENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.db.models import QuerySet

    from django_jobs.backends.base import Backend
    from django_jobs.wire.opening import Opener

BATCH = 200
BATCHES_PER_STEP = 10
MOST_REFUSALS = 12
LONGEST_PAUSE = 300.0
REFUSED = "refused-by-backend"
A_DAY = 86_400.0


class Moved(NamedTuple):
    """What one step did. ``left``: there is more to do, here or by who has the lease."""

    jobs: int
    left: bool


class Relay:
    """Moves the outbox of one backend, in the database ``home``, to that backend.

    ``patience``: for so many seconds it puts off what it cannot judge.
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

    def step(self) -> Moved:
        """Move a bounded number of jobs of every queue; raises when the backend takes none."""
        jobs, left = 0, False
        for queue in in_reading(self.home, lambda: list(self._queues())):
            if not self._leases.take(queue):
                left = True
                continue
            try:
                moved, more = self._queue(queue)
            finally:
                self._leases.release(queue)
            jobs, left = jobs + moved, left or more
        return Moved(jobs, left)

    def due_in(self) -> float | None:
        """Seconds until there is something to move; 0 when there is, None when nothing waits."""
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
        """The queues that have jobs: one look into the index for each."""
        due = self._rows().filter(retry_at__lte=self.clock.now())
        names = due.order_by("queue", "id").values_list("queue", flat=True)
        name = names.first()
        while name is not None:
            yield name
            name = names.filter(queue__gt=name).first()

    def _queue(self, queue: str) -> tuple[int, bool]:
        moved = 0
        for _ in range(BATCHES_PER_STEP):
            rows = self._due(queue)
            if not rows:
                return moved, False
            moved += self._move(rows)
            if len(rows) < BATCH:
                return moved, False
            if not self._leases.take(queue):
                break
        return moved, True

    def _due(self, queue: str) -> list[OutboxJob]:
        due = self._rows().filter(queue=queue, retry_at__lte=self.clock.now()).order_by("id")
        return in_reading(self.home, lambda: list(due[:BATCH]))

    def _move(self, rows: Sequence[OutboxJob]) -> int:
        """Push rows in their order and remove them; how many have left the outbox."""
        sound: list[tuple[OutboxJob, Outgoing]] = []
        dead = 0
        for row in rows:
            try:
                sound.append((row, self._opened(row)))
            except NotJudged as unknown:  # another relay of the fleet may know
                dead += self._put_off(row, unknown)
            except Rejection as rejection:
                dead += self._bury(row, rejection.reason, rejection, {})
        return dead + (self._push(sound) if sound else 0)

    def _opened(self, row: OutboxJob) -> Outgoing:
        message = _message(row, {"id": str(row.job_id)})
        terms = self._opener.open(message, row.queue).terms
        return Outgoing(str(row.job_id), row.body, row.signature, row.key_id, terms)

    def _push(self, sound: Sequence[tuple[OutboxJob, Outgoing]]) -> int:
        try:
            self.backend.push([outgoing for _, outgoing in sound])
        except Exception as error:
            if _is_outage(error):
                raise
            return self._push_singly(sound)
        return self._remove([row for row, _ in sound])

    def _push_singly(self, sound: Sequence[tuple[OutboxJob, Outgoing]]) -> int:
        """One of them is refused. When none is taken, it is not because of the jobs."""
        taken: list[OutboxJob] = []
        refused: list[tuple[OutboxJob, Outgoing, Exception]] = []
        dead = 0
        for row, outgoing in sound:
            try:
                self.backend.push([outgoing])
            except InvalidJob as error:
                index = index_of(outgoing.id, outgoing.terms)
                dead += self._bury(row, REFUSED, error, index)
            except Exception as error:
                if _is_outage(error):
                    self._remove(taken)
                    raise
                refused.append((row, outgoing, error))
            else:
                taken.append(row)
        gone = self._remove(taken) + dead
        if refused and not taken:
            raise refused[-1][2]
        for row, outgoing, why in refused:
            gone += self._refused(row, why, index_of(outgoing.id, outgoing.terms))
        return gone

    def _remove(self, rows: Sequence[OutboxJob]) -> int:
        if not rows:
            return 0
        pushed = self._rows().filter(pk__in=[row.pk for row in rows])
        return in_transition(self.home, lambda _: int(pushed._raw_delete(self.home)))  # noqa: SLF001 - no signals, no collector

    def _refused(self, row: OutboxJob, error: Exception, index: Any) -> int:
        """Out of the way of the others for a while, and in the end a dead letter."""
        refusals = row.refusals + 1
        if refusals >= MOST_REFUSALS:
            return self._bury(row, REFUSED, error, dict(index))
        pause = min(2.0**refusals, LONGEST_PAUSE)
        mine = self._rows().filter(pk=row.pk)
        in_transition(
            self.home,
            lambda _: mine.update(
                refusals=F("refusals") + 1,
                retry_at=self.clock.now() + int(pause * SECOND),
                problem=_told(error),
            ),
        )
        about = {"job_id": str(row.job_id), "queue": row.queue, "handler": row.handler}
        alias = self.backend.alias
        events.emit(events.PushRefused(backend=alias, **about, refusals=refusals, error=error))
        return 0

    def _put_off(self, row: OutboxJob, unknown: NotJudged) -> int:
        """Leave it for a relay that can judge it, and in the end make a dead letter of it."""
        now = in_reading(self.home, lambda: self.clock.read(connections[self.home]))
        since = now if row.put_off_since is None else min(row.put_off_since, now)
        waited = (now - since) / SECOND
        left = self._patience - waited
        if left <= 0:
            return self._bury(row, unknown.reason, unknown, {})
        pause = min(max(waited, 2.0), LONGEST_PAUSE, left)
        mine = self._rows().filter(pk=row.pk)
        in_transition(
            self.home,
            lambda _: mine.update(
                put_off_since=since, retry_at=now + int(pause * SECOND), problem=_told(unknown)
            ),
        )
        about = {"job_id": str(row.job_id), "queue": row.queue, "handler": row.handler}
        alias = self.backend.alias
        events.emit(trouble_events.PushPutOff(backend=alias, **about, delay=pause, error=unknown))
        return 0

    def _bury(self, row: OutboxJob, reason: str, error: Exception, index: dict[str, Any]) -> int:
        """Make a dead letter of a job, in one transaction with its removal."""
        lease = Lease(str(row.job_id), row.queue, "", 0, _message(row, {**_plain(row), **index}))
        shown = error.detail if isinstance(error, Rejection) else error_text(error).message
        kind = "" if isinstance(error, Rejection) else type(error).__name__
        failure = Failure(reason=reason, error_type=kind, error_message=shown)

        def work(connection: Any) -> int:
            if not self._rows().filter(pk=row.pk).delete()[0]:
                return 0
            dead = failed_job_of(lease, failure, self.clock.read(connection))
            bury(self.home, dead)
            return 1

        buried = in_transition(self.home, work)
        if buried:
            about: dict[str, Any] = {"job_id": lease.id, "queue": row.queue}
            about |= {"handler": row.handler, "error_type": kind, "error_message": shown}
            events.emit(events.JobDied(**about, reason=reason))
        return buried


def _is_outage(error: Exception) -> bool:
    """Whether the backend did not answer at all, so that every other push would fail too."""
    if isinstance(error, Error):
        return is_connection_lost(error)
    return isinstance(error, OSError | EnqueueOutcomeUnknown)


def _message(row: OutboxJob, index: dict[str, Any]) -> Message:
    # It waits for nothing here, whatever its schedule says.
    header = Header(available_at=MAX_MOMENT)
    return Message(row.body, row.signature, row.key_id, header, index)


def _plain(row: OutboxJob) -> dict[str, Any]:
    """The columns of a dead letter whose body is not believed."""
    said = {"id": str(row.job_id), "backend": row.backend, "queue": row.queue}
    unsaid = dict.fromkeys(("trace_id", "tenant", "replay_of"))
    return {**said, **unsaid, "handler": row.handler, "name": "", "rank": 0}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error_text(error).message}"
