"""Circuit breakers: the state machine, and the breaker around calls to a backend.

A closed breaker counts failures in a row. After ``threshold`` of them it opens, and nothing
passes for a while; then one probe does. The result of the probe closes the breaker or opens it
anew. While it is open no other result counts: calls that began before it opened tell nothing new.

The breaker around calls, per backend and queue, belongs to one process: a broken store cannot hold
the state that several would share. Workers retry their store in another way; this is for enqueues
and ``process_once()``, which should fail at once.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from django.core.signals import setting_changed

from django_jobs.backends.base import push
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
    """The state of a breaker: arithmetic only, without store or clock, in any unit of time."""

    failures: int = 0
    opened_at: int | None = None
    probe: str = ""

    @property
    def is_open(self) -> bool:
        """Whether only a probe passes."""
        return self.opened_at is not None

    def cools_for(self, now: int, cooldown: int) -> int:
        """How long not even a probe passes."""
        return 0 if self.opened_at is None else max(self.opened_at + cooldown - now, 0)

    def probed_by(self, token: str) -> Circuit:
        """With a probe under way. The caller has seen that the last probe is over."""
        return self._replace(probe=token)

    def failed(self, token: str, now: int, threshold: int) -> Circuit:
        """After a failure of the call with this token."""
        if self.opened_at is None:
            failures = self.failures + 1
            return Circuit(failures, now if failures >= threshold else None)
        return Circuit(self.failures + 1, now) if token == self.probe else self

    def succeeded(self, token: str) -> Circuit:
        """After a success of the call with this token."""
        return self if self.is_open and token != self.probe else CLOSED

    def on_trust(self, threshold: int) -> Circuit:
        """Closed before the probe has ended: the next failure opens it again."""
        return Circuit(threshold - 1)


CLOSED = Circuit()


_UNTRIED = "passed while closed"
"""The token of calls that passed while the breaker was closed: they are no probe."""
_circuits: dict[tuple[str, str], Circuit] = {}
_lock = threading.Lock()


def _unlock() -> None:
    """Reset the lock and the probes: the threads that have them may not exist in the child."""
    global _lock  # noqa: PLW0603 - one for the process
    _lock = threading.Lock()
    for key, circuit in _circuits.items():
        _circuits[key] = circuit.probed_by("")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class asking:  # noqa: N801 - used as a verb: with asking(...)
    """A call to a backend in a block; raises BackendUnavailable while the breaker is open.

    An error counts as a failure if the backend did not serve. A held unique_key is an answer of
    the backend, and so a success. Any other error of ours (a refused payload, another queue's open
    breaker, a wrong setting) may be raised before the call: it counts as neither, and a probe
    that ends so leaves its place to the next one.
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
    """Whether an error means that the backend does not serve."""
    if isinstance(error, JobsError):
        return isinstance(error, EnqueueOutcomeUnknown | StoreUnavailable)
    return isinstance(error, Exception)  # a BaseException stopped the caller


def asking_to_enqueue(
    backend: Backend, outgoing: Sequence[Outgoing], conflict: OnConflict, *, again: bool = False
) -> list[Enqueued]:
    """Enqueue, unless the backend failed again and again for one of the queues.

    ``again``: they may have been enqueued before. A transactional backend has no breaker.
    """
    store = partial(push, backend) if again else backend.enqueue
    queues = (
        set()
        if backend.capabilities.transactional_enqueue
        else {message.terms.queue for message in outgoing}
    )
    if len(queues) == 1:  # the usual case; an ExitStack costs more
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
        if not circuit.is_open:  # closed since the check without the lock
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
