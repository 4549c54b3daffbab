"""Parsers, one per kind of value. Each returns the value or raises Refused.

A parser does not see the other settings, and puts nothing into a message that may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from django_jobs.conf.model import UnknownHandlerPolicy, nearest, shown
from django_jobs.retry import RetrySpec, normalised
from django_jobs.wire.envelope import MAX_SECONDS

T = TypeVar("T")
Parser = Callable[["Place", Any], T]


class ProblemKind(StrEnum):
    """The kinds of problems, with the ids of their system checks."""

    UNKNOWN_KEY = "django_jobs.E001"
    INVALID_VALUE = "django_jobs.E002"
    UNKNOWN_BACKEND = "django_jobs.E005"
    QUEUE_NAME = "django_jobs.E006"
    DUPLICATE_KEY = "django_jobs.E011"
    NO_KEY = "django_jobs.E012"
    SCHEDULE = "django_jobs.E040"
    SCHEDULE_EXPRESSION = "django_jobs.E041"
    SCHEDULE_ZONE = "django_jobs.E042"
    SCHEDULE_ORDER = "django_jobs.E043"
    SCHEDULE_JOB = "django_jobs.E044"


class Problem(NamedTuple):
    """A problem with a setting or a schedule, and how to solve it."""

    subject: str
    """The path of the setting, or the name of the schedule."""
    message: str
    hint: str
    kind: ProblemKind = ProblemKind.INVALID_VALUE

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}"


class SettingRefused(Exception):
    """Carries the problem from a parser to the caller that collects."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Place:
    """The path of a value in the settings, and the list that collects its problems."""

    path: str = ""
    problems: list[Problem] = field(default_factory=list)

    def inside(self, key: object) -> Place:
        path = f"{self.path}[{shown(key)}]" if self.path else str(key)
        return Place(path, self.problems)

    def refused(
        self, what: str, hint: str, kind: ProblemKind = ProblemKind.INVALID_VALUE
    ) -> SettingRefused:
        """The refusal of the value at this place; ``what`` continues "SETTING …"."""
        return SettingRefused(Problem(self.path, f"{self.path} {what}", hint, kind))

    def members(self, raw: object, parsers: Mapping[str, Parser[Any]]) -> dict[str, Any]:
        """The values of known keys, by key in lower case; other keys become problems."""
        values: dict[str, Any] = {}
        for key, value in mapping(self, raw).items():
            parse = parsers.get(key)
            if parse is None:
                self._unknown(key, parsers)
            else:
                self.collect(values, key.lower(), self.inside(key), value, parse)
        return values

    def entries(self, raw: object, key_of: Parser[str], parse: Parser[T]) -> dict[str, T]:
        """The entries of a dict whose keys the user chooses; problems are collected."""
        values: dict[str, T] = {}
        for key, value in mapping(self, raw).items():
            place = self.inside(key)
            try:
                name = key_of(place, key)
            except SettingRefused as refusal:
                self.problems.append(refusal.problem)
            else:
                self.collect(values, name, place, value, parse)
        return values

    def collect(
        self, values: dict[str, T], key: str, place: Place, value: object, parse: Parser[T]
    ) -> None:
        try:
            values[key] = parse(place, value)
        except SettingRefused as refusal:
            self.problems.append(refusal.problem)

    def _unknown(self, key: object, keys: Mapping[str, object]) -> None:
        where = self.path or "DJANGO_JOBS"
        self.problems.append(
            Problem(
                self.inside(key).path,
                f"{where} has the unknown key {shown(key)}{nearest(key, keys)}",
                "Correct the name or remove the key.",
                ProblemKind.UNKNOWN_KEY,
            )
        )


def mapping(place: Place, value: object) -> Mapping[Any, Any]:
    # The content is not shown: options and keys of a backend may be secrets.
    if not isinstance(value, Mapping):
        where = "" if place.path else "DJANGO_JOBS "
        raise place.refused(f"{where}is a {type(value).__name__}, not a dict", "Give a dict.")
    return value


def flag(place: Place, value: object) -> bool:
    if not isinstance(value, bool):
        raise place.refused(f"is {shown(value)}", "Give True or False.")
    return value


def flag_or_alias(place: Place, value: object) -> bool | str:
    """Yes, no, or yes in the database of this alias."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise place.refused(f"is {shown(value)}", "Give True, False or an alias of DATABASES.")
    return value


def whole(low: int, high: int) -> Parser[int]:
    def parse(place: Place, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            hint = f"Give a whole number from {low} to {high}."
            raise place.refused(f"is {shown(value)}", hint)
        return value

    return parse


def seconds(place: Place, value: object) -> float:
    """A length of time, zero or more."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise place.refused(f"is {shown(value)}", "Give a number of seconds or a timedelta.")
    if not 0 <= number <= MAX_SECONDS:
        raise place.refused(f"is {shown(value)}", "Give a time between 0 and 100 years.")
    return float(number)


def some_seconds(place: Place, value: object) -> float:
    """A length of time, more than zero."""
    number = seconds(place, value)
    if number == 0:
        raise place.refused("is 0", "Give a number of seconds above 0 or a timedelta.")
    return number


def optional(parse: Parser[T]) -> Parser[T | None]:
    return lambda place, value: None if value is None else parse(place, value)


def text(limit: int = 255) -> Parser[str]:
    def parse(place: Place, value: object) -> str:
        if isinstance(value, str) and 0 < len(value) <= limit and value.isprintable():
            return value
        hint = f"Give a text of 1 to {limit} characters, none of them a control character."
        raise place.refused(f"is {shown(value)}", hint)

    return parse


SHORTEST_TOKEN = 20


def token(place: Place, value: object) -> str:
    """A secret that clients send; never part of a message."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise place.refused("is no text of printable ASCII characters", _MAKE_TOKEN)
    if len(value) < SHORTEST_TOKEN or " " in value:
        raise place.refused(
            f"is shorter than {SHORTEST_TOKEN} characters or has a space", _MAKE_TOKEN
        )
    return value


_MAKE_TOKEN = "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"  # noqa: S105 - advice, no secret


def dotted_path(place: Place, value: object) -> str:
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):  # noqa: PLR2004 - module and name
        raise place.refused(
            f"is {shown(value)}, not a dotted path", 'Give one such as "shop.jobs.send_mail".'
        )
    return str(value)


def module_name(place: Place, value: object) -> str:
    if not isinstance(value, str) or not all(part.isidentifier() for part in value.split(".")):
        raise place.refused(f"is {shown(value)}, not a module", 'Give one such as "shop.tasks".')
    return value


def listed_name(place: Place, value: object) -> str:
    """An entry of an allow-list: a literal name, never a pattern."""
    name = text()(place, value)
    if "*" in name:
        hint = "Allow-lists know no wildcards: name each entry in full."
        raise place.refused(f"is {shown(value)}", hint)
    return name


def word_of_keys(place: Place, value: object) -> str:
    """A word to look for in keys of payloads; not a pattern."""
    if isinstance(value, str) and re.fullmatch(r"[^\W_][\w-]{0,63}", value):
        return value
    raise place.refused(
        f"is {shown(value)}, which is no word of a key",
        'Give up to 64 letters, digits, "_" and "-", such as "iban" or "card_number".',
    )


def url(place: Place, value: object) -> str:
    """The URL of an entry of ALLOWED_URLS; it is not interpreted here."""
    address = text(2048)(place, value) if isinstance(value, str) else ""
    # A password in a URL is a secret, so a URL that has one is not shown.
    if "@" in address:
        raise place.refused("holds an '@'", "Write the address without 'user:password@'.")
    if "://" not in address:
        raise place.refused(
            f"is {shown(value)}, not a url",
            'Give one such as "https://host/path/*", or a dict with such a "URL".',
        )
    return address


def several(parse: Parser[T], example: str) -> Parser[tuple[T, ...]]:
    """A list, tuple or set. A bare string is refused: its brackets were forgotten."""

    def parse_all(place: Place, value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple | set | frozenset):
            raise place.refused(
                f"is {shown(value)}, not a list", f"Give a list, such as [{example!r}]."
            )
        items = value if isinstance(value, list | tuple) else sorted(value, key=str)
        parsed: dict[str, T] = {}
        for index, item in enumerate(items):
            place.collect(parsed, str(index), place.inside(index), item, parse)
        return tuple(parsed.values())

    return parse_all


def retry(place: Place, value: Any) -> RetrySpec:
    try:
        return normalised(value)
    except ValueError as error:
        raise place.refused(
            f"is {shown(value)}, which means nothing: {error}",
            'Give "none", "fixed", "exponential", a list of seconds, a dict with a STRATEGY, '
            "or the dotted path of your own policy.",
        ) from error


_RATE = re.compile(r"[1-9][0-9]{0,8}/[smhd]")


def rate(place: Place, value: object) -> str:
    if not isinstance(value, str) or not _RATE.fullmatch(value):
        raise place.refused(
            f"is {shown(value)}, not a rate",
            'Give a number and a unit (s, m, h or d), such as "60/m" for 60 jobs a minute.',
        )
    return value


def unknown_handler(place: Place, value: object) -> UnknownHandlerPolicy:
    for policy in UnknownHandlerPolicy:
        if value == policy.value:
            return policy
    policies = ", ".join(repr(policy.value) for policy in UnknownHandlerPolicy)
    raise place.refused(f"is {shown(value)}", f"Give one of {policies}.")
