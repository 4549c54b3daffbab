"""Argument types of the commands. Each converts a text, or raises an error with the format."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta

from django_jobs.definition import queue_name_problem
from django_jobs.ids import parse_id
from django_jobs.wire.envelope import MAX_SECONDS

_DURATION = re.compile(r"([0-9]{1,12})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_GREATEST_NUMBER = 2**63 - 1
DURATIONS = "30s, 15m, 12h, 7d or 2w"


def positive_int(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def whole(text: str) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def positive_float(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def duration(text: str) -> timedelta:
    """A number and a unit: 30s, 15m, 12h, 7d, 2w."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no length of time; write {DURATIONS}")
    try:
        length = timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        length = timedelta.max
    if length.total_seconds() > MAX_SECONDS:
        raise ArgumentTypeError(f"{text!r} is longer than 100 years")
    return length


def seconds(text: str) -> float:
    """A bare number of seconds, or a duration."""
    try:
        value = float(text)
    except ValueError:
        return duration(text).total_seconds()
    if not 0 <= value <= MAX_SECONDS:
        raise ArgumentTypeError(f"{text!r} does not lie between 0 seconds and 100 years")
    return value


def time_limit(text: str) -> float | None:
    """Seconds or a duration, or "none" for no limit."""
    return None if text.lower() == "none" else seconds(text)


def moment(text: str) -> datetime:
    """An ISO 8601 moment with a time zone."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is no moment; write it as 2026-01-31T18:30:00+01:00"
        ) from None
    if value.utcoffset() is None:
        raise ArgumentTypeError(
            f"{text!r} has no time zone; add one, as in {value.isoformat()}+01:00 "
            f"or {value.isoformat()}Z"
        )
    return value


def expiry(text: str) -> float | datetime:
    """A length of time from now, or a moment."""
    try:
        return seconds(text)
    except ArgumentTypeError:
        pass
    try:
        return moment(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}; or as a length of time: {DURATIONS}") from None


def queue_name(text: str) -> str:
    """A valid name of a queue."""
    if problem := queue_name_problem(text):
        raise ArgumentTypeError(problem)
    return text


def dead_letter(text: str) -> str:
    """The number of a dead letter, or the id of its job."""
    if text.isascii() and text.isdecimal() and int(text) <= _GREATEST_NUMBER:
        return str(int(text))
    if job_id := parse_id(text):
        return job_id
    raise ArgumentTypeError(
        f"{text!r} is neither the number of a dead letter nor a job's id; see jobs_dlq list"
    )
