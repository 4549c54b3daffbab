"""Where claims are answered late, jobs of a limited queue may start later; else none would."""

import time
from unittest import mock

import pytest

from django_jobs.backends.base import Lease
from django_jobs.backends.rates import CALM_SECONDS, Lateness, Rate
from django_jobs.clock import SECOND

RATE = Rate.parse("20/s")


@pytest.fixture
def clock():
    """A monotonic clock that is set by hand."""
    with mock.patch.object(time, "monotonic", return_value=1000.0) as clock:
        yield clock


class Queue:
    """Claims jobs, and gives some back."""

    def __init__(self, clock):
        self.lateness, self._clock, self._claims = Lateness(), clock, 0

    @property
    def allowed(self):
        return self.lateness.allowed(RATE)

    def claim(self, count=3):
        self._claims += 1
        start_by = self._clock.return_value + self.allowed / SECOND
        told = {"queue": "q", "token": f"t{self._claims}", "expires_at": 0, "message": None}
        leases = [Lease(id=f"j{n}", start_by=start_by, **told) for n in range(count)]
        self.lateness.claimed(leases[0])
        return leases

    def is_too_late(self, leases):
        self._clock.return_value = leases[0].start_by + 0.001
        self.lateness.returned(RATE, leases)


@pytest.fixture
def queue(clock):
    return Queue(clock)


def test_after_a_claim_that_came_too_late_the_next_has_twice_as_long_up_to_a_window(queue):
    for allowed in (40_000, 80_000, 160_000, 320_000, 640_000, SECOND, SECOND):
        assert queue.allowed == allowed
        queue.is_too_late(queue.claim())


def test_a_claim_that_came_too_late_counts_once_however_many_jobs_it_had(queue):
    leases = queue.claim()
    queue.is_too_late(leases[:1])
    queue.is_too_late(leases)
    assert queue.allowed == 80_000


def test_a_claim_that_came_too_late_counts_though_others_were_made_before_it_is_known(queue):
    first, second, third = (queue.claim() for _ in range(3))
    queue.is_too_late(first)
    assert queue.allowed == 80_000
    queue.is_too_late(second + third)  # these were allowed no more than the first
    assert queue.allowed == 80_000
    queue.is_too_late(queue.claim())
    assert queue.allowed == 160_000


def test_what_waited_behind_others_of_its_claim_says_nothing_of_claims(queue):
    queue.is_too_late(queue.claim()[1:])
    assert queue.allowed == 40_000


def test_what_was_given_back_in_time_was_not_too_late(queue):
    queue.lateness.returned(RATE, queue.claim())
    assert queue.allowed == 40_000


def test_what_was_enough_for_a_while_is_taken_back(queue, clock):
    queue.is_too_late(queue.claim())
    clock.return_value += CALM_SECONDS - 1
    assert queue.allowed == 80_000
    clock.return_value += 2
    assert queue.allowed == 40_000
