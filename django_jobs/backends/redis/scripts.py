"""The scripts, read once. Their text is constant: values come as KEYS and ARGV alone."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import NamedTuple

_LUA = resources.files(__package__) / "lua"

# A store that is full refuses what makes it fuller, and nothing else: who runs jobs makes room.
_GROWING = {"enqueue"}
_NAMES = (
    "abandon",
    "ack",
    "breaker",
    "cancel",
    "enqueue",
    "fetch",
    "find",
    "held",
    "leased",
    "look",
    "nack",
    "peek",
    "putoff",
    "reap",
    "renew",
    "stats",
    "stop",
    "tidy",
    "unpark",
)


class Script(NamedTuple):
    """The text of a script, and the digest that Redis knows it by."""

    text: str
    sha: str


def _read(name: str) -> Script:
    own = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    shared = (_LUA / "shared.lua").read_text(encoding="utf-8")
    flags = "" if name in _GROWING else " flags=allow-oom"
    text = f"#!lua{flags}\n{shared}\n{own}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


SCRIPTS = {name: _read(name) for name in _NAMES}
