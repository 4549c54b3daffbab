"""Return values as they are kept: JSON text, and a note where a value cannot be kept."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NamedTuple

from django_jobs.exceptions import InvalidResult
from django_jobs.execution.errors import type_path
from django_jobs.texts import printable
from django_jobs.wire import strict_json

MAX_RESULT_BYTES = 256 * 1024


class Encoded(NamedTuple):
    """A return value as JSON text."""

    json: str
    note: str = ""


_NULL = Encoded("null")
# What is returned in place of work, and what it has as long as that is not done.
_WORK = {
    GeneratorType: ("a generator", "gi_frame"),
    AsyncGeneratorType: ("an asynchronous generator", "ag_frame"),
    CoroutineType: ("a coroutine", "cr_frame"),
}


def encoded_value(value: Any) -> Encoded:
    """A return value as it is kept, and a note where it cannot be.

    The work is done by then: to fail the attempt for its return value would do it again.
    A handler that judges its return values itself hands them over encoded. InvalidResult:
    it is work that nobody will do.
    """
    if value is None:
        return _NULL
    if isinstance(value, Encoded):
        return value
    try:
        text = strict_json.dumps(value)
    except strict_json.NotStrictJson as error:
        _refuse_work(value)
        return Encoded("null", printable(f"the return value was not kept: {error}"))
    except Exception as error:  # noqa: BLE001 - a value's own methods may raise anything
        return Encoded("null", f"the return value was not kept: {type_path(type(error))}")
    if len(text) > MAX_RESULT_BYTES:
        return Encoded(
            "null",
            f"the return value was not kept: {len(text):,} bytes as JSON, "
            f"{MAX_RESULT_BYTES:,} are allowed",
        )
    return Encoded(text)


def _refuse_work(value: Any) -> None:
    """Raise for a generator or coroutine that has not come to its end: nobody has run it."""
    kind, frame = _WORK.get(type(value), ("", ""))
    if not kind or getattr(value, frame) is None:
        return
    if isinstance(value, CoroutineType):
        value.close()  # else Python warns of it a second time
    raise InvalidResult(
        f"the handler returned {kind} that has not run to its end, and nobody will run it; "
        "iterate over it or await it in the handler"
    ) from None
