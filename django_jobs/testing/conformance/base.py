"""The hooks that a backend's author implements, and the helpers of the suite's tests."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django_jobs.backends.base import Cancels, Inspects, KeepsBreakers, OnConflict, Settled
from django_jobs.clock import to_microseconds
from django_jobs.testing.factories import make_outgoing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from unittest import TestCase

    from django_jobs.backends.base import AttemptRecord, Backend, Lease, ResultRecord
    from django_jobs.wire.envelope import Outgoing

    _Base = TestCase
else:
    # The suite holds test methods; only its user decides which TestCase they run in.
    _Base = object

T = TypeVar("T")
S = TypeVar("S", bound="Suite")
MICROSECOND = 0.000001
QUEUE = "conformance"


def needing(capability: str) -> Callable[[type[S]], type[S]]:
    """Every test of a class is about this capability, and skipped without it."""

    def guard(test: Callable[[S], None]) -> Callable[[S], None]:
        @functools.wraps(test)
        def guarded(self: S) -> None:
            self.needs(capability)
            test(self)

        return guarded

    def decorate(part: type[S]) -> type[S]:
        # Not in setUp, which would then hold for all the parts that are mixed together.
        for name, member in tuple(vars(part).items()):
            if name.startswith("test_"):
                setattr(part, name, guard(member))
        return part

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter as the suite reads it back, wherever the backend keeps it."""

    job_id: str
    queue: str
    body: str
    signature: str
    key_id: str
    reason: str
    attempts: int
    crashes: int
    error_type: str = ""
    error_message: str = ""


class Whole(Inspects, Cancels, KeepsBreakers):
    """The backend interface that tests may use after ``needs``."""


class Suite(_Base):
    """The hooks, and the helpers that all parts of the suite share."""

    backend: Whole
    lease_seconds = 30.0

    # -- hooks: to be written ------------------------------------------------------------

    def make_backend(self) -> Backend:
        """The backend under test, with an empty store."""
        raise NotImplementedError

    def dead_letter(self, job_id: str) -> DeadLetter | None:
        """The dead letter of a job, or None."""
        raise NotImplementedError

    def attempts_of(self, job_id: str) -> Sequence[AttemptRecord]:
        """The attempts kept for a job, oldest first."""
        raise NotImplementedError

    def result_of(self, job_id: str) -> ResultRecord | None:
        """The result kept for a job, or None. Asked only of backends that keep results."""
        raise NotImplementedError

    # -- optional hooks, where the store allows them -----------------------------------

    def advance(self, seconds: float) -> None:
        """Move the store's clock on by exactly this much; otherwise it must stand still."""
        self.skipTest(f"the clock of this store cannot be moved (by {seconds} s)")

    def tamper(self, job_id: str, **columns: Any) -> None:
        """Change what is stored of a waiting job, behind the backend's back.

        The names are those of Message (``body``, ``signature``), ``due``, the names of
        ``index_of``, and, apart from all others, ``put_off_since`` or the counters of Header.
        """
        self.skipTest(f"this store is not altered by hand ({', '.join(columns)} of {job_id})")

    def rolled_back(self) -> AbstractContextManager[None]:
        """A transaction on the store's database that ends in a rollback."""
        self.skipTest("this backend has no transaction to roll back")

    def now(self) -> int:
        """The store's now. Without a hook, it is read off a lease."""
        self.backend.enqueue([self.outgoing(queue="conformance-now")])
        leases = self.backend.fetch(["conformance-now"], 1, self.lease_seconds)
        self.backend.ack(leases)
        return leases[0].expires_at - to_microseconds(self.lease_seconds)

    # -- helpers of the tests ----------------------------------------------------------

    def setUp(self) -> None:
        super().setUp()
        self.backend = cast("Whole", self.make_backend())

    def needs(self, capability: str) -> None:
        """Skip unless the backend claims a capability."""
        if not getattr(self.backend.capabilities, capability):
            self.skipTest(f"{type(self.backend).__name__} does not claim {capability}")

    def outgoing(self, queue: str = QUEUE, **terms: Any) -> Outgoing:
        return make_outgoing(queue, backend=self.backend.alias, **terms)

    def put(
        self, queue: str = QUEUE, *, on_conflict: OnConflict = OnConflict.RETURN, **terms: Any
    ) -> str:
        """Enqueue one job and return the id of the job that is then there."""
        stored = self.backend.enqueue([self.outgoing(queue, **terms)], on_conflict=on_conflict)
        return stored[0].id

    def fetch(self, limit: int = 1, *queues: str) -> list[Lease]:
        return self.backend.fetch(queues or [QUEUE], limit, self.lease_seconds)

    def fetched_ids(self, limit: int = 100, *queues: str) -> list[str]:
        return [lease.id for lease in self.fetch(limit, *queues)]

    def take(self, *queues: str) -> Lease:
        """Lease the one job that must be there."""
        leases = self.fetch(1, *queues)
        self.assertEqual(len(leases), 1, "a due job was not handed out")
        return leases[0]

    def lose(self, *leases: Lease) -> None:
        """Let leases run out and be reaped."""
        self.advance(self.lease_seconds)
        self.assertEqual(self.backend.reap_expired(), len(leases), "expired leases reaped")

    def stale_and_current(self, **terms: Any) -> tuple[Lease, Lease]:
        """Two leases of one job: the lost one, and the one that holds it now."""
        self.put(**terms)
        stale = self.take()
        self.lose(stale)
        current = self.take()
        self.assertEqual(current.id, stale.id)
        return stale, current

    def existing(self, value: T | None, what: str) -> T:
        """The value, which must not be None."""
        if value is None:
            self.fail(f"there is no {what}")
        return value

    def assert_settled(self, answer: Settled) -> None:
        self.assertIs(answer, Settled.SETTLED)

    def assert_lost(self, answer: Settled) -> None:
        self.assertIs(answer, Settled.LOST)

    def assert_nothing_due(self, *queues: str) -> None:
        self.assertEqual(self.fetched_ids(100, *queues), [], "nothing should be due now")
