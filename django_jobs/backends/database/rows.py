"""From rows to the value objects of the contract, without queries."""

from __future__ import annotations

from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django_jobs.backends.base import Glimpse, Lease
from django_jobs.models import JobState
from django_jobs.wire.envelope import Header, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

INDEX_FIELDS = (
    "id",
    "backend",
    "queue",
    "handler",
    "name",
    "rank",
    "unique_key",
    "concurrency_key",
    "concurrency",
    "idempotency_key",
    "tenant",
    "expires",
    "trace_id",
    "replay_of",
)
"""The columns that must agree with the signed body."""

ROW_FIELDS = (
    *INDEX_FIELDS,
    "body",
    "signature",
    "key_id",
    "attempts",
    "deliveries",
    "crashes",
    "due",
    "put_off_since",
    "suspect",
    "created_at",
    "cancel_requested",
    "state",
    "lease_expires",
)
"""The columns that are read of a job: for its index, its message, its lease, and the rest."""

_INDEX_SIZE = len(INDEX_FIELDS)
_MESSAGE_SIZE = ROW_FIELDS.index("suspect")
_LEASE_SIZE = ROW_FIELDS.index("state")
# SQLite stores any type in any column.
_MESSAGE_KINDS = {(str, str, str, int, int, int, int, kind) for kind in (int, NoneType)}
_TEXTS = frozenset({"backend", "queue", "handler", "name"})
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(INDEX_FIELDS, (str, NoneType)),
    **dict.fromkeys(_TEXTS, (str,)),
    **dict.fromkeys(("concurrency", "expires"), (int, NoneType)),
    "rank": (int,),
    "replay_of": (UUID, str, NoneType),
}


def _message(row: Sequence[Any], extra_deliveries: int = 0) -> Message:
    """The message of a row; raises ValueError for values that cannot be used."""
    index = _index(row[1:_INDEX_SIZE])
    columns = row[_INDEX_SIZE:_MESSAGE_SIZE]
    if tuple(map(type, columns)) not in _MESSAGE_KINDS:
        raise ValueError("its body, its signature or a counter is of another kind")
    body, signature, key_id, attempts, deliveries, crashes, due, put_off_since = columns
    header = Header(attempts, deliveries + extra_deliveries, crashes, due, put_off_since)
    return Message(body, signature, key_id, header.bounded(), index, str(row[0]))


@lru_cache(maxsize=256)
def _index(columns: Sequence[Any]) -> dict[str, Any]:
    """The index columns without the id. Jobs with equal columns share one dict: it is written
    only once into each frame to a child.
    """
    index = dict(zip(INDEX_FIELDS[1:], columns, strict=True))
    for name, value in index.items():
        if type(value) not in _KINDS[name]:
            raise ValueError(f"{name} is of the kind {type(value).__name__}")
    if index["concurrency"] is not None and index["concurrency"] < 1:
        raise ValueError(f"concurrency is {index['concurrency']}: it would never have a place")
    if index["replay_of"] is not None:
        index["replay_of"] = str(index["replay_of"])
    return index


def lease_of(
    row: Sequence[Any],
    *,
    token: str,
    expires_at: int,
    extra_deliveries: int = 1,
    handle: str | None = None,
) -> Lease:
    """The lease of a row; ``extra_deliveries`` is 1 where it was read before it was claimed."""
    message = _message(row, extra_deliveries)
    suspect, created_at, cancelled = row[_MESSAGE_SIZE:_LEASE_SIZE]
    return Lease(
        message.id or "",
        message.index["queue"],
        token,
        expires_at,
        message,
        bool(suspect),
        created_at,
        handle,
        cancelled=bool(cancelled),
    )


def glimpse_of(row: Sequence[Any]) -> Glimpse:
    """A glimpse of a row, without leasing it."""
    message = _message(row)
    suspect, created_at, _, state, lease_expires = row[_MESSAGE_SIZE:]
    return Glimpse(
        id=message.id or "",
        queue=message.index["queue"],
        state=JobState.label_of(state),
        due=message.header.available_at,
        message=message,
        lease_expires=lease_expires if type(lease_expires) is int else None,
        extra={"suspect": bool(suspect), "created_at": created_at},
    )
