"""What the built-in handlers may reach: the ALLOWED_… settings and SHELL, read and checked."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from django_jobs.conf import parsers as p
from django_jobs.conf.model import (
    ANY,
    Arguments,
    ShellConfig,
    compiled,
    shown,
)
from django_jobs.wire.envelope import MAX_COUNT

if TYPE_CHECKING:
    from django_jobs.conf.parsers import Parser, Place

LARGEST = 2**53


def commands(place: Place, value: object) -> Mapping[str, Arguments]:
    return _with_arguments(place, value, p.listed_name, "clearsessions")


def programs(place: Place, value: object) -> Mapping[str, Arguments]:
    return _with_arguments(place, value, program_path, "/usr/bin/pg_dump")


def events(place: Place, value: object) -> Mapping[str, str]:
    """Event name → dotted path of its signal; in a list the path is the name."""
    if isinstance(value, Mapping):
        return MappingProxyType(place.entries(value, p.listed_name, p.dotted_path))
    paths = p.several(p.dotted_path, "shop.signals.order_paid")(place, value)
    return MappingProxyType({path: path for path in paths})


def shell(place: Place, value: object) -> ShellConfig:
    return ShellConfig(**place.members(value, _SHELL))


def program_path(place: Place, value: object) -> str:
    """An absolute path without detours, so that it names one file and no other."""
    path = p.listed_name(place, value)
    if not path.startswith("/") or path.startswith("//") or posixpath.normpath(path) != path:
        raise place.refused(
            f"is {shown(value)}, not the plain absolute path of a program",
            'Give one such as "/usr/bin/pg_dump", without "..", "." or doubled slashes.',
        )
    return path


def _with_arguments(
    place: Place, value: object, name: Parser[str], example: str
) -> Mapping[str, Arguments]:
    if isinstance(value, Mapping):
        return MappingProxyType(place.entries(value, name, _arguments))
    names = p.several(name, example)(place, value)
    return MappingProxyType(dict.fromkeys(names, ANY))


def _arguments(place: Place, value: object) -> Arguments:
    if value is None:
        return ANY
    if not isinstance(value, list | tuple):
        raise place.refused(
            f"is {shown(value)}", "Give a list of lists of patterns, or None for any arguments."
        )
    forms: dict[str, tuple[str, ...]] = {}
    for index, form in enumerate(value):
        place.collect(forms, str(index), place.inside(index), form, _form)
    return Arguments(tuple(forms.values()))


def _form(place: Place, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise place.refused(
            f"is {shown(value)}, not a list of patterns",
            'Give one pattern for each argument, such as [["--format=(json|csv)", "[a-z]+"]].',
        )
    patterns: dict[str, str] = {}
    for index, pattern in enumerate(value):
        place.collect(patterns, str(index), place.inside(index), pattern, _pattern)
    # Without its wrong pattern the form would fit fewer arguments; let it fit none.
    return tuple(patterns.values()) if len(patterns) == len(value) else (NOTHING,) * len(value)


NOTHING = r"(?!)"


def _pattern(place: Place, value: object) -> str:
    hint = "Give a regular expression; the whole argument has to match it."
    if not isinstance(value, str):
        raise place.refused(f"is {shown(value)}, not a pattern", hint)
    try:
        compiled(value)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        raise place.refused(f"is {shown(value)}, no regular expression: {error}", hint) from None
    return value


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(place: Place, value: object) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise place.refused(
            f"is {shown(value)}, not the name of a variable", 'Give names such as "PGPASSFILE".'
        )
    return value


_limit = p.optional(p.whole(0, LARGEST))
_SHELL: Mapping[str, Parser[object]] = {
    "DIRECTORY": program_path,
    "PATH": p.several(program_path, "/usr/bin"),
    "ENVIRONMENT": p.several(_variable, "PGPASSFILE"),
    "CPU_SECONDS": p.optional(p.whole(1, MAX_COUNT)),
    "MEMORY_BYTES": _limit,
    "FILE_BYTES": _limit,
    "OPEN_FILES": p.optional(p.whole(8, MAX_COUNT)),
    "PROCESSES": p.optional(p.whole(1, MAX_COUNT)),
    "CORE_BYTES": _limit,
}
