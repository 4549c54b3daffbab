"""What a job is: a handler key, a payload and options, frozen.

Options are checked here, when they are set, so that a mistake shows where it was made
and not in a worker at night.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from django_jobs.clock import from_datetime, to_datetime
from django_jobs.exceptions import InvalidOption, UnknownOption
from django_jobs.retry import InvalidRetry, normalised
from django_jobs.texts import shortened
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import MAX_COUNT, MAX_MOMENT, MAX_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django_jobs.retry import RetrySpec


# The value of an option that is not set, where None has a meaning of its own.


class Unset(Enum):
    """The type of UNSET."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


ON_CONFLICT = ("return", "raise", "replace")


# The check of each option.


def _queue(name: str, value: Any) -> str | None:
    if value is not None and (problem := queue_name_problem(value)):
        raise InvalidOption(f"{name} {problem}")
    return None if value is None else str(value)


def _text(limit: int = 255) -> Callable[[str, Any], str | None]:
    def check(name: str, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not 0 < len(value) <= limit:
            raise InvalidOption(
                f"{name} is {_shown(value)}; it is a text of 1 to {limit} characters"
            )
        if not value.isprintable():
            raise InvalidOption(f"{name} is {_shown(value)}; it holds a control character")
        return value

    return check


def _whole(low: int, high: int) -> Callable[[str, Any], int | None]:
    def check(name: str, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidOption(
                f"{name} is {_shown(value)}; it is a whole number from {low} to {high}"
            )
        return int(value)

    return check


def _priority(name: str, value: Any) -> int:
    return _whole(-100, 100)(name, value) or 0


def _seconds(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"{name} is {_shown(value)}; give seconds or a timedelta")
    if not 0 <= value <= MAX_SECONDS:
        raise InvalidOption(f"{name} is {_shown(value)} seconds; it lies between 0 and 100 years")
    return value


def _timeout(name: str, value: Any) -> float | None:
    seconds = _seconds(name, value)
    if seconds == 0:
        raise InvalidOption(f"{name} is 0; give seconds, or None for no time limit")
    return seconds


def _moment(name: str, value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidOption(f"{name} is {_shown(value)}; give an aware datetime")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidOption(
            f"{name} {value.isoformat()} has no time zone; make it aware "
            "(django.utils.timezone.make_aware) so that it names one moment"
        )
    if not 0 <= from_datetime(value) <= MAX_MOMENT:
        raise InvalidOption(
            f"{name} is {value.isoformat()}; give a moment from 1970 to "
            f"{to_datetime(MAX_MOMENT):%Y}, for which every backend has room"
        )
    return value


def _run_at(name: str, value: Any) -> datetime | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidOption(f"{name} is {value!r}; use delay= for a number of seconds")
    return _moment(name, value)


def _expires(name: str, value: Any) -> float | datetime | None:
    return _moment(name, value) if isinstance(value, datetime) else _seconds(name, value)


def _retry(name: str, value: Any) -> RetrySpec | None:
    if value is None:
        return None
    try:
        return normalised(value)
    except InvalidRetry as error:
        raise InvalidOption(f"{name}: {error}") from error


def _flag(name: str, value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidOption(f"{name} is {_shown(value)}; it is True or False")
    return value


def _single_instance(name: str, value: Any) -> bool | str | None:
    return value if isinstance(value, bool) else _text()(name, value)


def _conflict(name: str, value: Any) -> str:
    if value not in ON_CONFLICT:
        raise InvalidOption(f"{name} is {_shown(value)}; it is one of {', '.join(ON_CONFLICT)}")
    return str(value)


def _meta(name: str, value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidOption(f"{name} is {_shown(value)}; it is a dict of plain JSON values")
    try:
        # A copy: changing the dict later does not change the job.
        return strict_json.loads(strict_json.dumps(value, name))  # type: ignore[no-any-return]  # a dict
    except strict_json.NotStrictJson as error:
        raise InvalidOption(str(error)) from None


def _tenant(name: str, value: Any) -> None:
    # The field travels and is stored, but is not used yet.
    if value is not None:
        raise InvalidOption(
            f"{name} is not supported yet: nothing would keep the jobs of tenants apart; leave it "
            "out, and put what your handler is to know into its arguments or into meta"
        )


def _shown(value: object) -> str:
    try:
        return shortened(repr(value))
    except Exception:  # noqa: BLE001 - a value too odd to be printed must not hide the message
        return f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of ``@job`` and ``using()``, each with its check. None means "not set"."""

    queue: str | None = field(default=None, metadata={"check": _queue})
    backend: str | None = field(default=None, metadata={"check": _text(64)})
    name: str | None = field(default=None, metadata={"check": _text()})
    priority: int = field(default=0, metadata={"check": _priority})
    max_retries: int | None = field(default=None, metadata={"check": _whole(0, MAX_COUNT - 1)})
    retry: RetrySpec | None = field(default=None, metadata={"check": _retry})
    timeout: float | Unset | None = field(default=UNSET, metadata={"check": _timeout})
    delay: float | None = field(default=None, metadata={"check": _seconds})
    run_at: datetime | None = field(default=None, metadata={"check": _run_at})
    expires: float | datetime | None = field(default=None, metadata={"check": _expires})
    idempotency_key: str | None = field(default=None, metadata={"check": _text()})
    unique_key: str | None = field(default=None, metadata={"check": _text()})
    on_conflict: str = field(default="return", metadata={"check": _conflict})
    single_instance: bool | str | None = field(default=None, metadata={"check": _single_instance})
    concurrency_key: str | None = field(default=None, metadata={"check": _text()})
    concurrency: int | None = field(default=None, metadata={"check": _whole(1, MAX_COUNT)})
    atomic: bool | None = field(default=None, metadata={"check": _flag})
    result_ttl: float | None = field(default=None, metadata={"check": _seconds})
    max_crashes: int | None = field(default=None, metadata={"check": _whole(1, MAX_COUNT)})
    tenant: str | None = field(default=None, metadata={"check": _tenant})
    trace_id: str | None = field(default=None, metadata={"check": _text(64)})
    meta: Mapping[str, Any] | None = field(default=None, metadata={"check": _meta})

    def using(self, **options: Any) -> Options:
        """A copy with these options, each checked; raises InvalidOption."""
        changed = self.declared(**options)
        if options.get("on_conflict", "return") != "return" and changed.unique_key is None:
            raise InvalidOption(
                f"on_conflict {changed.on_conflict!r} says what to do where a live job has the "
                "same unique_key, and there is none; give unique_key too, or leave it out"
            )
        return changed

    def declared(self, **options: Any) -> Options:
        """As ``using``, for declarations in code: the unique_key may come with each enqueue."""
        if not options:
            return self
        if options.get("delay") is not None and options.get("run_at") is not None:
            raise InvalidOption("delay and run_at exclude each other; give one of them")
        if isinstance(options.get("run_at"), timedelta):
            options["delay"] = options.pop("run_at")
        checked = {name: _checked(name, value) for name, value in options.items()}
        changed = replace(self, **checked)
        if changed.delay is not None and changed.run_at is not None:
            # The later option wins over that of the decorator.
            if "delay" in checked:
                changed = replace(changed, run_at=None)
            else:
                changed = replace(changed, delay=None)
        if changed.concurrency is not None and changed.concurrency_key is None:
            raise InvalidOption("concurrency needs a concurrency_key to count by")
        if changed.concurrency_key is not None and changed.single_instance:
            raise InvalidOption(
                "single_instance and concurrency_key exclude each other; "
                "a concurrency_key with concurrency=1 is a single instance"
            )
        return changed


def _checked(name: str, value: Any) -> Any:
    check = _CHECKS.get(name)
    if check is None:
        near = difflib.get_close_matches(name, _CHECKS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(_CHECKS)}"
        raise UnknownOption(f"unknown option {name!r}{hint}")
    return check(name, value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    option.name: option.metadata["check"] for option in fields(Options)
}


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """One unit of work, ready to be enqueued any number of times."""

    handler: str
    payload: Any = None
    options: Options = Options()


# The options of jobs, as type checkers see them.


class RunOptions(TypedDict, total=False):
    """Options of a run that jobs, Django's tasks and schedules share."""

    max_retries: int | None
    retry: str | Sequence[float] | Mapping[str, Any] | None
    timeout: float | timedelta | None
    single_instance: bool | str | None
    concurrency_key: str | None
    concurrency: int | None
    atomic: bool | None
    result_ttl: float | timedelta | None
    max_crashes: int | None
    tenant: None  # not supported yet
    meta: Mapping[str, Any] | None


class QueueOptions(TypedDict, total=False):
    """Options of where a job waits; Tasks have their own names for them."""

    queue: str | None
    backend: str | None
    priority: int


class SharedOptions(RunOptions, total=False):
    """The options that jobs and Django's tasks have in common."""

    expires: float | timedelta | datetime | None
    idempotency_key: str | None
    unique_key: str | None
    on_conflict: Literal["return", "raise", "replace"]
    trace_id: str | None


class JobOptions(SharedOptions, QueueOptions, total=False):
    """The options of ``@job`` and ``using()``."""

    name: str | None
    delay: float | timedelta | None
    run_at: datetime | timedelta | None


class Reactions(TypedDict, total=False):
    """Options that belong to the code and not to a job: see ``Conduct``."""

    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    discard_on: type[BaseException] | tuple[type[BaseException], ...]


# Names of queues: the rule for ours, and how names of Django's Tasks are mapped to it.

QUEUE_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_ESCAPED_QUEUE = "tq--"
_AS_IT_IS = frozenset(ascii_lowercase + digits + "-")
_ESCAPE = re.compile(r"_(.)|\.([0-9a-f]+)\.")


@lru_cache(maxsize=1024)
def queue_of_tasks(name: str) -> str:
    """The queue of jobs for a queue of Django's Tasks, which may have any name.

    A name that is valid here stays as it is. Any other is prefixed with ``tq--`` and escaped: a
    capital letter as ``_a``, a blank as ``_-``, ``_`` as ``__``, and any other character as its
    code in hexadecimal digits between dots.
    """
    if QUEUE_NAME.fullmatch(name) and name_among_tasks(name) == name:
        return name
    return _ESCAPED_QUEUE + "".join(map(_escaped_character, name))


def _escaped_character(character: str) -> str:
    if character in _AS_IT_IS:
        return character
    if character in ascii_uppercase or character == "_":
        return f"_{character.lower()}"
    return "_-" if character == " " else f".{ord(character):x}."


def name_among_tasks(queue: str) -> str:
    """The name of a queue of jobs in Django's Tasks, the inverse of ``queue_of_tasks``."""
    if not queue.startswith(_ESCAPED_QUEUE):
        return queue
    escaped = queue.removeprefix(_ESCAPED_QUEUE)
    try:
        name = _ESCAPE.sub(_unescaped, escaped)
    except (ValueError, OverflowError):  # not the code of a character
        return queue
    return name if queue_of_tasks(name) == queue else queue


def _unescaped(match: re.Match[str]) -> str:
    letter, code = match.groups()
    if letter is None:
        return chr(int(code, 16))
    return " " if letter == "-" else str(letter.upper())


def queue_name_problem(name: object) -> str | None:
    """Why something cannot name a queue, or None."""
    if isinstance(name, str) and QUEUE_NAME.fullmatch(name):
        return None
    return (
        f"{_shown(name)} is no queue name; use 1 to 64 lower-case letters, digits, "
        f"'_', '.' and '-', beginning with a letter or digit{_queue_name_hint(name)}"
    )


def _queue_name_hint(name: object) -> str:
    if not isinstance(name, str):
        return ""
    if QUEUE_NAME.fullmatch(name[:64]):
        return f" (this one has {len(name)} characters)"
    escaped = queue_of_tasks(name)
    if not QUEUE_NAME.fullmatch(escaped) or name == escaped:
        return ""
    return f" (the queue of that name of Django's Tasks is {escaped!r})"
