"""Spans of enqueues and runs, where a collector of ``METRICS`` makes them."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from django_jobs.telemetry.metrics import collectors
from django_jobs.wire.envelope import parent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.outcome import Outcome
    from django_jobs.wire.envelope import Envelope


class Traced(Protocol):
    """What a tracer sees of a run: its context, as handlers see it."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def attempt(self) -> int: ...


class Tracer(Protocol):
    """A collector with these two methods, which makes spans as well."""

    def enqueued(self, handler: str, queue: str, job_id: str) -> str:
        """The trace context that travels with a job, in the W3C format, or an empty text."""

    def running(
        self, run: Traced, parent: str | None
    ) -> AbstractContextManager[Callable[[Outcome], None]]:
        """A span around a run; the context manager's value is called with the outcome."""


def parent_for(handler: str, queue: str, job_id: str) -> str:
    """The trace context for a job enqueued now; empty without a tracer."""
    tracer = _tracer_of(collectors())
    return tracer.enqueued(handler, queue, job_id) if tracer else ""


@lru_cache(maxsize=8)
def _tracer_of(those: tuple[Any, ...]) -> Tracer | None:
    return next((collector for collector in those if hasattr(collector, "running")), None)


def of_run(run: Traced, envelope: Envelope) -> AbstractContextManager[Callable[[Outcome], Outcome]]:
    """A span around a run, if there is a tracer; call the yielded function with the outcome."""
    tracer = _tracer_of(collectors())
    return _UNTRACED if tracer is None else _traced(tracer, run, parent_of(envelope))


@contextmanager
def _traced(
    tracer: Tracer, run: Traced, parent: str | None
) -> Iterator[Callable[[Outcome], Outcome]]:
    with tracer.running(run, parent) as ended:

        def note_outcome(outcome: Outcome) -> Outcome:
            ended(outcome)
            return outcome

        yield note_outcome


def _unchanged(outcome: Outcome) -> Outcome:
    return outcome


_UNTRACED: AbstractContextManager[Callable[[Outcome], Outcome]] = nullcontext(_unchanged)
