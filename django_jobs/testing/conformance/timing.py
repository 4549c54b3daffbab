"""Delay and schedule: never early by the store's clock."""

from __future__ import annotations

from django_jobs.clock import SECOND, to_microseconds
from django_jobs.testing.conformance.base import MICROSECOND, QUEUE, Suite, needing
from django_jobs.wire.envelope import MAX_MOMENT


@needing("delay")
class Timing(Suite):
    """When a job becomes due."""

    def _assert_due_after(self, seconds: float, job_id: str) -> None:
        self.assert_nothing_due()
        self.advance(seconds - MICROSECOND)
        self.assert_nothing_due()
        self.advance(MICROSECOND)
        self.assertEqual(self.take().id, job_id)

    def test_a_delayed_job_is_fetched_at_its_time_and_not_a_microsecond_early(self) -> None:
        self._assert_due_after(60, self.put(delay=60))

    def test_a_scheduled_job_is_fetched_at_its_time_and_not_a_microsecond_early(self) -> None:
        self._assert_due_after(90, self.put(schedule=self.now() + 90 * SECOND))

    def test_a_delay_is_kept_to_the_microsecond(self) -> None:
        self._assert_due_after(1.000003, self.put(delay=1.000003))

    def test_a_delay_of_a_year_is_kept(self) -> None:
        year = 366 * 86_400.0
        self._assert_due_after(year, self.put(delay=year))

    def test_a_job_for_the_last_moment_there_is_waits_for_it(self) -> None:
        job_id = self.put(schedule=MAX_MOMENT)
        first = self.put()
        self.assertEqual(self.fetched_ids(), [first])
        self.assertEqual(self.backend.stats(QUEUE).scheduled, 1)
        if self.backend.capabilities.peek:
            self.assertEqual([job.due for job in self.backend.peek(QUEUE)], [MAX_MOMENT])
        if self.backend.capabilities.cancel:
            self.assertTrue(self.backend.cancel(job_id))

    def test_a_job_tells_when_it_became_due(self) -> None:
        self.advance(0)
        due = self.now() + to_microseconds(2.5)
        self.put(delay=2.5)
        self.advance(100)
        self.assertEqual(self.take().message.header.available_at, due)

    def test_a_delay_counts_from_the_stores_now_and_not_from_the_callers(self) -> None:
        self.advance(0)
        slow_caller = self.put(delay=60, enqueued_at=0)
        self._assert_due_after(60, slow_caller)
        fast_caller = self.put(delay=60, enqueued_at=4_000_000_000 * SECOND)
        self._assert_due_after(60, fast_caller)

    def test_a_schedule_in_the_past_is_due_at_once(self) -> None:
        schedule = self.now() - 3600 * SECOND
        job_id = self.put(schedule=schedule)
        lease = self.take()
        self.assertEqual(lease.id, job_id)
        self.assertGreaterEqual(lease.message.header.available_at, schedule)

    def test_a_delay_of_nothing_is_due_at_once(self) -> None:
        job_id = self.put(delay=0)
        self.assertEqual(self.take().id, job_id)

    def test_a_delay_holds_back_only_its_own_job(self) -> None:
        self.put(delay=60)
        job_id = self.put()
        self.assertEqual(self.fetched_ids(), [job_id])

    def test_many_jobs_that_become_due_at_once_are_all_fetched(self) -> None:
        ids = [self.put(delay=5) for _ in range(30)]
        self.advance(5)
        self.assertEqual([self.take().id for _ in ids], ids)
