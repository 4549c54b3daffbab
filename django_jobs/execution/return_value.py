"""Return values as they are kept: JSON text, or why a value cannot be kept."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NamedTuple

from django_jobs.backends.values import NOT_KEPT
from django_jobs.conf import get_settings
from django_jobs.conf.model import SMALL_RESULT
from django_jobs.exceptions import InvalidResult
from django_jobs.execution.errors import type_path
from django_jobs.texts import capped, one_line
from django_jobs.wire import strict_json

LONGEST_NOTE = 500


class Encoded(NamedTuple):
    """A return value as JSON text. ``note``: why it cannot be kept, where that is so."""

    json: str
    note: str = ""

    @property
    def stored(self) -> str:
        """The text that a store keeps."""
        return NOT_KEPT + self.note if self.note else self.json


_NULL = Encoded("null")
# Types returned in place of work, and their attribute that is set until the work is done.
_WORK = {
    GeneratorType: ("a generator", "gi_frame"),
    AsyncGeneratorType: ("an asynchronous generator", "ag_frame"),
    CoroutineType: ("a coroutine", "cr_frame"),
}


def encoded_value(value: Any) -> Encoded:
    """A return value as it is kept, or a note why it cannot be kept.

    The work is done by then: failing the attempt because of its return value would repeat it.
    A handler may return an ``Encoded`` itself. Raises InvalidResult for a generator or coroutine
    that has not run.
    """
    if value is None:
        return _NULL
    if isinstance(value, Encoded):
        return value
    try:
        text = strict_json.dumps(value, "value")
    except strict_json.NotStrictJson as error:
        _refuse_work(value)
        return _not_kept(one_line(str(error)))
    except Exception as error:  # noqa: BLE001 - a value's own methods may raise anything
        return _not_kept(f"{type_path(type(error))} was raised while it was turned into JSON")
    if len(text) > SMALL_RESULT:
        most = get_settings().max_result_bytes
        if len(text) > most and (size := strict_json.size(text)) > most:
            return _not_kept(
                f"it has {size:,} bytes as JSON, MAX_RESULT_BYTES allows {most:,}; store the data "
                "and return a key to it"
            )
    return Encoded(text)


def _not_kept(why: str) -> Encoded:
    return Encoded("null", capped(why, LONGEST_NOTE))


def _refuse_work(value: Any) -> None:
    """Raise for a generator or coroutine that has not run to its end."""
    kind, frame = _WORK.get(type(value), ("", ""))
    if not kind or getattr(value, frame) is None:
        return
    if isinstance(value, CoroutineType):
        value.close()  # otherwise Python warns a second time
    raise InvalidResult(
        f"the handler returned {kind} that has not run to its end and never will; "
        "iterate over it or await it in the handler"
    ) from None
