"""What a rate limit has counted comes back when the job did not start after all."""

import pytest

from django_jobs.backends.database import DatabaseBackend
from django_jobs.clock import ManualClock
from django_jobs.operations import queues
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.django_db
SLOT_SECONDS = 0.005  # of a rate per second


class Busy(ManualClock):
    """The clock of a busy machine: between two looks at it a slot goes by."""

    def now(self):
        self.advance(1.2 * SLOT_SECONDS)
        return super().now()


def outgoing(count, **terms):
    return [make_outgoing(backend="database", **terms) for _ in range(count)]


def test_a_token_of_a_job_that_was_parked_comes_back_when_its_slot_is_over():
    backend = DatabaseBackend("database", {})
    backend.clock._clock = Busy()
    queues.limit_queue("default", {"rate_limit": "20/s"}, by="anna")
    backend.enqueue(outgoing(9, concurrency_key="disk", priority=9))
    backend.enqueue(outgoing(30))
    first = backend.fetch(["default"], 9, 30.0)
    assert len(first) == 1  # the other eight wait for its place
    assert len(first + backend.fetch(["default"], 40, 30.0)) == 20
