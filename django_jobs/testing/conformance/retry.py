"""The built-in retry policies, end to end: the store waits as long as the policy says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.clock import SECOND, to_microseconds
from django_jobs.retry import Exponential, NoBackoff, RetryPolicy, built_in
from django_jobs.testing.conformance.base import MICROSECOND, Suite, needing

if TYPE_CHECKING:
    from django_jobs.retry import RetrySpec


@needing("delay")
class Retrying(Suite):
    """Delays, read back from the store after each failure."""

    def _waits(self, policy: RetryPolicy, retries: int) -> list[float]:
        """Fail a job repeatedly; returns the seconds that the store made it wait each time."""
        self.put(max_retries=retries)
        lease = self.take()
        waits = []
        for retry_number in range(1, retries + 1):
            failed_at = self.now()
            delay = policy.delay(retry_number)
            self.assert_settled(self.backend.nack(lease, delay))
            if delay:
                self.advance(delay - MICROSECOND)
                self.assert_nothing_due()
                self.advance(MICROSECOND)
            lease = self.take()
            header = lease.message.header
            self.assertEqual(header.attempts, retry_number)
            waits.append((header.available_at - failed_at) / SECOND)
        self.backend.ack([lease])
        return waits

    def _assert_waits(self, spec: RetrySpec, expected: list[float]) -> None:
        self.advance(0)
        policy = self.existing(built_in(spec), "built-in policy")
        self.assertEqual(self._waits(policy, len(expected)), expected)

    def test_exponential_backoff_waits_5_10_20_and_40_seconds(self) -> None:
        self._assert_waits({"strategy": "exponential", "jitter": False}, [5, 10, 20, 40])

    def test_exponential_backoff_never_waits_longer_than_its_maximum(self) -> None:
        spec = {"strategy": "exponential", "jitter": False}
        self._assert_waits(spec, [5, 10, 20, 40, 80, 160, 300, 300])

    def test_exponential_backoff_takes_its_own_numbers(self) -> None:
        spec = {"strategy": "exponential", "base": 1, "multiplier": 3, "max": 10, "jitter": False}
        self._assert_waits(spec, [1, 3, 9, 10])

    def test_fixed_backoff_always_waits_the_same(self) -> None:
        self._assert_waits("fixed", [5, 5, 5])
        self._assert_waits({"strategy": "fixed", "base": 0.25}, [0.25, 0.25])

    def test_no_backoff_does_not_wait(self) -> None:
        self._assert_waits("none", [0, 0, 0])
        self.assertIsInstance(built_in("none"), NoBackoff)

    def test_a_list_of_delays_is_followed_and_its_last_repeats(self) -> None:
        self._assert_waits([1, 60, 0.5], [1, 60, 0.5, 0.5])

    def test_jitter_stays_within_its_share_and_below_the_maximum(self) -> None:
        self.advance(0)
        waits = self._waits(Exponential(), 9)
        plain = [5, 10, 20, 40, 80, 160, 300, 300, 300]
        for wait, middle in zip(waits, plain, strict=True):
            self.assertGreaterEqual(wait, middle * 0.85 - MICROSECOND)
            self.assertLessEqual(wait, min(middle * 1.15 + MICROSECOND, 300))

    def test_a_jittered_delay_is_kept_to_the_microsecond(self) -> None:
        self.advance(0)
        self.put()
        delay = Exponential().delay(3)
        due = self.now() + to_microseconds(delay)
        self.backend.nack(self.take(), delay)
        self.advance(60)
        self.assertEqual(self.take().message.header.available_at, due)
