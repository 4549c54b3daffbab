"""What jobs of the same terms have in common on their way to Redis: it is written once."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.clock import to_microseconds

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Outgoing, Terms

_line_of = json.JSONEncoder(separators=(",", ":")).encode
_head = struct.Struct(">Bdc3sB").pack
_LEAST = 2


class Shape(NamedTuple):
    """What messages of the same terms have in common, as it goes to the script."""

    terms: Terms
    key_id: str
    head: bytes
    tail: str

    def rest(self, outgoing: Outgoing) -> bytes:
        """What the script puts after flag and place."""
        return f"[{_line_of(outgoing.signature)},{self.tail}{outgoing.body}".encode()


def shape_of(terms: Terms, key_id: str) -> Shape:
    """The common part of messages on their way to the store."""
    unique, lock, once = terms.unique, terms.lock, terms.once
    told: list[Any] = [
        key_id,
        terms.job,
        terms.name,
        unique,
        lock,
        terms.places,
        once,
        terms.tenant,
        terms.expires_at,
        terms.trace_id,
        terms.replay_of,
    ]
    while len(told) > _LEAST and told[-1] is None:
        told.pop()
    flag = b"k" if unique or lock or once else b"-"
    rank, digest = f"{100 - terms.priority:03d}", (unique or "").encode()
    due = to_microseconds(terms.delay or 0) if terms.schedule is None else terms.schedule
    head = _head(terms.schedule is None, due, flag, rank.encode(), len(digest)) + digest
    return Shape(terms, key_id, head, _line_of(told)[1:] + "\n")
