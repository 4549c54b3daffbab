"""Exceptions as the log gets them: without secrets, and each on one line.

More people may read the log than the store, and formatters and error trackers take what they
please from an exception: its text, its causes, the variables of its frames. So they get a copy
that holds nothing secret.
"""

from __future__ import annotations

from types import FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING

from django_jobs.lazy import LazyFunction
from django_jobs.texts import capped, one_line

if TYPE_CHECKING:
    from collections.abc import Generator

LONGEST_TEXT = 4096
MOST_EXCEPTIONS = 100

# Imported late: it compiles many patterns, which only processes with errors need.
_scrubbed = LazyFunction("django_jobs.redaction.scrubbed")


def sentence_of(error: object) -> str:
    """The text of an exception: capped, on one line, without what looks secret."""
    try:
        return in_sentence(str(error))
    except Exception as unprintable:  # noqa: BLE001 - an exception's own text may be broken
        return f"<its text raised {type(unprintable).__name__}>"


def in_sentence(text: str) -> str:
    """The same for a text that may come from an exception."""
    return one_line(_scrubbed(capped(text, LONGEST_TEXT)))


def cleaned(error: BaseException) -> BaseException:
    """An exception of the same name whose frames have the same places and no variables.

    Its text and notes are redacted and put on one line, as are those of its causes and of the
    members of a group.
    """
    try:
        copy = _copy(error, set())
    except Exception:  # noqa: BLE001 - its class may be broken in any way, and the log must go on
        copy = None
    return copy or Exception(sentence_of(error))


def _copy(error: BaseException | None, seen: set[int]) -> BaseException | None:
    if error is None or id(error) in seen or len(seen) >= MOST_EXCEPTIONS:
        return None
    seen.add(id(error))
    parts = [part for part_error in _parts(error) if (part := _copy(part_error, seen)) is not None]
    copy = _named_like(error, parts)
    copy.__traceback__ = _places(error.__traceback__)
    copy.__cause__ = _copy(error.__cause__, seen)
    if not error.__suppress_context__:
        copy.__context__ = _copy(error.__context__, seen)
    copy.__suppress_context__ = error.__suppress_context__
    for note in _notes(error):
        copy.add_note(note)
    return copy


def _parts(error: BaseException) -> tuple[BaseException, ...]:
    return error.exceptions if isinstance(error, BaseExceptionGroup) else ()


def _named_like(error: BaseException, parts: list[BaseException]) -> BaseException:
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": one_line(kind.__qualname__)}
    name = one_line(kind.__name__)
    if parts and isinstance(error, BaseExceptionGroup):
        group: type[BaseExceptionGroup[BaseException]] = type(name, (BaseExceptionGroup,), names)
        return group(in_sentence(error.message), parts)
    copy: BaseException = type(name, (Exception,), names)(sentence_of(error))
    return copy


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", ())
    return [sentence_of(note) for note in notes] if isinstance(notes, list | tuple) else []


def _places(trace: TracebackType | None) -> TracebackType | None:
    """A traceback of the same lines, with frames that have no variables."""
    lines = []
    while trace is not None:
        lines.append(trace)
        trace = trace.tb_next
    copy: TracebackType | None = None
    for line in reversed(lines):
        number = line.tb_lineno or 1
        # The first instruction has no columns, so that formatters underline nothing.
        copy = TracebackType(copy, _frame_like(line.tb_frame, number), 0, number)
    return copy


def _frame_like(frame: FrameType, number: int) -> FrameType:
    """A frame that claims to be at the same line. It belongs to a generator that never starts."""
    code = _nothing.__code__.replace(
        co_filename=one_line(frame.f_code.co_filename),
        co_name=one_line(frame.f_code.co_name),
        co_qualname=one_line(frame.f_code.co_qualname),
        co_firstlineno=number,
    )
    # Where error trackers and formatters find the module's name and lines of code.
    names = {name: frame.f_globals.get(name) for name in ("__name__", "__loader__")}
    made: FrameType = FunctionType(code, names)().gi_frame
    return made


def _nothing() -> Generator[None]:
    yield
