"""Waiting: over when there may be work, and never a reason to hold or to miss any."""

from __future__ import annotations

import time

from django_jobs.backends.base import Backend, HasHousekeeping, stop_waiting, wait_for_work
from django_jobs.testing.conformance.base import QUEUE, Suite

SHORT = 0.2
MUCH_LONGER = 8.0


class WaitSuite(Suite):
    """What a wait may say, and when it has to be over."""

    def tearDown(self) -> None:
        stop_waiting(self.backend)
        super().tearDown()

    def _lasts(self, timeout: float, *queues: str) -> float:
        began = time.monotonic()
        wait_for_work(self.backend, queues or None, timeout)
        return time.monotonic() - began

    def test_a_wait_for_nothing_is_over_after_its_timeout(self) -> None:
        self.assertLess(self._lasts(SHORT), SHORT + MUCH_LONGER)
        self.assertLess(self._lasts(SHORT, QUEUE, "other"), SHORT + MUCH_LONGER)

    def test_a_wait_without_time_is_over_at_once(self) -> None:
        self.assertLess(self._lasts(0.0), MUCH_LONGER)

    def test_a_wait_does_not_deny_that_a_job_is_due(self) -> None:
        self.put()
        for queues in ([QUEUE], ["other", QUEUE], None):
            self.assertTrue(wait_for_work(self.backend, queues, SHORT), queues)
            self.assertTrue(wait_for_work(self.backend, queues, 0.0), queues)

    def test_a_wait_does_not_deny_a_job_whose_time_has_come(self) -> None:
        self.needs("delay")
        self.put(delay=60)
        self.advance(60)
        self.assertTrue(wait_for_work(self.backend, [QUEUE], SHORT))
        self.assertTrue(wait_for_work(self.backend, None, SHORT))

    def test_a_wait_leases_nothing(self) -> None:
        job_id = self.put()
        wait_for_work(self.backend, [QUEUE], SHORT)
        lease = self.take()
        self.assertEqual((lease.id, lease.message.header.deliveries), (job_id, 1))

    def test_waiting_can_be_stopped_and_begun_again(self) -> None:
        wait_for_work(self.backend, [QUEUE], SHORT)
        stop_waiting(self.backend)
        self.put()
        stop_waiting(self.backend)
        self.assertTrue(any(wait_for_work(self.backend, [QUEUE], SHORT) for _ in range(2)))

    def test_the_housekeeping_due_does_not_deny_that_a_lease_was_lost(self) -> None:
        self.put()
        self.take()
        self.advance(self.lease_seconds)
        backend: Backend = self.backend
        self.assertTrue(not isinstance(backend, HasHousekeeping) or backend.housekeeping_due().reap)
