"""Names of queues: the rule for ours, and how names of Django's Tasks are mapped to it."""

from __future__ import annotations

import re
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits

from django_jobs.texts import shortened

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
    return _ESCAPED_QUEUE + "".join(map(_escaped, name))


def _escaped(character: str) -> str:
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
        f"'_', '.' and '-', beginning with a letter or digit{_more(name)}"
    )


def _more(name: object) -> str:
    if not isinstance(name, str):
        return ""
    if QUEUE_NAME.fullmatch(name[:64]):
        return f" (this one has {len(name)} characters)"
    escaped = queue_of_tasks(name)
    if not QUEUE_NAME.fullmatch(escaped) or name == escaped:
        return ""
    return f" (the queue of that name of Django's Tasks is {escaped!r})"


def _shown(value: object) -> str:
    try:
        return shortened(repr(value))
    except Exception:  # noqa: BLE001 - a value too odd to be printed must not hide the message
        return f"a {type(value).__name__}"
