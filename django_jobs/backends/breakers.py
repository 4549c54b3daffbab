"""A circuit breaker: arithmetic only, no store and no clock.

Closed, it counts failures in a row. So many of them open it, and nothing passes for a
while; then one probe does. What the probe comes to closes it or opens it anew, and while
it is open nothing else counts: what was under way already says nothing new.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from django.core.signals import setting_changed

from django_jobs.clock import SECOND, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.exceptions import (
    BackendUnavailable,
    DuplicateJob,
    EnqueueOutcomeUnknown,
    JobsError,
    StoreUnavailable,
)
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Backend, Enqueued, OnConflict
    from django_jobs.wire.envelope import Outgoing


class Circuit(NamedTuple):
    """Where a breaker stands. Moments and lengths of time are of one unit, whichever."""

    failures: int = 0
    opened_at: int | None = None
    probe: str = ""

    @property
    def is_open(self) -> bool:
        """Whether nothing passes but a probe."""
        return self.opened_at is not None

    def cools_for(self, now: int, cooldown: int) -> int:
        """How long nothing at all passes yet."""
        return 0 if self.opened_at is None else max(self.opened_at + cooldown - now, 0)

    def probed_by(self, token: str) -> Circuit:
        """With its one probe under way. Whoever lets it pass has seen that the last one is over."""
        return self._replace(probe=token)

    def failed(self, token: str, now: int, threshold: int) -> Circuit:
        """After a failure of what passed with a token."""
        if self.opened_at is None:
            failures = self.failures + 1
            return Circuit(failures, now if failures >= threshold else None)
        return Circuit(self.failures + 1, now) if token == self.probe else self

    def succeeded(self, token: str) -> Circuit:
        """After a success of what passed with a token."""
        return self if self.is_open and token != self.probe else CLOSED

    def on_trust(self, threshold: int) -> Circuit:
        """Closed before the probe's end is known: the next failure opens it anew."""
        return Circuit(threshold - 1)


CLOSED = Circuit()


# The breaker between this process and a backend that fails: per backend and queue.
#
# It is of one process, for what is broken cannot keep what several would have to share. The
# store of a worker is asked with patience of its own; this is for who enqueues and for
# ``process_once()``, who had better hear at once that it is of no use.


_UNTRIED = "passed while closed"
"""The token of what passed before the breaker opened: it is no probe, and decides nothing then."""
_circuits: dict[tuple[str, str], Circuit] = {}
_lock = threading.Lock()


def _unlock() -> None:
    """The threads that held the lock, or are probing, were perhaps not forked with this one."""
    global _lock  # noqa: PLW0603 - one for the process
    _lock = threading.Lock()
    for key, circuit in _circuits.items():
        _circuits[key] = circuit.probed_by("")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class asking:  # noqa: N801 - used as a verb: with asking(...)
    """Ask a backend something in the block; raises BackendUnavailable where it is no use.

    An error counts as a failure when the backend did not serve. A held unique_key is an answer
    of the backend, and so a success. Any other error of ours (a payload that is refused, another
    queue's open breaker, a wrong setting) may be raised before the backend was asked: it counts
    as neither, and a probe that ends so leaves its place to the next.
    """

    __slots__ = ("_backend", "_queue", "_token")

    def __init__(self, backend: str, queue: str) -> None:
        self._backend, self._queue = backend, queue

    def __enter__(self) -> None:
        self._token = _passed(self._backend, self._queue)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failed = error is not None and _is_failure(error)
        if failed or error is None or isinstance(error, DuplicateJob):
            _ended(self._backend, self._queue, self._token, failed=failed)
        else:
            _given_up(self._backend, self._queue, self._token)


def _is_failure(error: BaseException) -> bool:
    """Whether an error says that the backend does not serve."""
    if isinstance(error, JobsError):
        return isinstance(error, EnqueueOutcomeUnknown | StoreUnavailable)
    return isinstance(error, Exception)  # the caller was stopped: that says nothing


def asking_to_enqueue(
    backend: Backend, outgoing: Sequence[Outgoing], conflict: OnConflict, *, again: bool = False
) -> list[Enqueued]:
    """Enqueue, unless the backend failed again and again for one of the queues.

    ``again``: they may have been enqueued before. The site's own database, in a transaction
    of the caller, is asked in any case.
    """
    store = backend.push if again else backend.enqueue
    queues = (
        set()
        if backend.capabilities.transactional_enqueue
        else {message.terms.queue for message in outgoing}
    )
    if len(queues) == 1:  # as most are, and a stack of contexts costs more than its one
        with asking(backend.alias, queues.pop()):
            return store(outgoing, on_conflict=conflict)
    with ExitStack() as asked:
        for queue in sorted(queues):
            asked.enter_context(asking(backend.alias, queue))
        return store(outgoing, on_conflict=conflict)


def _passed(backend: str, queue: str) -> str:
    circuit = _circuits.get((backend, queue), CLOSED)
    if not circuit.is_open:
        return _UNTRIED
    config = get_settings().circuit_breaker
    with _lock:
        circuit = _circuits.get((backend, queue), CLOSED)
        left = circuit.cools_for(_now(), to_microseconds(config.cooldown))
        if left or circuit.probe:
            period = f"for {left / SECOND:.0f} s more" if left else "until one try has succeeded"
            raise BackendUnavailable(
                f"the backend {backend!r} failed {circuit.failures} times in a row for the queue "
                f"{queue!r}; nothing is asked of it {period}"
            )
        if not circuit.is_open:  # since it was looked at without the lock
            return _UNTRIED
        token = uuid4().hex
        _circuits[backend, queue] = circuit.probed_by(token)
        return token


def _ended(backend: str, queue: str, token: str, *, failed: bool) -> None:
    if not failed and (backend, queue) not in _circuits:
        return
    config = get_settings().circuit_breaker
    with _lock:
        before = _circuits.get((backend, queue), CLOSED)
        if failed:
            after = before.failed(token, _now(), config.threshold)
        else:
            after = before.succeeded(token)
        _keep(backend, queue, after)
    about = {"kind": "backend", "backend": backend, "subject": queue}
    if after.is_open and after.opened_at != before.opened_at:
        opened = events.BreakerOpened(**about, failures=after.failures, seconds=config.cooldown)
        events.emit(opened)
    elif before.is_open and not after.is_open:
        events.emit(events.BreakerClosed(**about))


def _given_up(backend: str, queue: str, token: str) -> None:
    with _lock:
        circuit = _circuits.get((backend, queue), CLOSED)
        if circuit.probe == token:
            _keep(backend, queue, circuit.probed_by(""))


def _keep(backend: str, queue: str, circuit: Circuit) -> None:
    if circuit == CLOSED:
        _circuits.pop((backend, queue), None)
    else:
        _circuits[backend, queue] = circuit


def _now() -> int:
    return to_microseconds(time.monotonic())


def forget(**_kwargs: object) -> None:
    """Close them all: other settings, or an operator's word in this process."""
    with _lock:
        _circuits.clear()


setting_changed.connect(forget)
