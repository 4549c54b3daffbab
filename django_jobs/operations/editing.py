"""Other arguments for a dead letter. Secrets that were never shown stay what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import HandlerRefused, InvalidPayload
from django_jobs.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    from django_jobs.handlers.base import Handler


@dataclass(frozen=True, slots=True)
class Edited:
    """A payload in place of the one a dead letter has.

    Where it says ``••••`` as the redacted old one does, the old value is meant.
    """

    payload: Any


def put_back(edited: Any, original: Any, handler: Handler | None) -> Any:
    """An edited payload for its handler, with what was redacted put back; raises InvalidPayload.

    Not where the handler would send it elsewhere than before: whoever edits never saw it, and
    would find it out that way.
    """
    payload = restored(edited, original)
    if payload != edited and _destination(handler, payload) != _destination(handler, original):
        raise InvalidPayload(
            "hidden values (••••) stay with what they were meant for: where a request goes, which "
            "event is sent, or any word of a command line was changed here; write the values "
            "themselves, or change nothing but other parts"
        )
    return payload


def _destination(handler: Handler | None, payload: Any) -> Any:
    destination = getattr(handler, "destination", None)
    if destination is None:
        return None
    try:
        return destination(payload)
    except (InvalidPayload, HandlerRefused):
        return object()  # no other is the same


def restored(edited: Any, original: Any) -> Any:
    """An edited payload, with what was redacted put back; raises InvalidPayload.

    A secret returns only to the place it came from. Anywhere else the dots stand for nothing
    that is known, and would be sent as they are. And it stays hidden there: what stands beside
    a value may be all that shows it to be a secret.
    """
    payload = _restored(edited, original, redacted(original), "the payload")
    _demand_hidden(edited, redacted(payload), "the payload")
    return payload


def _demand_hidden(edited: Any, shown: Any, place: str) -> None:
    if shown == HIDDEN:
        return
    if isinstance(edited, dict | list):
        for key, value in edited.items() if isinstance(edited, dict) else enumerate(edited):
            _demand_hidden(value, shown[key], f"{place}[{key!r}]")
    elif isinstance(edited, str) and HIDDEN in edited and shown != edited:
        raise InvalidPayload(
            f"{place} would no longer be hidden, for what stands beside it was changed; write the "
            "value itself, or leave what is beside it as it was"
        )


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
            _restored(
                value,
                _at(original, place_in),
                _seen(edited, shown, place_in),
                f"{place}[{place_in}]",
            )
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


def _seen(edited: list[Any], shown: Any, place: int) -> Any:
    """What was shown in a place; nothing where the word before it, which names it, is another."""
    seen = _at(shown, place)
    renamed = seen == HIDDEN and place and edited[place - 1] != _at(shown, place - 1)
    return None if renamed else seen


def _at(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, list) and place < len(values) else None
