"""The order in which a worker fetches from its queues.

``a,b``: strictly, b only when a is empty. ``a:3,b:1``: by weight. None named: all queues of
the backend in turn.
"""

from __future__ import annotations

import difflib
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol

from django_jobs.backends.base import Inspects, LooksAhead
from django_jobs.definition import queue_name_problem
from django_jobs.enqueue import DEFAULT_QUEUE
from django_jobs.exceptions import InvalidOption
from django_jobs.handlers.registry import registry
from django_jobs.models import QueueMinute
from django_jobs.routers import job_databases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings

MAX_WEIGHT = 1000
POLL_SECONDS = 5.0
"""How old the list of queues may be, if the backend cannot list those with due jobs."""
DUE_SECONDS = 0.5
"""While there is work, the list of queues with due jobs may be this old."""
POLLS_SHARE = 20
"""At most this part of the time goes into these polls, which take longer with more queues."""
FEW = 5
"""This many queues are tried without asking first whether anything is due."""


EVERY_QUEUE = "every queue"
"""How a worker describes its queues when none are named."""


class QueueOrder(Protocol):
    """Chooses the queues to try, in order."""

    @property
    def watched(self) -> Sequence[str] | None:
        """The queues to wait for; None for all queues, including future ones."""

    def next(self) -> Sequence[str]: ...

    def poll_again(self) -> None:
        """There may be new queues: ask for their names at the next turn."""

    def refresh(self) -> None:
        """Ask for the names now, if the last time is a while ago; called when no job waits."""


class Named:
    """Queues that were named: there are no names to ask for."""

    def poll_again(self) -> None:
        """The names stay as they are."""

    def refresh(self) -> None:
        """The names stay as they are."""


class Strict(Named):
    """Always the same order."""

    def __init__(self, names: Sequence[str]) -> None:
        self.watched = self._names = tuple(names)

    def next(self) -> Sequence[str]:
        return self._names

    def __str__(self) -> str:
        return ",".join(self._names)


class Weighted(Named):
    """Each queue comes first as often as its weight says, evenly spread."""

    def __init__(self, weights: dict[str, int]) -> None:
        self._weights = weights
        self.watched = tuple(weights)
        self._credit = dict.fromkeys(weights, 0)

    def next(self) -> Sequence[str]:
        for name, weight in self._weights.items():
            self._credit[name] += weight
        first = max(self._credit, key=lambda name: self._credit[name])
        self._credit[first] -= sum(self._weights.values())
        rest = sorted(self._credit, key=lambda name: -self._credit[name])
        return [first, *(name for name in rest if name != first)]

    def __str__(self) -> str:
        return ",".join(f"{name}:{weight}" for name, weight in self._weights.items())


class InTurn:
    """Every queue of the backend, each coming first once a round.

    Where the backend can list them, only queues with due jobs, and a few that had some lately:
    trying each of three thousand queues takes a second.
    """

    watched = None

    def __init__(self, backend: Backend, settings: JobsSettings) -> None:
        self._backend = backend
        configured = settings.queues
        self._named = [q for q in configured if settings.backend_for(q) == backend.alias]
        self._names: list[str] = []
        self._polled_at, self._last_turn_at = float("-inf"), time.monotonic()
        self._poll_after = POLL_SECONDS
        self._first = ""
        self._used = False

    def next(self) -> Sequence[str]:
        if self._polled_at < 0:
            self._poll(self._last_turn_at)
        self._used, self._last_turn_at = True, time.monotonic()
        if not self._names:
            return ()
        # Resume by name, since the queues change from poll to poll.
        turn = bisect_right(self._names, self._first) % len(self._names)
        self._first = self._names[turn]
        return [*self._names[turn:], *self._names[:turn]]

    def poll_again(self) -> None:
        self._polled_at = float("-inf")

    def refresh(self) -> None:
        # An idle worker gets a hint about work in any queue, and polls then.
        now = time.monotonic()
        if self._used and 0 < self._polled_at < now - self._poll_after:
            self._poll(now - DUE_SECONDS)

    def _poll(self, since: float) -> None:
        began = time.monotonic()
        backend = self._backend
        due = backend.queues_due(since) if isinstance(backend, LooksAhead) else None
        self._polled_at, self._used = time.monotonic(), False
        if due is None:
            self._names = sorted({*self._named, *_held_by(backend)}) or [DEFAULT_QUEUE]
            return
        before = self._names or self._named or [DEFAULT_QUEUE]
        others = [name for name in before if name not in set(due)]
        self._names = sorted([*due, *others[: max(FEW - len(due), 0)]])
        self._poll_after = max(DUE_SECONDS, POLLS_SHARE * (self._polled_at - began))

    def __str__(self) -> str:
        return EVERY_QUEUE


def _held_by(backend: Backend) -> list[str]:
    """The queues that a backend reports."""
    return backend.queues() if isinstance(backend, Inspects) else []


def parse(text: str | None, backend: Backend, settings: JobsSettings) -> QueueOrder:
    """Parse the value of ``--queue``; raises InvalidOption."""
    if text is None:
        return InTurn(backend, settings)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidOption(
            f"{text!r} names no queue; write --queue a,b or --queue a:3,b:1, or leave --queue out "
            "to serve every queue"
        )
    weights = {_name(part, settings): _weight(part) for part in parts}
    if any(":" in part for part in parts):
        return Weighted(weights)
    return Strict(list(weights))


def new_queue_warnings(
    order: QueueOrder, backend: Backend, settings: JobsSettings
) -> Iterator[str]:
    """A warning for each named queue that appears in neither code, settings nor the store."""
    if order.watched is None:
        return
    declared = {registry.options_of(handler.key).queue for handler in registry.loaded()}
    names = {DEFAULT_QUEUE, *settings.queues, *_held_by(backend), *filter(None, declared)}
    counted = QueueMinute.objects.using(job_databases(settings)[0])
    for name in order.watched:
        if name in names or counted.filter(backend=backend.alias, queue=name).exists():
            continue
        near = difflib.get_close_matches(name, sorted(names), n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        yield (
            f"the queue {name!r} is new: nothing was enqueued to it so far, and neither a @job nor "
            f"QUEUES names it{hint}"
        )


def _name(part: str, settings: JobsSettings) -> str:
    name = part.partition(":")[0]
    if problem := queue_name_problem(name):
        raise InvalidOption(f"{problem}; write --queue a,b or --queue a:3,b:1")
    if problem := settings.queue_problem(name):
        raise InvalidOption(problem)
    return name


def _weight(part: str) -> int:
    text = part.partition(":")[2] or "1"
    if not (text.isdecimal() and 1 <= int(text) <= MAX_WEIGHT):
        raise InvalidOption(f"the weight {text!r} of {part!r} is no whole number from 1 to 1000")
    return int(text)
