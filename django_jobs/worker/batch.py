"""Settling what finished since the last round trip: acks in one step, the rest one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.base import Settled
from django_jobs.execution.outcome import Cancelled, Skipped, Succeeded
from django_jobs.worker.settle import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.asking import Asker
    from django_jobs.worker.settle import Ending, Run


def settle_many(
    asker: Asker, items: Sequence[tuple[Run, Outcome]], seconds: float
) -> list[Verdict]:
    """A verdict for each delivery, in their order. What was not answered is asked for again."""
    verdicts: dict[int, Verdict] = {}
    endings: list[tuple[int, Run, Ending]] = []
    for place, (run, outcome) in enumerate(items):
        if isinstance(outcome, Succeeded | Skipped | Cancelled):
            endings.append((place, run, asker.settler.ending(run, outcome)))
    if len(endings) > 1:
        answers = _acked(asker, [(run, ending) for _, run, ending in endings])
        for (place, _, ending), answer in zip(endings, answers, strict=True):
            if answer is not Settled.UNKNOWN:
                verdicts[place] = Verdict(ending.status, answer, reason=ending.reason)
    for place, (run, outcome) in enumerate(items):
        if place not in verdicts:
            verdicts[place] = asker.settle(run, outcome, seconds)
    return [verdicts[place] for place in range(len(items))]


def _acked(asker: Asker, endings: Sequence[tuple[Run, Ending]]) -> list[Settled]:
    try:
        return asker.settler.ack(endings)
    except asker.no_answer:
        return [Settled.UNKNOWN] * len(endings)
