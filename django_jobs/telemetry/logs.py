"""The log: what is told in it, and when.

Each record carries ``key`` and the event's fields as attributes, for structured logs. Whatever
names and errors hold, it is one line without control characters, whoever formats it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

from django_jobs.telemetry.errors import cleaned, in_sentence, sentence_of
from django_jobs.telemetry.sentences import SENTENCES, WITH_TRACEBACK
from django_jobs.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.telemetry.events import Event

logger = logging.getLogger("django_jobs")

_FREE_TEXTS = frozenset({"why", "what", "trouble"})
"""Facts that may hold what an error said; the other texts are names, or were redacted before."""


_outlets: list[Callable[[Callable[[], object]], None]] = []


@contextmanager
def through(outlet: Callable[[Callable[[], object]], None]) -> Iterator[None]:
    """Inside the block an outlet sees to it that records are written, for who cannot wait."""
    _outlets.append(outlet)
    try:
        yield
    finally:
        _outlets.remove(outlet)


def wants(kind: type[Event]) -> bool:
    """Whether the log takes records of a kind of events."""
    known = SENTENCES.get(kind)
    return known is not None and logger.isEnabledFor(known[1])


def write(event: Event) -> None:
    """Put an event into the log, soon where there is an outlet and else now."""
    if wants(type(event)):
        soon(partial(write_now, event))


def soon(work: Callable[[], object]) -> None:
    """Do it now, or leave it to the outlet that sees to what may take long."""
    if _outlets:
        _outlets[-1](work)
    else:
        work()


def write_now(event: Event) -> None:
    """Put an event into the log; takes as long as the log's handlers do."""
    key, level, sentence = SENTENCES[type(event)]
    facts = _facts(event)
    error = getattr(event, "error", None)
    logger.log(
        level,
        sentence,
        *filter(None, [facts]),  # an empty dict would count as an argument that the sentence lacks
        extra={"key": key, **facts},
        exc_info=cleaned(error) if error is not None and key in WITH_TRACEBACK else None,
    )


def in_words(event: Event) -> str:
    """The sentence of an event, as the log would have it."""
    _key, _level, sentence = SENTENCES[type(event)]
    return sentence % _facts(event)


def _facts(event: Event) -> dict[str, object]:
    facts = {one.name: _plain(one.name, getattr(event, one.name)) for one in fields(event)}
    if "error_message" in facts:  # not every death has an exception: a process may be killed
        told = (facts["error_type"], facts["error_message"])
        facts["wrong"] = ": ".join(str(part) for part in told if part)
    return facts


def _plain(name: str, value: object) -> object:
    if isinstance(value, str):
        return in_sentence(value) if name in _FREE_TEXTS else one_line(value)
    if isinstance(value, int | float):
        return value
    return f"{one_line(type(value).__name__)}: {sentence_of(value)}"
