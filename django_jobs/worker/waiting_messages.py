"""Checks the waiting messages that this process would refuse, without leasing or running any.

Wrong keys, another SITE or missing code show only when a message is opened. So a worker opens the
first ones when it starts, and ``jobs_preflight`` does so on demand.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from django.db import Error

from django_jobs.backends.base import can_peek
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Backend
    from django_jobs.worker.admission import Gatekeeper

PER_QUEUE_AT_START = 20
QUEUES_AT_MOST = 50
CAUSES_AT_MOST = 10
SECONDS_AT_MOST = 2.0

WAYS_OUT = {
    "unknown-key": "Web and worker have different keys: give them the same SIGNING_KEYS (or "
    "JOBS_SIGNING_KEY, or SECRET_KEY), and keep an old key listed until its jobs have run.",
    "other-site": "Set SITE to the same word for all processes of this installation; give another "
    "installation a database or broker of its own.",
    "unknown-handler": "Start workers with the code that has it, or cancel the jobs: "
    "jobs_list --handler.",
    "unknown-version": "Upgrade django_jobs here.",
    "rejected-signature": "Something changed them in the store, or signed them with another key of "
    "the same id. Look at who can write there.",
    "rejected-handler": "Allow the handler in HANDLERS of the queue, or cancel the jobs.",
    "rejected-too-large": "Raise MAX_PAYLOAD_BYTES here to what it is where they are enqueued.",
}
_ANY = "They will be dead letters with this reason: see the page on dead letters."


class Refusal(NamedTuple):
    """Messages that this process would refuse, for the same reason."""

    reason: str
    detail: str
    messages: int
    queues: tuple[str, ...]

    @property
    def way_out(self) -> str:
        return WAYS_OUT.get(self.reason, _ANY)


class Inspection(NamedTuple):
    """How many messages were opened, and the refusals, the most frequent first."""

    messages: int
    refusals: list[Refusal]


def look(
    backend: Backend,
    gatekeeper: Gatekeeper,
    queues: Sequence[str] | None,
    per_queue: int,
    seconds: float = float("inf"),
) -> Inspection:
    """Open the first messages of some queues, or of all if None, for up to ``seconds``."""
    if not can_peek(backend):
        return Inspection(0, [])
    until, seen = time.monotonic() + seconds, 0
    by_cause: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for queue in (backend.queues() if queues is None else queues)[:QUEUES_AT_MOST]:
        if time.monotonic() >= until:
            break
        for glimpse in backend.peek(queue, per_queue):
            seen += 1
            if refused := gatekeeper.foresee(glimpse.message, queue):
                # The detail of a rejection is about one message; others are the same for all.
                rejected = refused.reason.startswith("rejected-")
                cause = (refused.reason, "" if rejected else refused.detail)
                by_cause[cause].append((queue, refused.detail))
    refusals = [
        Refusal(reason, them[0][1], len(them), tuple(sorted({queue for queue, _ in them})))
        for (reason, _), them in by_cause.items()
    ]
    return Inspection(
        seen, sorted(refusals, key=lambda each: (-each.messages, each.reason, each.detail))
    )


def warn_at_start(backend: Backend, gatekeeper: Gatekeeper, queues: Sequence[str] | None) -> None:
    """Emit a warning for each cause. An error here does not keep a worker from starting."""
    try:
        inspection = look(backend, gatekeeper, queues, PER_QUEUE_AT_START, SECONDS_AT_MOST)
    except (Error, OSError):
        return  # the store does not answer: the worker reports that at its next call
    except Exception as error:  # noqa: BLE001 - a warning is not worth a worker
        events.emit(events.MessagesUnreadable(backend=backend.alias, error=error))
        return
    for refusal in inspection.refusals[:CAUSES_AT_MOST]:
        events.emit(
            events.MessagesRefused(
                backend=backend.alias,
                reason=refusal.reason,
                count=refusal.messages,
                looked_at=inspection.messages,
                queues=", ".join(refusal.queues),
                why=refusal.detail,
                way_out=refusal.way_out,
            )
        )
