"""The options of a schedule, and checks of each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import time, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from django_jobs.conf.model import nearest, shown
from django_jobs.exceptions import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Sequence


When = Callable[[], Any] | str
"""The gate ``when``: a function without arguments, or the dotted path of one."""


class Origin(StrEnum):
    """Where a schedule was declared."""

    CODE = "code"
    SETTINGS = "settings"
    HOOK = "hook"
    ADMIN = "admin"


class Missed(StrEnum):
    """What becomes of ticks that passed while no scheduler ran.

    ``skip``: none of them runs. ``latest``: the last of them, once. ``all``: each of them, the
    oldest first, at most ``missed_limit`` of the latest.
    """

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while the job of an earlier one still waits or runs.

    ``allow``: its job is enqueued all the same. ``skip``: it is skipped. ``queue-one``: its job
    is enqueued to run after the earlier one, unless another one waits for that already.
    """

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue-one"


class Dependency(StrEnum):
    """What ``depends_on`` asks for.

    ``order``: in the same tick, their jobs are enqueued first. ``succeeded``: their runs of this
    tick must have ended well; if one failed, this tick is skipped.
    """

    ORDER = "order"
    SUCCEEDED = "succeeded"


class Daylight(StrEnum):
    """How an expression is read on days on which the clocks change.

    ``fixed``: a time that comes twice counts once, the first time; one that does not come at all
    counts at the first moment after the gap. ``interval``: whenever the clock on the wall shows
    the time, so twice or not at all. ``auto``: ``interval`` where the field of the hour, minute
    or second has a ``*`` or a step, or names every value there is; ``fixed`` otherwise.
    """

    AUTO = "auto"
    FIXED = "fixed"
    INTERVAL = "interval"


class Window(NamedTuple):
    """A part of the day, in the zone of its schedule: from ``start`` until before ``end``.

    A window whose end is not after its start goes over midnight.
    """

    start: time
    end: time

    def holds(self, moment: time) -> bool:
        """True while the window is open."""
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end

    def __str__(self) -> str:
        return f"{_shown(self.start)}-{_shown(self.end)}"


def _shown(moment: time) -> str:
    return moment.isoformat("seconds" if moment.second else "minutes")


# Checking options.


LONGEST_NAME = 255
MOST_MISSED = 10_000

WindowSpec = str | tuple[str | time, str | time] | Window


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule, apart from its expression and the options of its jobs."""

    timezone: str | None
    description: str
    enabled: bool
    environments: str | Sequence[str]
    between: WindowSpec | Sequence[WindowSpec]
    unless_between: WindowSpec | Sequence[WindowSpec]
    when: When | None
    depends_on: str | Sequence[str]
    dependency: str
    missed: str
    missed_limit: int
    deadline: float | timedelta | None
    overlap: str
    daylight: str
    jitter: float | timedelta


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Schedule for these options; raises InvalidOption."""
    fields = {}
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidOption(f"unknown option {name!r} of a schedule{nearest(name, _CHECKS)}")
        fields[name] = check(name, value)
    return fields


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a schedule, checked, and the remaining ones, for its jobs."""
    own = {name: value for name, value in options.items() if name in _CHECKS}
    return checked(own), {name: value for name, value in options.items() if name not in own}


def checked_name(value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable():
        return value
    raise InvalidOption(
        f"the name of a schedule is {shown(value)}; "
        f"it is a text of 1 to {LONGEST_NAME} printable characters"
    )


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise InvalidOption(f"{name} is {shown(value)}; give a text")


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidOption(f"{name} is {shown(value)}; give True or False")


def _texts(name: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Iterable):
        raise InvalidOption(f"{name} is {shown(value)}; give a text or a list of texts")
    return tuple(dict.fromkeys(_text(name, text) for text in values))


def _choice(kind: type[StrEnum]) -> Callable[[str, Any], StrEnum]:
    def check(name: str, value: Any) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            choices = ", ".join(repr(member.value) for member in kind)
            raise InvalidOption(f"{name} is {shown(value)}; give one of {choices}") from None

    return check


def _seconds(name: str, value: Any) -> float:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise InvalidOption(f"{name} is {shown(value)}; give a number of seconds or a timedelta")
    return float(number)


def _limit(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_MISSED:
        raise InvalidOption(f"{name} is {shown(value)}; give a number from 1 to {MOST_MISSED:,}")
    return value


def _when(name: str, value: Any) -> Any:
    if callable(value) or (isinstance(value, str) and "." in value):
        return value
    raise InvalidOption(f"{name} is {shown(value)}; give a function or the dotted path of one")


def _windows(name: str, value: Any) -> tuple[Window, ...]:
    if isinstance(value, str | Window):
        return (_window(name, value),)
    if isinstance(value, tuple) and len(value) == 2 and _is_time(value[0]) and _is_time(value[1]):  # noqa: PLR2004 - start and end
        return (_window(name, value),)
    if not isinstance(value, Iterable):
        raise InvalidOption(_WINDOW.format(name, shown(value)))
    return tuple(_window(name, window) for window in value)


_WINDOW = "{} is {}; give a pair of times such as ('08:00', '18:30'), or a list of pairs"


def _is_time(value: Any) -> bool:
    return isinstance(value, time) or (isinstance(value, str) and "-" not in value)


def _window(name: str, value: Any) -> Window:
    if isinstance(value, Window):
        return value
    bounds = value.split("-") if isinstance(value, str) else value
    try:
        start, end = (_time(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise InvalidOption(_WINDOW.format(name, shown(value))) from None
    if start == end:
        raise InvalidOption(f"{name} is {shown(value)}, which begins when it ends")
    return Window(start, end)


def _time(value: Any) -> time:
    if isinstance(value, time):
        return value.replace(tzinfo=None)
    text = value.strip()
    # Midnight at the end of a day; as a bound it equals midnight at its beginning.
    return time() if text in {"24:00", "24:00:00"} else time.fromisoformat(text)


def _or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "timezone": _or_none(_text),
    "description": _text,
    "enabled": _flag,
    "environments": _texts,
    "between": _windows,
    "unless_between": _windows,
    "when": _or_none(_when),
    "depends_on": _texts,
    "dependency": _choice(Dependency),
    "missed": _choice(Missed),
    "missed_limit": _limit,
    "deadline": _or_none(_seconds),
    "overlap": _choice(Overlap),
    "daylight": _choice(Daylight),
    "jitter": _seconds,
}
