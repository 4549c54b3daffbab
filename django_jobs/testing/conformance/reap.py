"""Reaping: leases that expired unsettled, and the suspects they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Charge
from django_jobs.signals import job_crashed
from django_jobs.testing.conformance.base import MICROSECOND, QUEUE, Suite

if TYPE_CHECKING:
    from django_jobs.backends.base import Lease, Settled

LONGEST_PAUSE = 60.0


class Reaping(Suite):
    """What happens to a job whose worker disappeared."""

    def _suspect(self) -> str:
        """A ready job that was lost once."""
        job_id = self.put()
        self.lose(self.take())
        return job_id

    def _lose_suspect(self) -> Lease:
        """Lose it once more and wait until it may run again; returns the lost lease."""
        lease = self.take()
        self.lose(lease)
        self.advance(LONGEST_PAUSE)
        return lease

    def test_reaping_leaves_live_leases_alone(self) -> None:
        self.put()
        lease = self.take()
        self.advance(self.lease_seconds - MICROSECOND)
        self.assertEqual(self.backend.reap_expired(), 0)
        self.assert_nothing_due()
        self.assert_settled(self.backend.ack([lease])[0])

    def test_reaping_leaves_fresh_leases_alone_without_any_wait(self) -> None:
        self.put()
        lease = self.take()
        self.assertEqual(self.backend.reap_expired(), 0)
        self.assert_settled(self.backend.ack([lease])[0])

    def test_an_expired_lease_is_reaped_and_its_job_leased_again(self) -> None:
        self.put()
        lease = self.take()
        self.advance(self.lease_seconds)
        self.assertEqual(self.backend.reap_expired(), 1)
        again = self.take()
        self.assertEqual(again.id, lease.id)
        self.assertNotEqual(again.token, lease.token)

    def test_reaping_twice_returns_a_job_once(self) -> None:
        self.put()
        self.lose(self.take())
        self.assertEqual(self.backend.reap_expired(), 0)

    def test_reaping_leaves_waiting_jobs_alone(self) -> None:
        self.put()
        self.advance(self.lease_seconds * 10)
        self.assertEqual(self.backend.reap_expired(), 0)
        self.assertFalse(self.take().suspect)

    def test_reaping_one_queue_leaves_the_others_alone(self) -> None:
        self.put("one")
        self.put("two")
        self.take("one")
        self.take("two")
        self.advance(self.lease_seconds)
        self.assertEqual(self.backend.reap_expired("one"), 1)
        self.assert_nothing_due("two")
        self.assertEqual(self.backend.reap_expired("two"), 1)

    def test_reaping_takes_no_more_than_its_limit(self) -> None:
        for _ in range(5):
            self.put()
        self.fetch(5)
        self.advance(self.lease_seconds)
        reaped = [self.backend.reap_expired(limit=2) for _ in range(4)]
        self.assertEqual(reaped, [2, 2, 1, 0])

    def test_a_first_loss_charges_nothing(self) -> None:
        self._suspect()
        header = self.take().message.header
        self.assertEqual((header.attempts, header.crashes), (0, 0))
        self.assertEqual(header.deliveries, 2)

    def test_a_reaped_job_keeps_its_place(self) -> None:
        first = self.put()
        lease = self.take()
        self.advance(1)
        second = self.put()
        self.lose(lease)
        suspect = self.take()
        self.assertEqual(suspect.id, first)
        self.assertEqual(self.take().id, second)

    # -- suspects -------------------------------------------------------------------------

    def test_a_reaped_job_is_a_suspect(self) -> None:
        self._suspect()
        self.assertTrue(self.take().suspect)

    def test_a_suspect_comes_alone(self) -> None:
        suspect = self._suspect()
        others = [self.put(), self.put()]
        self.assertEqual(self.fetched_ids(10), [suspect])
        self.assertEqual(self.fetched_ids(10), others)

    def test_jobs_before_a_suspect_come_without_it(self) -> None:
        self.needs("priority")
        suspect = self._suspect()
        urgent = [self.put(priority=5), self.put(priority=4)]
        last = self.put(priority=-5)
        fetched = [self.fetched_ids(10) for _ in range(3)]
        self.assertEqual(fetched, [urgent, [suspect], [last]])

    def test_suspects_come_one_at_a_time(self) -> None:
        ids = [self.put() for _ in range(3)]
        self.lose(*self.fetch(3))
        self.assertEqual([self.fetched_ids(10) for _ in ids], [[job_id] for job_id in ids])

    def test_a_suspect_lost_again_is_charged_a_crash(self) -> None:
        self._suspect()
        self._lose_suspect()
        lease = self.take()
        self.assertTrue(lease.suspect)
        self.assertEqual((lease.message.header.attempts, lease.message.header.crashes), (0, 1))

    def test_reaping_sends_job_crashed_for_a_charged_crash(self) -> None:
        crashes: list[dict[str, Any]] = []

        def receive(**fields: Any) -> None:
            crashes.append(fields)

        job_crashed.connect(receive)
        self.addCleanup(job_crashed.disconnect, receive)
        suspect = self._suspect()
        self.assertEqual(crashes, [], "the first loss is not charged")
        self.lose(self.take())
        self.assertEqual([crash["job_id"] for crash in crashes], [suspect])
        if self.backend.capabilities.delay:
            self.assertEqual(crashes[0]["delay"], 1)
        self.assertEqual((crashes[0]["attempt"], crashes[0]["crashes"]), (1, 1))
        self.assertEqual(crashes[0]["queue"], QUEUE)
        self.assertEqual(crashes[0]["trace_id"], suspect.replace("-", ""))

    def test_every_further_loss_of_a_suspect_is_charged(self) -> None:
        self._suspect()
        for _ in range(3):
            self._lose_suspect()
        self.assertEqual(self.take().message.header.crashes, 3)

    def test_a_crash_is_run_again_after_a_pause_that_grows(self) -> None:
        self.needs("delay")
        self._suspect()
        for pause in (1, 10, 60, 60):
            self.lose(self.take())
            self.advance(pause - MICROSECOND)
            self.assert_nothing_due()
            self.advance(MICROSECOND)
            due = self.now()
            lease = self.take()
            self.assertEqual(lease.message.header.available_at, due)
            self.assert_settled(self.backend.nack(lease, None, charge=Charge.NOTHING))

    def test_a_first_loss_makes_no_pause(self) -> None:
        self._suspect()
        self.take()

    def test_a_suspect_that_fails_in_the_ordinary_way_is_none_any_more(self) -> None:
        self._suspect()
        self.backend.nack(self.take(), 0, charge=Charge.ATTEMPT)
        lease = self.take()
        self.assertFalse(lease.suspect)
        self.assertEqual((lease.message.header.attempts, lease.message.header.crashes), (1, 0))

    def test_a_job_charged_with_a_crash_is_a_suspect(self) -> None:
        self.put()
        self.backend.nack(self.take(), 0, charge=Charge.CRASH)
        self.assertTrue(self.take().suspect)

    def test_a_job_given_back_under_suspicion_keeps_its_place_and_its_counters(self) -> None:
        ids = [self.put() for _ in range(2)]
        self.backend.nack(self.take(), None, charge=Charge.SUSPICION)
        lease = self.take()
        self.assertEqual((lease.id, lease.suspect), (ids[0], True))
        header = lease.message.header
        self.assertEqual((header.attempts, header.crashes), (0, 0))
        self.assertEqual(self.fetched_ids(10), ids[1:])

    def test_a_suspect_can_be_acked(self) -> None:
        self._suspect()
        self.assert_settled(self.backend.ack([self.take()])[0])
        self.assert_nothing_due()

    # -- late settles of reaped leases ----------------------------------------------------

    def test_a_late_give_back_takes_the_suspicion_away(self) -> None:
        for late in (self._nack_late, self._nack_all_late):
            job_id = self.put()
            lease = self.take()
            self.lose(lease)
            self.assert_lost(late(lease))
            again = self.take()
            self.assertEqual((again.id, again.suspect), (job_id, False))
            self.assertEqual(self.backend.stats(QUEUE).suspect, 0)
            self.assert_settled(self.backend.ack([again])[0])

    def test_the_loss_of_the_next_lease_is_then_not_charged(self) -> None:
        for late in (self._nack_late, self._nack_all_late):
            stale, current = self.stale_and_current()
            self.assert_lost(late(stale))
            self.assert_nothing_due()
            self.lose(current)
            again = self.take()
            self.assertEqual((again.suspect, again.message.header.crashes), (True, 0))
            self.assert_settled(self.backend.ack([again])[0])

    def test_a_late_give_back_takes_the_crash_of_that_loss_back(self) -> None:
        for late in (self._nack_late, self._nack_all_late):
            self._suspect()
            lease = self._lose_suspect()
            self.assert_lost(late(lease))
            self.assert_lost(late(lease))
            again = self.take()
            self.assertEqual((again.suspect, again.message.header.crashes), (True, 0))
            self.assert_settled(self.backend.ack([again])[0])

    def test_a_late_give_back_of_an_earlier_lease_takes_nothing_back(self) -> None:
        for late in (self._nack_late, self._nack_all_late):
            stale, current = self.stale_and_current()
            self.lose(current)
            self.advance(LONGEST_PAUSE)
            self.assert_lost(late(stale))
            again = self.take()
            self.assertEqual((again.suspect, again.message.header.crashes), (True, 1))
            self.assert_settled(self.backend.ack([again])[0])

    def test_what_a_later_lease_tells_of_the_job_is_not_taken_back(self) -> None:
        for charge, crashes in ((Charge.CRASH, 1), (Charge.SUSPICION, 0)):
            stale, current = self.stale_and_current()
            self.assert_settled(self.backend.nack(current, 0, charge=charge))
            self.assert_lost(self._nack_late(stale))
            self.assert_lost(self._nack_all_late(stale))
            again = self.take()
            self.assertEqual((again.suspect, again.message.header.crashes), (True, crashes))
            self.assert_settled(self.backend.ack([again])[0])

    def test_only_a_late_nack_that_charges_nothing_takes_a_suspicion_away(self) -> None:
        for charge in (Charge.CRASH, Charge.SUSPICION, Charge.ATTEMPT):
            self.put()
            lease = self.take()
            self.lose(lease)
            self.assert_lost(self.backend.nack(lease, None, charge=charge))
            again = self.take()
            self.assertEqual((again.suspect, again.message.header.crashes), (True, 0))
            self.assert_settled(self.backend.ack([again])[0])

    def _nack_late(self, lease: Lease) -> Settled:
        return self.backend.nack(lease, None, charge=Charge.NOTHING)

    def _nack_all_late(self, lease: Lease) -> Settled:
        return self.backend.nack_all([lease])[0]

    def test_suspects_are_counted_among_what_waits(self) -> None:
        self._suspect()
        stats = self.backend.stats(QUEUE)
        self.assertEqual((stats.ready, stats.suspect), (1, 1))
