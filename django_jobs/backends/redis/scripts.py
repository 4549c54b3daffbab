"""The scripts, read once. Their text is constant: values come as KEYS and ARGV alone."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from typing import NamedTuple

_LUA = resources.files(__package__) / "lua"

# A store that is full refuses what makes it fuller, and nothing else: who runs jobs makes room.
_GROWING = {"enqueue", "enkeyed"}
# These may also be sent as they are refused by a full server: then they come again with less.
_RECORDING = ("ack", "nack", "abandon")
_SHARED = ("shared", "endings", "limits", "runs")
_NAMES = (
    "abandon",
    "ack",
    "breaker",
    "cancel",
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
    "tidy",
    "uncount",
    "unheard",
    "unheld",
    "unpark",
    "untidyqueues",
)


_DEFINES = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")


class Script(NamedTuple):
    """The text of a script, and the digest that Redis knows it by."""

    text: str
    sha: str


class Part(NamedTuple):
    """One definition that scripts share, and the names that it defines."""

    text: str
    names: frozenset[str]


def _parts() -> list[Part]:
    """The shared definitions in their order, of which each uses only earlier ones."""
    texts = [(_LUA / f"{name}.lua").read_text(encoding="utf-8") for name in _SHARED]
    found = []
    for part in re.split(r"\n\n+", "\n\n".join(texts)):
        names = (name for told in _DEFINES.findall(part) for name in told.split(", "))
        found.append(Part(part, frozenset(names)))
    return found


def _needed(own: str, parts: list[Part]) -> str:
    """Those of the parts that a script uses, directly or not.

    Redis runs the whole text at every call, and making the functions that a script never
    calls costs a short one as much as what it does.
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
    """The name of the same script as a full server refuses it, with nothing done."""
    return f"{name}-unless-full"


def _read(name: str, *, grows: bool) -> Script:
    own = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    flags = "" if grows else " flags=allow-oom"
    text = f"#!lua{flags}\n{_needed(own, _PARTS)}\n{own}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_PARTS = _parts()
SCRIPTS = {name: _read(name, grows=name in _GROWING) for name in _NAMES}
SCRIPTS |= {unless_full(name): _read(name, grows=True) for name in _RECORDING}
