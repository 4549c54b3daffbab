"""The Lua scripts, read once. Their text is constant: all values come as KEYS and ARGV."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from typing import NamedTuple

_LUA = resources.files(__package__) / "lua"

# A full server refuses only scripts that store more: running jobs makes room.
_GROWING = {"enqueue", "enkeyed"}
# These also exist in a form that a full server refuses; they are then sent again with less.
_RECORDING = ("ack", "nack", "abandon")
_SHARED = ("shared", "endings", "limits", "runs")
_NAMES = (
    "abandon",
    "ack",
    "breaker",
    "cancel",
    "cleanup",
    "cleanupqueues",
    "duequeues",
    "ended",
    "enkeyed",
    "enqueue",
    "fetch",
    "find",
    "giveback",
    "held",
    "kept",
    "leased",
    "look",
    "lostqueues",
    "nack",
    "peek",
    "purge",
    "putoff",
    "putoffnext",
    "reap",
    "renew",
    "stats",
    "stop",
    "takeback",
    "unanswered",
    "uncount",
    "unheld",
    "unpark",
)

_DEFINES = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")


class Script(NamedTuple):
    """The text of a script, and the digest under which Redis caches it."""

    text: str
    sha: str


class Part(NamedTuple):
    """A definition shared by scripts, and the names it defines."""

    text: str
    names: frozenset[str]


def _parts() -> list[Part]:
    """The shared definitions in order; each uses only earlier ones."""
    texts = [(_LUA / f"{name}.lua").read_text(encoding="utf-8") for name in _SHARED]
    parts = []
    for part in re.split(r"\n\n+", "\n\n".join(texts)):
        names = (name for definition in _DEFINES.findall(part) for name in definition.split(", "))
        parts.append(Part(part, frozenset(names)))
    return parts


def _needed(own: str, parts: list[Part]) -> str:
    """The parts that a script uses, directly or not.

    Redis runs the whole text at every call. For a short script, defining functions that it
    never calls would cost as much as its own work.
    """
    used = _words(own)
    taken: list[str] = []
    for part in reversed(parts):
        if part.names & used:
            used |= _words(part.text)
            taken.append(part.text)
    return "\n".join(reversed(taken))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", _COMMENT.sub("", text)))


def unless_full(name: str) -> str:
    """The name of a script's variant that a full server refuses before it does anything."""
    return f"{name}-unless-full"


def _read(name: str, *, grows: bool) -> Script:
    own = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    flags = "" if grows else " flags=allow-oom"
    text = f"#!lua{flags}\n{_needed(own, _PARTS)}\n{own}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_PARTS = _parts()
SCRIPTS = {name: _read(name, grows=name in _GROWING) for name in _NAMES}
SCRIPTS |= {unless_full(name): _read(name, grows=True) for name in _RECORDING}
