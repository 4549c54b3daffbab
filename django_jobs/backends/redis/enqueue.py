"""Enqueueing: in one step if one script can reach all messages.

That is the case on a single server, and in a cluster for messages of one queue. A batch that
spans queues of a cluster is stored queue by queue, and a batch so large that a script would
block the server is stored in several steps. When a later step is refused, the earlier steps
are taken back.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.base import Enqueued, OnConflict
from django_jobs.clock import to_microseconds
from django_jobs.exceptions import DuplicateJob, EnqueueOutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django_jobs.backends.redis.store import RedisStore
    from django_jobs.wire.envelope import Outgoing, Terms


_line_of = json.JSONEncoder(separators=(",", ":")).encode
_head = struct.Struct(">Bdc3sB").pack
_LEAST = 2


class MessageShape(NamedTuple):
    """What messages of the same terms have in common, encoded once for all of them."""

    terms: Terms
    key_id: str
    head: bytes
    tail: str

    def rest(self, outgoing: Outgoing) -> bytes:
        """The part of a message that the script stores after flag and place."""
        return f"[{_line_of(outgoing.signature)},{self.tail}{outgoing.body}".encode()


def shape_of(terms: Terms, key_id: str) -> MessageShape:
    """Encode the common part of messages with these terms."""
    unique, lock, once = terms.unique, terms.lock, terms.once
    fields: list[Any] = [
        key_id,
        terms.job,
        terms.name,
        unique,
        lock,
        terms.places,
        once,
        terms.tenant,
        terms.expires_at,
        terms.trace_id,
        terms.replay_of,
    ]
    while len(fields) > _LEAST and fields[-1] is None:
        fields.pop()
    flag = b"k" if unique or lock or once else b"-"
    rank, digest = f"{100 - terms.priority:03d}", (unique or "").encode()
    due = to_microseconds(terms.delay or 0) if terms.schedule is None else terms.schedule
    head = _head(terms.schedule is None, due, flag, rank.encode(), len(digest)) + digest
    return MessageShape(terms, key_id, head, _line_of(fields)[1:] + "\n")


AT_ONCE = 10_000
BYTES_AT_ONCE = 16_000_000
"""Bounds of one script, which blocks the server: some 50 milliseconds for so much."""
TAKEN_BACK_AT_ONCE = 1000
RUN_JOBS = 1000
"""Lua passes no command more than about eight thousand values."""
RUN_BYTES = 1_000_000
PUSH_NOTED_MS = 86_400_000
"""How long a push is remembered, so that a relay that was killed pushes nothing twice."""
_MADE = b"1"
Places = range | list[int]
_number = struct.Struct(">H").pack
_length = struct.Struct(">I").pack


class Enqueuer:
    """Stores messages for one backend."""

    def __init__(self, store: RedisStore, remembered_ms: int) -> None:
        self._store = store
        self._remembered_ms = remembered_ms
        self._last: MessageShape | None = None

    def enqueue(self, outgoing: Sequence[Outgoing], on_conflict: OnConflict) -> list[Enqueued]:
        """See ``Backend.enqueue``."""
        return self._store_all(outgoing, on_conflict)

    def push(self, outgoing: Sequence[Outgoing], on_conflict: OnConflict) -> list[Enqueued]:
        """See the contract. A job that was pushed before is left alone for a day, ended or not."""
        return self._store_all(outgoing, on_conflict, pushes=True)

    def _store_all(
        self, outgoing: Sequence[Outgoing], on_conflict: OnConflict, *, pushes: bool = False
    ) -> list[Enqueued]:
        steps = self._steps(outgoing)
        if len(steps) == 1:
            return self._store_step(outgoing, outgoing, on_conflict, {}, pushes=pushes)
        answers: dict[int, Enqueued] = {}
        for places in steps:
            step = [outgoing[place] for place in places]
            try:
                stored = self._store_step(step, outgoing, on_conflict, answers, pushes=pushes)
            except DuplicateJob as error:
                if self._is_taken_back(outgoing, answers, on_conflict):
                    raise
                raise EnqueueOutcomeUnknown(outgoing, str(error)) from error
            answers.update(zip(places, stored, strict=True))
        return [answers[place] for place in range(len(outgoing))]

    def _store_step(
        self,
        step: Sequence[Outgoing],
        outgoing: Sequence[Outgoing],
        on_conflict: OnConflict,
        before: dict[int, Enqueued],
        *,
        pushes: bool,
    ) -> list[Enqueued]:
        """Store one step. If its outcome is unknown, so is the outcome of the whole batch."""
        try:
            return self._run_step(step, on_conflict, pushes=pushes)
        except StoreUnavailable as error:
            if error.undone and self._is_taken_back(outgoing, before, on_conflict):
                raise
            raise EnqueueOutcomeUnknown(outgoing, str(error)) from error

    def _steps(self, outgoing: Sequence[Outgoing]) -> list[Places]:
        if not self._store.layout.clustered:
            return list(_bounded(outgoing, range(len(outgoing))))
        by_queue: dict[str, list[int]] = {}
        for place, message in enumerate(outgoing):
            by_queue.setdefault(message.terms.queue, []).append(place)
        return [step for places in by_queue.values() for step in _bounded(outgoing, places)]

    def _run_step(
        self, step: Sequence[Outgoing], on_conflict: OnConflict, *, pushes: bool
    ) -> list[Enqueued]:
        queues = list(dict.fromkeys([message.terms.queue for message in step]))
        if self._store.layout.clustered:
            self._store.announce(queues)
        args: list[Any] = self._runs(step, queues)
        # Most jobs have no key, and a short script.
        script = "enqueue"
        if pushes or any(message.terms.unique_key is not None for message in step):
            noted = PUSH_NOTED_MS if pushes else 0
            script, args = "enkeyed", [on_conflict.value, self._remembered_ms, noted, *args]
        answer, again = self._run_twice(script, queues, args)
        if isinstance(answer, int):
            return [Enqueued(message.id, True) for message in step]  # noqa: FBT003 - a tuple's field
        if answer[0] == b"conflict":
            key = step[int(answer[1])].terms.unique_key or ""
            raise DuplicateJob(key, answer[2].decode())
        # On the second try, a job that exists under its own id was made by the first.
        return [
            Enqueued(other.decode(), created=False)
            if other and other != _MADE
            else Enqueued(message.id, created=again or other == _MADE)
            for other, message in zip(answer, step, strict=True)
        ]

    def _runs(self, step: Sequence[Outgoing], queues: Sequence[str]) -> list[bytes]:
        """Messages in as few arguments as possible: each costs the client as much as a job."""
        # The guards' key comes first, and Lua counts from 1.
        place_of = {queue: place for place, queue in enumerate(queues, start=2)}
        shape, runs, size = self._last, [], 0
        run: list[bytes] = []
        for message in step:
            terms = message.terms
            if shape is None or shape.terms is not terms or shape.key_id != message.key_id:
                shape, size = shape_of(terms, message.key_id), 0
                run = []
            if not run or len(run) > RUN_JOBS * 4 or size > RUN_BYTES:
                run, size = [_number(place_of[terms.queue]), shape.head], 0
                runs.append(run)
            name, rest = message.id.encode(), shape.rest(message)
            run += (_number(len(name)), name, _length(len(rest)), rest)
            size += len(rest)
        self._last = shape
        return [b"".join(parts) for parts in runs]

    def _run_twice(
        self, script: str, queues: Sequence[str], args: Sequence[Any]
    ) -> tuple[Any, bool]:
        """Run a script, and once more if no answer came: jobs already stored are left alone.

        Returns the answer, and whether it is that of the second run.
        """
        try:
            return self._store.run_on(script, queues, args), False
        except StoreUnavailable as error:
            if error.undone:
                raise
        try:
            return self._store.run_on(script, queues, args), True
        except StoreUnavailable as error:
            # Never undone, even if this try did nothing: the first may have stored the jobs.
            raise StoreUnavailable(str(error)) from error

    def _is_taken_back(
        self, outgoing: Sequence[Outgoing], stored: dict[int, Enqueued], on_conflict: OnConflict
    ) -> bool:
        """Whether all steps before the refused one could be taken back.

        A job that may have replaced another stays: the other is gone, and its work would be lost.
        """
        replaces = on_conflict is OnConflict.REPLACE
        if replaces and any(
            answer.created and outgoing[place].terms.unique_key is not None
            for place, answer in stored.items()
        ):
            return False
        try:
            return self._take_back(outgoing, stored)
        except StoreUnavailable:
            return False

    def _take_back(self, outgoing: Sequence[Outgoing], stored: dict[int, Enqueued]) -> bool:
        """Remove what was stored; False if a worker has leased some of it by now."""
        by_queue: dict[str, list[str]] = {}
        for place, answer in stored.items():
            if answer.created:
                by_queue.setdefault(outgoing[place].terms.queue, []).append(answer.id)
        left = sum(map(len, by_queue.values()))
        for queue, ids in by_queue.items():
            for at in range(0, len(ids), TAKEN_BACK_AT_ONCE):
                left -= int(self._store.run("takeback", queue, ids[at : at + TAKEN_BACK_AT_ONCE]))
        return not left


def _bounded(outgoing: Sequence[Outgoing], places: Places) -> Iterator[Places]:
    """Split the places of messages into parts that one script may store."""
    first = size = 0
    for number, place in enumerate(places):
        size += len(outgoing[place].body)
        if number - first == AT_ONCE or (size > BYTES_AT_ONCE and number > first):
            yield places[first:number]
            first, size = number, len(outgoing[place].body)
    yield places[first:]
