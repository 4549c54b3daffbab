"""From sealed jobs to what carries them: at once, after the caller's commit, or by an outbox.

A backend that shares the caller's transaction is given its jobs at once. Any other would run
them before the caller's rows are there, or although these were rolled back; so it is given
them when the transaction is committed. A process that dies between that commit and the push,
or a broker that does not answer then, loses them. With an outbox nothing is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections, transaction

from django_jobs import outbox
from django_jobs.backends.asking import asking_to_enqueue
from django_jobs.backends.base import Enqueued
from django_jobs.backends.missing import naming_missing_tables
from django_jobs.exceptions import (
    EnqueueOutcomeUnknown,
    JobsError,
    NotSupported,
    PushFailed,
)
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Backend, OnConflict
    from django_jobs.outbox.ways import Way
    from django_jobs.wire.envelope import Outgoing

PUSHED_AT_ONCE = 1000


class Route(NamedTuple):
    """Where jobs go, and what is done about others in their place.

    ``again``: they may have been enqueued before, and may have ended since.
    """

    backend: Backend
    on_conflict: OnConflict
    way: Way
    again: bool = False

    def send(
        self, outgoing: Sequence[Outgoing], mine: Sequence[Any], jobs: Sequence[Any]
    ) -> list[Enqueued]:
        """Store messages, or see to it that they are stored when the caller commits.

        ``mine``: the prepared jobs they were made from; ``jobs``: those and all that were to
        be enqueued beside them. Raises as ``Backend.enqueue`` does.
        """
        if self.way.outbox is None and _is_open(self.way.after):
            return self._send_later(outgoing, mine)
        try:
            with naming_missing_tables(self.backend.alias, self.way.outbox):
                if self.way.outbox is not None:
                    return self._into_outbox(self.way.outbox, outgoing)
                return self.store(outgoing)
        except EnqueueOutcomeUnknown as error:
            # The backend knows messages; the caller needs the jobs, to enqueue them again: all
            # of them, since those of other backends may not have been tried.
            raise EnqueueOutcomeUnknown(jobs, str(error.__cause__ or error)) from error.__cause__

    def store(self, outgoing: Sequence[Outgoing]) -> list[Enqueued]:
        """Give messages to the backend itself."""
        return asking_to_enqueue(self.backend, outgoing, self.on_conflict, again=self.again)

    def _into_outbox(self, home: str, outgoing: Sequence[Outgoing]) -> list[Enqueued]:
        """Its relay leaves alone what has been there before; the look is for the answer."""
        known = {one.id for one in outgoing if self.again and self._is_known(one.id)}
        new = [one for one in outgoing if one.id not in known]
        if new:
            outbox.write(home, self.backend.alias, new)
        return [Enqueued(one.id, created=one.id not in known) for one in outgoing]

    def _is_known(self, job_id: str) -> bool:
        alias, can = self.backend.alias, self.backend.capabilities
        return (
            outbox.find(alias, job_id) is not None
            or (can.results and self.backend.result(job_id) is not None)
            or outbox.ended(alias, job_id) is not None
            or (can.peek and self.backend.find(job_id) is not None)
        )

    def _send_later(self, outgoing: Sequence[Outgoing], mine: Sequence[Any]) -> list[Enqueued]:
        for message in outgoing:
            if message.terms.unique_key is not None:
                raise NotSupported(
                    f"unique_key={message.terms.unique_key!r}: the backend "
                    f"{self.backend.alias!r} is given the job when the open transaction on "
                    f"{self.way.after!r} is committed, and knows only then whether a live job "
                    "holds the key; enqueue it after the transaction, or use an idempotency_key"
                )
        connection = connections[str(self.way.after)]
        hooks = connection.run_on_commit
        last = hooks[-1] if hooks else None
        # Thousands may be enqueued one by one.
        if last and _pushes(last[1], self) and last[0] == set(connection.savepoint_ids):
            push: Push = last[1]  # type: ignore[assignment]  # as was just looked at
        else:
            push = Push(self)
            for registered in reversed(hooks):
                hook = registered[1]
                if isinstance(hook, Push):
                    hook.next = push
                    break
            transaction.on_commit(push, using=connection.alias)
        push.add(outgoing, mine)
        return [Enqueued(message.id, created=True) for message in outgoing]


def _pushes(hook: object, route: Route) -> bool:
    return isinstance(hook, Push) and hook.route == route


def _is_open(alias: str | None) -> bool:
    """Whether the caller has a transaction open there.

    One that only a test case has open around the test is none: it is never committed, and
    without it the code under test would run in none.
    """
    if alias is None:
        return False
    connection: BaseDatabaseWrapper = connections[alias]
    return connection.in_atomic_block and not all(
        getattr(block, "_from_testcase", False) for block in connection.atomic_blocks
    )


class Push:
    """Gives jobs to their backend when the transaction in which they were enqueued is committed.

    A hook that raises keeps Django from calling those after it. So only the last of ours
    raises, for all of them; ``next`` is the one after this.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self.next: Push | None = None
        self._jobs: list[Any] = []
        self._outgoing: list[Outgoing] = []
        self._failed: list[Any] = []
        self._error: Exception | None = None

    def add(self, outgoing: Sequence[Outgoing], jobs: Sequence[Any]) -> None:
        """Let more jobs go with it."""
        self._outgoing += outgoing
        self._jobs += jobs

    def __call__(self) -> None:
        for start in range(0, len(self._outgoing), PUSHED_AT_ONCE):
            part = slice(start, start + PUSHED_AT_ONCE)
            try:
                self.route.store(self._outgoing[part])
            except Exception as error:  # noqa: BLE001 - whatever it is, the jobs are not there
                self._tell(self._jobs[part], error)
        if self._error is None:
            return
        if self.next is not None:
            self.next._take_over(self._failed, self._error)  # noqa: SLF001 - one of its own kind
            return
        cause = self._error
        raise PushFailed(self.route.backend.alias, self._failed, _cause(cause)) from cause

    def _take_over(self, failed: list[Any], error: Exception) -> None:
        self._failed = failed + self._failed
        self._error = error

    def _tell(self, jobs: Sequence[Any], error: Exception) -> None:
        self._failed += jobs
        self._error = error
        alias = self.route.backend.alias
        ids = ", ".join(job.id for job in jobs)
        events.emit(events.PushLost(backend=alias, job_ids=ids, count=len(jobs), error=error))


def _cause(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, EnqueueOutcomeUnknown) else error
    shown = cause or error
    return str(shown) if isinstance(shown, JobsError) else f"{type(shown).__name__}: {shown}"
