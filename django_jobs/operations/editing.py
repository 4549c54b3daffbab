"""Other arguments for a dead letter. Secrets that were never shown stay what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_jobs.exceptions import InvalidPayload
from django_jobs.redaction import HIDDEN, redacted


@dataclass(frozen=True, slots=True)
class Edited:
    """A payload in place of the one a dead letter has.

    Where it says ``••••`` as the redacted old one does, the old value is meant.
    """

    payload: Any


def restored(edited: Any, original: Any) -> Any:
    """An edited payload, with what was redacted put back; raises InvalidPayload.

    A secret returns only to the place it came from. Anywhere else the dots stand for nothing
    that is known, and would be sent as they are.
    """
    return _restored(edited, original, redacted(original), "the payload")


def _restored(edited: Any, original: Any, shown: Any, place: str) -> Any:
    if isinstance(edited, dict):
        old, seen = [value if isinstance(value, dict) else {} for value in (original, shown)]
        return {
            key: _restored(value, old.get(key), seen.get(key), f"{place}[{key!r}]")
            for key, value in edited.items()
        }
    if isinstance(edited, list):
        # An item of another place must not take the secret of this one's neighbour.
        return [
            _restored(value, _at(original, place_in), _at(shown, place_in), f"{place}[{place_in}]")
            for place_in, value in enumerate(edited)
        ]
    if isinstance(edited, str) and edited == shown:
        return original
    if isinstance(edited, str) and HIDDEN in edited:
        raise InvalidPayload(
            f"{place} is {edited!r}, and there is no hidden value in that place to put back; "
            "write the value itself, or leave the dots where they were"
        )
    return edited


def _at(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, list) and place < len(values) else None
