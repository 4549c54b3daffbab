"""Settling what finished since the last round trip: what ended in one step, returns in another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import Error

from django_jobs.backends.base import Settled
from django_jobs.execution.errors import error_text
from django_jobs.execution.outcome import Failed
from django_jobs.worker import evidence
from django_jobs.worker.asking import NO_ANSWER, may_pass
from django_jobs.worker.evidence import ENDINGS, goes_back
from django_jobs.worker.settle import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.asking import Asker
    from django_jobs.worker.settle import Run, Settler

UNANSWERED = Verdict("error", Settled.UNKNOWN, reason=NO_ANSWER)
REFUSED = "refused"


def settle_many(
    asker: Asker, items: Sequence[tuple[Run, Outcome]], again: Collection[int] = ()
) -> list[Verdict]:
    """A verdict for each delivery, in their order. The first without an answer is the last asked.

    ``again``: places of those whose settle may have counted already. What the store
    refuses, though it answers, has the status "refused".
    """
    endings = [place for place, (_, outcome) in enumerate(items) if isinstance(outcome, ENDINGS)]
    returned = [place for place, (_, outcome) in enumerate(items) if goes_back(outcome)]
    verdicts = _together(asker, _ended, items, endings, again)
    if UNANSWERED not in verdicts.values():
        verdicts |= _together(asker, _given_back, items, returned, again)
    silent = any(verdict is UNANSWERED for verdict in verdicts.values())
    for place, (run, outcome) in enumerate(items):
        if place in verdicts:
            continue
        verdicts[place] = (
            UNANSWERED if silent else _alone(asker, run, outcome, again=place in again)
        )
        silent = verdicts[place] is UNANSWERED
    return [verdicts[place] for place in range(len(items))]


def _ended(settler: Settler, items: Sequence[tuple[Run, Any]]) -> list[Verdict]:
    endings = [(run, settler.ending(run, outcome)) for run, outcome in items]
    answers = settler.ack(endings)
    return [
        Verdict(ending.status, answer, reason=ending.reason)
        for (_, ending), answer in zip(endings, answers, strict=True)
    ]


def _given_back(settler: Settler, items: Sequence[tuple[Run, Any]]) -> list[Verdict]:
    backend = settler.backend
    told = [(run.lease, evidence.of(run, outcome)) for run, outcome in items]
    evidence.learn_of_probes(backend, told)
    answers = backend.nack_all([run.lease for run, _ in items])
    evidence.learn_of_others(backend, told, answers)
    return [
        Verdict("requeued", answer, reason=outcome.reason)
        for (_, outcome), answer in zip(items, answers, strict=True)
    ]


def _together(
    asker: Asker,
    settle: Callable[[Settler, Sequence[tuple[Run, Any]]], list[Verdict]],
    items: Sequence[tuple[Run, Outcome]],
    places: Sequence[int],
    again: Collection[int],
) -> dict[int, Verdict]:
    """The verdicts that one step gives, by place; those of which it says nothing go alone."""
    if len(places) < 2:  # noqa: PLR2004 - one is not a batch
        return {}
    try:
        answered = settle(asker.settler, [items[place] for place in places])
    except Exception as error:  # noqa: BLE001 - where one of them is at fault, each on its own
        if not may_pass(error):
            return {}
        asker.outage.begins(error)
        return dict.fromkeys(places, UNANSWERED)
    return {
        place: _heard(verdict)
        for place, verdict in zip(places, answered, strict=True)
        if not (verdict.answer is Settled.LOST and place in again)
    }


def _alone(asker: Asker, run: Run, outcome: Outcome, *, again: bool) -> Verdict:
    try:
        verdict = asker.settle(run, outcome, 0.0, again=again)
    except Error as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001 - an outcome nobody can settle must not end the worker
        return _as_failed(asker, run, outcome, error)
    return _heard(verdict)


def _as_failed(asker: Asker, run: Run, outcome: Outcome, error: Exception) -> Verdict:
    """Settle as a failure what cannot be settled as what it is, once."""
    text = error_text(error)
    told = f"its {type(outcome).__name__} could not be settled: {text.message}"
    # Work that was done is not done again for it.
    failed = Failed(replace(text, message=told), retryable=not isinstance(outcome, ENDINGS))
    try:
        return _heard(asker.settle(run, failed, 0.0))
    except Exception as again:  # noqa: BLE001 - as above; when its lease has ended somebody else has it
        return _refused(again)


def _heard(verdict: Verdict) -> Verdict:
    return UNANSWERED if verdict.answer is Settled.UNKNOWN else verdict


def _refused(error: Exception) -> Verdict:
    return Verdict(REFUSED, Settled.UNKNOWN, reason=f"the store refuses the settle: {error}")
