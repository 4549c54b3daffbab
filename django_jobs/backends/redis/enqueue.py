"""Enqueueing: in one step where all messages are within the reach of one script.

That is so on one server, and in a cluster for messages of one queue. A batch that spans
queues of a cluster is stored queue by queue, and one for which a script would hold up the
server is stored in several steps. When a later step is refused, what the others stored is
taken back.
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

    from django_jobs.backends.redis.store import Store
    from django_jobs.wire.envelope import Outgoing, Terms


# What jobs of the same terms have in common on their way to Redis: it is written once.


_line_of = json.JSONEncoder(separators=(",", ":")).encode
_head = struct.Struct(">Bdc3sB").pack
_LEAST = 2


class Shape(NamedTuple):
    """What messages of the same terms have in common, as it goes to the script."""

    terms: Terms
    key_id: str
    head: bytes
    tail: str

    def rest(self, outgoing: Outgoing) -> bytes:
        """What the script puts after flag and place."""
        return f"[{_line_of(outgoing.signature)},{self.tail}{outgoing.body}".encode()


def shape_of(terms: Terms, key_id: str) -> Shape:
    """The common part of messages on their way to the store."""
    unique, lock, once = terms.unique, terms.lock, terms.once
    told: list[Any] = [
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
    while len(told) > _LEAST and told[-1] is None:
        told.pop()
    flag = b"k" if unique or lock or once else b"-"
    rank, digest = f"{100 - terms.priority:03d}", (unique or "").encode()
    due = to_microseconds(terms.delay or 0) if terms.schedule is None else terms.schedule
    head = _head(terms.schedule is None, due, flag, rank.encode(), len(digest)) + digest
    return Shape(terms, key_id, head, _line_of(told)[1:] + "\n")


AT_ONCE = 10_000
BYTES_AT_ONCE = 16_000_000
"""Nobody else is served while a script stores so much: some 50 milliseconds."""
TAKEN_BACK_AT_ONCE = 1000
RUN_JOBS = 1000
"""Lua hands no command more than about eight thousand values."""
RUN_BYTES = 1_000_000
PUSH_NOTED_MS = 86_400_000
"""By it a relay that was killed knows what it had pushed."""
_MADE = b"1"
Places = range | list[int]
_number = struct.Struct(">H").pack
_length = struct.Struct(">I").pack


class Enqueuer:
    """Stores messages for one backend."""

    def __init__(self, store: Store, remembered_ms: int) -> None:
        self._store = store
        self._remembered_ms = remembered_ms
        self._last: Shape | None = None

    def enqueue(self, outgoing: Sequence[Outgoing], on_conflict: OnConflict) -> list[Enqueued]:
        """See ``Backend.enqueue``."""
        return self._store_all(outgoing, on_conflict)

    def push(self, outgoing: Sequence[Outgoing], on_conflict: OnConflict) -> list[Enqueued]:
        """See ``Backend.push``. What was pushed before is left alone for a day, ended or not."""
        return self._store_all(outgoing, on_conflict, pushes=True)

    def _store_all(
        self, outgoing: Sequence[Outgoing], on_conflict: OnConflict, *, pushes: bool = False
    ) -> list[Enqueued]:
        steps = self._steps(outgoing)
        if len(steps) == 1:
            return self._told(outgoing, outgoing, on_conflict, {}, pushes=pushes)
        answers: dict[int, Enqueued] = {}
        for places in steps:
            step = [outgoing[place] for place in places]
            try:
                stored = self._told(step, outgoing, on_conflict, answers, pushes=pushes)
            except DuplicateJob as error:
                if self._is_taken_back(outgoing, answers, on_conflict):
                    raise
                raise EnqueueOutcomeUnknown(outgoing, str(error)) from error
            answers.update(zip(places, stored, strict=True))
        return [answers[place] for place in range(len(outgoing))]

    def _told(
        self,
        step: Sequence[Outgoing],
        outgoing: Sequence[Outgoing],
        on_conflict: OnConflict,
        before: dict[int, Enqueued],
        *,
        pushes: bool,
    ) -> list[Enqueued]:
        """The answers of a step; the outcome of all is unknown when that of one is."""
        try:
            return self._step(step, on_conflict, pushes=pushes)
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

    def _step(
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
        told, again = self._patiently(script, queues, args)
        if isinstance(told, int):
            return [Enqueued(message.id, True) for message in step]  # noqa: FBT003 - a tuple's field
        if told[0] == b"conflict":
            key = step[int(told[1])].terms.unique_key or ""
            raise DuplicateJob(key, told[2].decode())
        # Asked again, what stands there under its own id was made by the asking before.
        return [
            Enqueued(other.decode(), created=False)
            if other and other != _MADE
            else Enqueued(one.id, created=again or other == _MADE)
            for other, one in zip(told, step, strict=True)
        ]

    def _runs(self, step: Sequence[Outgoing], queues: Sequence[str]) -> list[bytes]:
        """Messages in as few arguments as can be: each costs the client as much as its job."""
        # The guards' key comes first, and Lua counts from one.
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

    def _patiently(
        self, script: str, queues: Sequence[str], args: Sequence[Any]
    ) -> tuple[Any, bool]:
        """Asked a second time when no answer came: what is there already is left alone.

        The answer, and whether it is that of a second time.
        """
        try:
            return self._store.run_on(script, queues, args), False
        except StoreUnavailable as error:
            if error.undone:
                raise
        try:
            return self._store.run_on(script, queues, args), True
        except StoreUnavailable as error:  # whatever became of this one: the first may have counted
            raise StoreUnavailable(str(error)) from error

    def _is_taken_back(
        self, outgoing: Sequence[Outgoing], stored: dict[int, Enqueued], on_conflict: OnConflict
    ) -> bool:
        """Whether nothing is left of the steps before one that was refused.

        What may have replaced another job stays: that one is gone, and its work would be lost.
        """
        replaces = on_conflict is OnConflict.REPLACE
        if replaces and any(
            one.created and outgoing[place].terms.unique_key is not None
            for place, one in stored.items()
        ):
            return False
        try:
            return self._take_back(outgoing, stored)
        except StoreUnavailable:
            return False

    def _take_back(self, outgoing: Sequence[Outgoing], stored: dict[int, Enqueued]) -> bool:
        """Take out what was stored; False where a worker has met some of it by now."""
        by_queue: dict[str, list[str]] = {}
        for place, one in stored.items():
            if one.created:
                by_queue.setdefault(outgoing[place].terms.queue, []).append(one.id)
        left = sum(map(len, by_queue.values()))
        for queue, ids in by_queue.items():
            for at in range(0, len(ids), TAKEN_BACK_AT_ONCE):
                left -= int(self._store.run("takeback", queue, ids[at : at + TAKEN_BACK_AT_ONCE]))
        return not left


def _bounded(outgoing: Sequence[Outgoing], places: Places) -> Iterator[Places]:
    """Places of messages in parts, each of which one script may store."""
    first = size = 0
    for number, place in enumerate(places):
        size += len(outgoing[place].body)
        if number - first == AT_ONCE or (size > BYTES_AT_ONCE and number > first):
            yield places[first:number]
            first, size = number, len(outgoing[place].body)
    yield places[first:]
