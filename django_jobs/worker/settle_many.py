"""Settles a batch of deliveries: all acks in one step, and all returns in another.

A delivery that cannot be settled does not hold up the others: if the store refuses a batch, the
faulty one is found by halving the batch, and is settled alone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import Error

from django_jobs.backends.base import Settled
from django_jobs.execution.errors import error_text
from django_jobs.outcome import Failed
from django_jobs.worker import settle
from django_jobs.worker.settle import ENDINGS, Verdict, goes_back
from django_jobs.worker.store import LATER, REFUSED, UNANSWERED, ErrorKind, kind_of_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from django_jobs.outcome import Outcome
    from django_jobs.worker.settle import Run, Settler
    from django_jobs.worker.store import Asker


def settle_many(
    asker: Asker,
    items: Sequence[tuple[Run, Outcome]],
    again: Collection[int] = (),
    *,
    seconds: float = float("inf"),
) -> list[Verdict]:
    """Return a verdict for each delivery, in order. After the first without an answer it stops.

    ``again``: places of deliveries whose settle may have counted already. If the store answers but
    refuses a settle, its status is "refused". Deliveries that cannot be settled now, or within
    ``seconds``, get the verdict LATER.
    """
    return _Batch(asker, items, again, time.monotonic() + seconds).settled()


class _Batch:
    """Deliveries that are being settled, and their verdicts by place."""

    def __init__(
        self,
        asker: Asker,
        items: Sequence[tuple[Run, Outcome]],
        again: Collection[int],
        until: float,
    ) -> None:
        self._asker = asker
        self._items = items
        self._again = again
        self._until = until
        self._verdicts: dict[int, Verdict] = {}
        self._silent = False

    def settled(self) -> list[Verdict]:
        items = list(enumerate(self._items))
        self._together(_ended, [at for at, (_, out) in items if isinstance(out, ENDINGS)])
        self._together(_given_back, [at for at, (_, out) in items if goes_back(out)])
        for place, (run, outcome) in items:
            if place not in self._verdicts:
                self._keep(place, self._alone(run, outcome, again=place in self._again))
        return [self._verdicts[place] for place, _ in items]

    def _keep(self, place: int, verdict: Verdict) -> None:
        self._verdicts[place] = verdict
        self._silent = self._silent or verdict is UNANSWERED

    def _together(
        self,
        settle: Callable[[Settler, Sequence[tuple[Run, Any]]], list[Verdict]],
        places: Sequence[int],
    ) -> None:
        """Settle in one step; deliveries without a verdict are settled alone later."""
        if len(places) < 2 or self._silent or time.monotonic() > self._until:  # noqa: PLR2004 - one is not a batch
            return
        try:
            verdicts = settle(self._asker.settler, [self._items[place] for place in places])
        except Exception as error:  # noqa: BLE001 - whatever it is, a single delivery may be the cause
            if kind_of_error(error) is ErrorKind.STORE:
                self._asker.outage.begins(error)
                for place in places:
                    self._keep(place, UNANSWERED)
                return
            half = len(places) // 2
            self._together(settle, places[:half])
            self._together(settle, places[half:])
            return
        self._collect(places, verdicts)

    def _collect(self, places: Sequence[int], verdicts: Sequence[Verdict]) -> None:
        unknown = self._asker.unknown_verdict()
        broke = unknown is UNANSWERED and any(x.answer is Settled.UNKNOWN for x in verdicts)
        if not broke:
            self._asker.outage.ends()
        for place, verdict in zip(places, verdicts, strict=True):
            if verdict.answer is Settled.UNKNOWN:
                self._keep(place, unknown)
            elif not (verdict.answer is Settled.LOST and place in self._again):
                self._keep(place, verdict)

    def _alone(self, run: Run, outcome: Outcome, *, again: bool) -> Verdict:
        if self._silent:
            return UNANSWERED
        if time.monotonic() > self._until:
            return LATER
        try:
            return self._asker.settle(run, outcome, 0.0, again=again)
        except Error as error:
            return _refused(error)
        except Exception as error:  # noqa: BLE001 - an outcome that cannot be settled must not end the worker
            return _as_failed(self._asker, run, outcome, error)


def _ended(settler: Settler, items: Sequence[tuple[Run, Any]]) -> list[Verdict]:
    endings = [(run, settler.ending(run, outcome)) for run, outcome in items]
    answers = settler.ack(endings)
    return [
        Verdict(ending.status, answer, reason=ending.reason)
        for (_, ending), answer in zip(endings, answers, strict=True)
    ]


def _given_back(settler: Settler, items: Sequence[tuple[Run, Any]]) -> list[Verdict]:
    backend = settler.backend
    observations = [(run.lease, settle.evidence_of(run, outcome)) for run, outcome in items]
    settle.count_probes(backend, observations)
    answers = backend.nack_all([run.lease for run, _ in items])
    settle.count_others(backend, observations, answers)
    settle.return_starts(backend, items, answers)
    return [
        Verdict("requeued", answer, reason=outcome.reason)
        for (_, outcome), answer in zip(items, answers, strict=True)
    ]


def _as_failed(asker: Asker, run: Run, outcome: Outcome, error: Exception) -> Verdict:
    """Try once to settle as a failure an outcome that cannot be settled."""
    text = error_text(error)
    message = f"its {type(outcome).__name__} could not be settled: {text.message}"
    # Work that was done is not repeated because of it.
    failed = Failed(replace(text, message=message), retryable=not isinstance(outcome, ENDINGS))
    try:
        return asker.settle(run, failed, 0.0)
    except Exception as again:  # noqa: BLE001 - as above; after its lease another worker gets the job
        return _refused(again)


def _refused(error: Exception) -> Verdict:
    return Verdict(REFUSED, Settled.UNKNOWN, reason=f"the store refuses the settle: {error}")
