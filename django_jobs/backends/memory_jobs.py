"""The jobs of the memory backend, and when the keys of one let it run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.wire.envelope import Header, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends import base

SCHEDULED, READY, RUNNING = "scheduled", "ready", "running"


class Dead(NamedTuple):
    """A dead letter: the message as it was when it was given up, and why."""

    message: Message
    failure: base.Failure


@dataclass(slots=True)
class Job:
    """A live job: an unalterable body, the columns beside it, and where it stands."""

    body: str
    signature: str
    key_id: str
    index: dict[str, Any]
    due: int
    state: str = READY
    put_off_since: int | None = None
    attempts: int = 0
    deliveries: int = 0
    crashes: int = 0
    suspect: bool = False
    token: str | None = None
    expires_at: int | None = None
    reaped_token: str | None = None
    reap_charged: bool = False
    fence: int | None = None
    done_by: str = ""

    @property
    def id(self) -> str:
        return str(self.index["id"])

    @property
    def queue(self) -> str:
        return str(self.index["queue"])

    def message(self) -> Message:
        counters = self.attempts, self.deliveries, self.crashes
        header = Header(*counters, self.due, self.put_off_since).bounded()
        return Message(self.body, self.signature, self.key_id, header, dict(self.index))


def has_place(job: Job, company: Sequence[Job]) -> bool:
    """Whether the keys of a job let it run beside others. What was done needs no place."""
    if job.done_by:
        return True
    holders = [other for other in company if not other.done_by]
    lock, once = job.index["concurrency_key"], job.index["idempotency_key"]
    taken = sum(other.index["concurrency_key"] == lock for other in holders)
    if lock is not None and taken >= job.index["concurrency"]:
        return False
    return once is None or all(other.index["idempotency_key"] != once for other in holders)
