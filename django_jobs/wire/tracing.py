"""The trace context in a body: the enqueue that a run belongs to, in the form of the W3C."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Envelope

TRACE_PARENT = "traceParent"
_FORM = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def parent_of(envelope: Envelope) -> str | None:
    """The parent that a body names; one that is none is left alone, for it decides nothing."""
    told = envelope.unknown.get(TRACE_PARENT)
    return told if isinstance(told, str) and _FORM.fullmatch(told) else None


def trace_of(envelope: Envelope) -> str | None:
    """The trace that the enqueue was part of."""
    parent = parent_of(envelope)
    return parent[3:35] if parent else None
