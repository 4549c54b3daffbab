"""PostgreSQL arrays as the text of one parameter, which costs a fraction of an adapted list."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def plain_array(items: Iterable[str]) -> str:
    """Items that need no quotes: ids, hex, numbers, NULL."""
    return "{" + ",".join(items) + "}"


def quoted_array(items: Iterable[str]) -> str:
    """Any texts that a text column takes; raises ValueError for one with a NUL."""
    texts = list(items)
    if not texts:
        return "{}"
    joined = "\x00".join(texts)
    if joined.count("\x00") != len(texts) - 1:
        raise ValueError("a text holds a NUL character, which PostgreSQL cannot store")
    escaped = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\x00", '","')
    return '{"' + escaped + '"}'
