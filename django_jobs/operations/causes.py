"""Why a job does not run, in text for operators."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobs.backends.values import why_not_kept
from django_jobs.clock import SECOND

_UNITS = (("days", 86_400), ("hours", 3600), ("minutes", 60))
_UNITS_FROM = 2


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason. ``kind``: a stable identifier, ``text``: a sentence, ``way_out``: what to do.

    The names of the fields are those in the JSON of ``jobs_explain``.
    """

    kind: str
    text: str
    way_out: str


def span(microseconds: float) -> str:
    """A length of time in the largest unit that fits."""
    seconds = max(microseconds / SECOND, 0.0)
    for unit, size in _UNITS:
        if seconds >= _UNITS_FROM * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"


def not_kept(value_json: str) -> str:
    """A sentence on a return value that was not kept; empty if it was."""
    why = why_not_kept(value_json)
    return f" Its return value was not kept: {why}." if why else ""
