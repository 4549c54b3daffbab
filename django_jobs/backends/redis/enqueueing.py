"""Enqueueing: in one step where all messages are within the reach of one script.

That is so on one server, and in a cluster for messages of one queue. A batch that spans
queues of a cluster is stored queue by queue, and taken back when a later queue refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Enqueued, OnConflict
from django_jobs.backends.redis.packing import pack
from django_jobs.clock import to_microseconds
from django_jobs.exceptions import DuplicateJob, EnqueueOutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.redis.store import Store
    from django_jobs.wire.envelope import Outgoing

AT_ONCE = 100_000
"""Redis takes about a million arguments in one command."""


class Enqueuer:
    """Stores messages for one backend."""

    def __init__(self, store: Store, remembered_ms: int) -> None:
        self._store = store
        self._remembered_ms = remembered_ms

    def enqueue(self, outgoing: Sequence[Outgoing], on_conflict: OnConflict) -> list[Enqueued]:
        """See ``Backend.enqueue``."""
        return self._store_all(outgoing, on_conflict.value)

    def push(self, outgoing: Sequence[Outgoing]) -> list[Enqueued]:
        """See ``Backend.push``. What was pushed before is left alone for a day, ended or not."""
        return self._store_all(outgoing, "push")

    def _store_all(self, outgoing: Sequence[Outgoing], on_conflict: str) -> list[Enqueued]:
        answers: dict[int, Enqueued] = {}
        for places in self._steps(outgoing):
            step = [outgoing[place] for place in places]
            try:
                stored = self._step(step, on_conflict)
            except DuplicateJob:
                self._take_back(outgoing, answers)
                raise
            except StoreUnavailable as error:
                if error.undone and not answers:
                    raise
                raise EnqueueOutcomeUnknown(outgoing, str(error)) from error
            answers.update(zip(places, stored, strict=True))
        return [answers[place] for place in range(len(outgoing))]

    def _steps(self, outgoing: Sequence[Outgoing]) -> list[range | list[int]]:
        if self._store.layout.clustered:
            by_queue: dict[str, list[int]] = {}
            for place, message in enumerate(outgoing):
                by_queue.setdefault(message.terms.queue, []).append(place)
            return [
                places[at : at + AT_ONCE]
                for places in by_queue.values()
                for at in range(0, len(places), AT_ONCE)
            ]
        count = len(outgoing)
        return [range(at, min(at + AT_ONCE, count)) for at in range(0, count, AT_ONCE)]

    def _step(self, step: Sequence[Outgoing], on_conflict: str) -> list[Enqueued]:
        queues = list(dict.fromkeys(message.terms.queue for message in step))
        args = [on_conflict, len(step), self._remembered_ms]
        # The guards' key comes first, and Lua counts from one.
        place_of = {queue: place for place, queue in enumerate(queues, start=2)}
        for message in step:
            args += _args(message, place_of[message.terms.queue])
        self._store.announce(queues)
        told, again = self._patiently(queues, args)
        if told[0] == b"conflict":
            key = step[int(told[1])].terms.unique_key or ""
            raise DuplicateJob(key, told[2].decode())
        # Asked again, what stands there under its own id was made by the asking before.
        return [
            Enqueued(
                made := told[at].decode(), bool(int(told[at + 1])) or (again and made == one.id)
            )
            for at, one in zip(range(0, len(told), 2), step, strict=True)
        ]

    def _patiently(self, queues: Sequence[str], args: Sequence[Any]) -> tuple[Any, bool]:
        """Asked a second time when no answer came: what is there already is left alone.

        The answer, and whether it is that of a second time.
        """
        try:
            return self._store.run_on("enqueue", queues, args), False
        except StoreUnavailable as error:
            if error.undone:
                raise
        try:
            return self._store.run_on("enqueue", queues, args), True
        except StoreUnavailable as error:  # whatever became of this one: the first may have counted
            raise StoreUnavailable(str(error)) from error

    def _take_back(self, outgoing: Sequence[Outgoing], stored: dict[int, Enqueued]) -> None:
        for place, one in stored.items():
            if one.created:
                self._store.run("cancel", outgoing[place].terms.queue, [one.id, "", 1, 0])


def _args(message: Outgoing, place: int) -> list[Any]:
    """Five values for the script: each costs the client as much as anything else it does."""
    terms = message.terms
    due: int | str = "+0"
    if terms.schedule is not None:
        due = terms.schedule
    elif terms.delay:
        due = f"+{to_microseconds(terms.delay)}"
    packed = pack(message)
    return [place, message.id, due, packed.text, packed.unique]
