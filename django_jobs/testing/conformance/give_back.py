"""Nack: back into the queue, at the right time, with exactly the right charge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.base import AttemptRecord, Charge, Settled
from django_jobs.clock import SECOND
from django_jobs.testing.conformance.base import MICROSECOND, Suite

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Header


def _record(number: int) -> AttemptRecord:
    return AttemptRecord(
        number=number,
        outcome="failed",
        started_at=1_700_000_000_000_000,
        finished_at=1_700_000_001_000_000,
        error_type="builtins.ValueError",
        error_message=f"attempt {number} – ✗",
    )


class GivingBack(Suite):
    """Where a job stands after it was given back, and what it was charged."""

    def test_a_job_given_back_is_leased_again(self) -> None:
        self.put()
        lease = self.take()
        self.assert_settled(self.backend.nack(lease, 0))
        self.assertEqual(self.take().id, lease.id)

    def test_a_job_given_back_with_a_delay_is_not_fetched_a_microsecond_early(self) -> None:
        self.needs("delay")
        self.put()
        lease = self.take()
        self.advance(3)
        self.backend.nack(lease, 7.5)
        self.advance(7.5 - MICROSECOND)
        self.assert_nothing_due()
        self.advance(MICROSECOND)
        self.assertEqual(self.take().id, lease.id)

    def test_a_job_given_back_without_a_delay_keeps_its_place(self) -> None:
        ids = [self.put() for _ in range(3)]
        self.backend.nack(self.take(), None, charge=Charge.NOTHING)
        self.assertEqual(self.fetched_ids(), ids)

    def test_jobs_given_back_in_any_order_keep_their_places(self) -> None:
        ids = [self.put() for _ in range(4)]
        leases = self.fetch(3)
        for place in (1, 2, 0):
            self.backend.nack(leases[place], None, charge=Charge.NOTHING)
        self.assertEqual(self.fetched_ids(), ids)

    def test_many_jobs_given_back_at_once_keep_their_places_and_are_charged_nothing(self) -> None:
        ids = [self.put() for _ in range(4)]
        leases = self.fetch(4)
        answers = self.backend.nack_all([leases[2], leases[0], leases[3]])
        self.assertEqual(answers, [Settled.SETTLED] * 3)
        again = self.fetch(4)
        self.assertEqual([lease.id for lease in again], [ids[0], ids[2], ids[3]])
        headers = [lease.message.header for lease in again]
        self.assertEqual({(header.attempts, header.crashes) for header in headers}, {(0, 0)})
        self.assertFalse(any(lease.suspect for lease in again))

    def test_of_many_given_back_at_once_those_that_are_lost_are_left_alone(self) -> None:
        for _ in range(2):
            self.put()
        stale, held = self.fetch(2)
        self.backend.nack(stale, None, charge=Charge.NOTHING)
        (current,) = self.fetch(1)
        self.assertEqual(self.backend.nack_all([stale, held]), [Settled.LOST, Settled.SETTLED])
        self.assert_settled(self.backend.nack(current, 0))

    def test_a_job_given_back_with_no_wait_queues_anew(self) -> None:
        self.put()
        lease = self.take()
        self.advance(1)
        waiting = self.put()
        self.advance(1)
        self.backend.nack(lease, 0)
        self.assertEqual(self.fetched_ids(), [waiting, lease.id])

    def test_a_job_given_back_keeps_its_priority(self) -> None:
        self.needs("priority")
        urgent = self.put(priority=9)
        lease = self.take()
        plain = self.put()
        self.backend.nack(lease, 0)
        self.assertEqual(self.fetched_ids(), [urgent, plain])

    def test_a_job_given_back_is_not_due_before_its_schedule_when_the_clock_stepped_back(
        self,
    ) -> None:
        self.needs("delay")
        for delay in (0.0, 1.0):
            schedule = self.now() + 60 * SECOND
            job_id = self.put(schedule=schedule)
            self.advance(60)
            lease = self.take()
            self.advance(-30)
            self.assert_settled(self.backend.nack(lease, delay))
            self.advance(30 - MICROSECOND)
            self.assert_nothing_due()
            self.advance(MICROSECOND)
            again = self.take()
            self.assertEqual((again.id, again.message.header.available_at), (job_id, schedule))
            self.assert_settled(self.backend.ack([again])[0])

    # -- charges --------------------------------------------------------------------------

    def test_every_failed_run_is_counted_once(self) -> None:
        self.put(max_retries=9)
        counted = []
        for _ in range(4):
            lease = self.take()
            counted.append(lease.message.header.attempts)
            self.backend.nack(lease, 0, charge=Charge.ATTEMPT)
        self.assertEqual(counted, [0, 1, 2, 3])

    def test_a_nack_charges_an_attempt_unless_told_otherwise(self) -> None:
        self.put()
        self.backend.nack(self.take(), 0)
        self.assertEqual(self.take().message.header.attempts, 1)

    def test_a_give_back_without_charge_costs_nothing(self) -> None:
        self.put()
        for _ in range(3):
            self.backend.nack(self.take(), 0, charge=Charge.NOTHING)
        header = self.take().message.header
        self.assertEqual((header.attempts, header.crashes), (0, 0))

    def test_a_crash_is_charged_as_a_crash_and_not_as_an_attempt(self) -> None:
        self.put()
        for _ in range(2):
            self.backend.nack(self.take(), 0, charge=Charge.CRASH)
        header = self.take().message.header
        self.assertEqual((header.attempts, header.crashes), (0, 2))

    def test_the_counters_of_jobs_are_kept_apart(self) -> None:
        self.put()
        self.put()
        failing, waiting = self.fetch(2)
        self.backend.nack(failing, 0)
        self.backend.nack(waiting, 0, charge=Charge.NOTHING)
        attempts = {lease.id: lease.message.header.attempts for lease in self.fetch(2)}
        self.assertEqual(attempts, {failing.id: 1, waiting.id: 0})

    def test_the_record_of_an_attempt_is_kept_in_order(self) -> None:
        job_id = self.put()
        for number in (1, 2):
            self.backend.nack(self.take(), 0, attempt=_record(number))
        kept = [(a.number, a.outcome, a.error_message) for a in self.attempts_of(job_id)]
        expected = [(1, "failed", "attempt 1 – ✗"), (2, "failed", "attempt 2 – ✗")]
        self.assertEqual(kept, expected)

    # -- put off: jobs that a worker cannot judge -------------------------------------------

    def _put_off(self, delay: float = 60) -> int | None:
        """Put the only job off; returns when it was first put off, according to its next lease."""
        self.backend.nack(self.take(), delay, charge=Charge.PUT_OFF)
        self.advance(delay)
        return self._header().put_off_since

    def _header(self) -> Header:
        """The header of the only job, leased and given back at once."""
        lease = self.take()
        self.backend.nack(lease, None, charge=Charge.NOTHING)
        return lease.message.header

    def test_the_first_time_a_job_is_put_off_is_kept_and_nothing_is_charged(self) -> None:
        self.needs("delay")
        self.put()
        self.assertIsNone(self._header().put_off_since)
        began = self.now()
        self.assertEqual([self._put_off() for _ in range(3)], [began] * 3)
        header = self._header()
        self.assertEqual((header.attempts, header.crashes), (0, 0))

    def test_the_first_time_is_kept_through_a_loss(self) -> None:
        self.needs("delay")
        self.put()
        began = self.now()
        self._put_off()
        self.lose(self.take())
        self.assertEqual(self._header().put_off_since, began)

    def test_it_is_forgotten_when_the_job_is_given_back_after_a_run(self) -> None:
        self.needs("delay")
        for charge in (Charge.ATTEMPT, Charge.NOTHING):
            self.put()
            self._put_off()
            self.backend.nack(self.take(), 0, charge=charge)
            lease = self.take()
            self.assertIsNone(lease.message.header.put_off_since)
            self.backend.ack([lease])

    def test_a_moment_in_the_future_is_not_believed(self) -> None:
        self.needs("delay")
        job_id = self.put()
        self._put_off()
        now = self.now()
        self.tamper(job_id, put_off_since=now + 3600 * SECOND)
        self.assertEqual(self._put_off(), now)

    # -- fencing --------------------------------------------------------------------------

    def test_a_nack_with_a_lost_lease_changes_nothing(self) -> None:
        stale, current = self.stale_and_current()
        self.assert_lost(self.backend.nack(stale, 0, attempt=_record(1)))
        self.assert_nothing_due()
        self.assertEqual(list(self.attempts_of(stale.id)), [])
        self.assert_settled(self.backend.nack(current, 0, charge=Charge.NOTHING))
        self.assertEqual(self.take().message.header.attempts, 0)

    def test_a_nack_with_a_returned_lease_changes_nothing(self) -> None:
        self.put()
        lease = self.take()
        self.backend.nack(lease, 0)
        self.assert_lost(self.backend.nack(lease, 3600))
        self.assertEqual(self.take().message.header.attempts, 1)

    def test_a_late_nack_counts_while_its_token_is_current(self) -> None:
        self.put()
        lease = self.take()
        self.advance(self.lease_seconds * 10)
        self.assert_settled(self.backend.nack(lease, 0))
        self.assertEqual(self.backend.reap_expired(), 0)
        self.assertEqual(self.take().message.header.attempts, 1)
