"""Keys that jobs share: a limit on how many run at a time, or work that is done once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Charge, Failure, OnConflict
from django_jobs.testing.conformance.base import QUEUE, Suite, needing

if TYPE_CHECKING:
    from django_jobs.backends.base import Lease

DISK: dict[str, Any] = {"concurrency_key": "disk"}
ONCE: dict[str, Any] = {"idempotency_key": "receipt-42"}


@needing("keys")
class KeysSuite(Suite):
    """Which job gets a place, what waiting costs, and which goes next when a place is free."""

    def _put(self, count: int, **terms: Any) -> list[str]:
        return [self.put(**terms) for _ in range(count)]

    def _leases(self, count: int = 10) -> list[Lease]:
        """All leases that are available now, however many calls it takes."""
        leases: list[Lease] = []
        while len(leases) < count and (more := self.backend.fetch([QUEUE], count, 30)):
            leases += more
        return leases

    def _ids(self) -> list[str]:
        return [lease.id for lease in self._leases()]

    def _take_alone(self) -> Lease:
        """Lease the first job, and check that all others wait for it."""
        lease = self.take()
        self.assert_nothing_due()
        return lease

    # -- concurrency ----------------------------------------------------------------------

    def test_of_jobs_that_share_a_key_one_runs(self) -> None:
        first, *_ = self._put(3, **DISK)
        self.assertEqual(self._ids(), [first])
        self.assert_nothing_due()

    def test_a_key_gives_as_many_places_as_its_jobs_say(self) -> None:
        ids = self._put(5, **DISK, concurrency=3)
        self.assertEqual(self._ids(), ids[:3])

    def test_a_single_instance_is_alone_by_its_name(self) -> None:
        first, _ = self._put(2, single_instance="report")
        self.assertEqual(self._ids(), [first])

    def test_an_instance_and_a_key_of_the_same_name_are_different(self) -> None:
        ids = [self.put(single_instance="disk"), self.put(**DISK)]
        self.assertEqual(self._ids(), ids)

    def test_other_keys_and_jobs_without_one_go_on(self) -> None:
        ids = [self.put(**DISK), self.put(**DISK), self.put(concurrency_key="net"), self.put()]
        self.assertEqual(self._ids(), [ids[0], ids[2], ids[3]])

    def test_a_lease_of_a_job_with_keys_says_that_they_were_held_against_others(self) -> None:
        both = {"concurrency_key": "net", "idempotency_key": "receipt-43"}
        for terms in (DISK, {"single_instance": "report"}, ONCE, both):
            first, second = self._put(2, **terms)
            lease = self._take_alone()
            self.assertTrue(lease.keyed)
            self.backend.nack(lease, charge=Charge.NOTHING)
            again = self._take_alone()
            self.assertEqual((again.id, again.keyed), (first, True))
            self.lose(again)
            suspect = self.take()
            self.assertEqual((suspect.id, suspect.keyed), (first, True))
            self.backend.ack([suspect])
            waited = self.take()
            self.assertEqual((waited.id, waited.keyed), (second, True))
            self.backend.ack([waited])

    def test_a_key_counts_over_all_queues(self) -> None:
        self.put(**DISK)
        self.put("other", **DISK)
        self.assertEqual(len(self._leases()), 1)
        self.assertEqual(self.backend.fetch(["other"], 5, 30), [])

    def test_waiting_for_a_key_costs_nothing(self) -> None:
        self._put(2, **DISK)
        holder = self.take()
        for _ in range(3):
            self.assert_nothing_due()
        self.backend.ack([holder])
        lease = self.take()
        header = lease.message.header
        self.assertEqual((header.attempts, header.crashes, header.deliveries), (0, 0, 1))
        self.assertFalse(lease.suspect)

    def test_what_waits_for_a_key_is_counted(self) -> None:
        self._put(3, **DISK)
        self._leases()
        stats = self.backend.stats(QUEUE)
        self.assertEqual((stats.running, stats.blocked, stats.ready), (1, 2, 0))

    def test_waiters_go_on_in_their_order(self) -> None:
        ids = self._put(4, **DISK)
        seen = []
        while leases := self._leases():
            seen += [lease.id for lease in leases]
            self.backend.ack(leases)
        self.assertEqual(seen, ids)

    def test_every_way_out_of_a_lease_lets_the_next_one_go_on(self) -> None:
        self._put(9, **DISK)
        self.backend.ack([self._take_alone()])
        self.backend.abandon(self._take_alone(), Failure(reason="exhausted"))
        self.backend.nack(self._take_alone(), 3600)
        self.backend.nack(self._take_alone(), 3600, charge=Charge.NOTHING)
        self.backend.nack(self._take_alone(), 3600, charge=Charge.CRASH)
        self.backend.nack(self._take_alone(), 3600, charge=Charge.SUSPICION)
        self.backend.nack(self._take_alone(), 3600, charge=Charge.PUT_OFF)
        self.backend.nack_all([self._take_alone()])
        self.assertEqual(len(self._leases()), 1)

    def test_a_lease_that_ended_gives_its_place_back(self) -> None:
        self.put(**DISK)
        other = self.put("other", **DISK)
        lost = self.take()
        self.assert_nothing_due("other")
        self.lose(lost)
        self.assertEqual(self.fetched_ids(9, "other"), [other])
        self.assert_nothing_due()

    def test_a_lease_that_ended_holds_its_place_until_it_is_given_back(self) -> None:
        self.needs("renew")
        _, second = self._put(2, **DISK)
        first = self.take()
        self.advance(self.lease_seconds)
        self.assert_nothing_due()
        self.assert_settled(self.backend.renew([first], self.lease_seconds)[0])
        self.assert_nothing_due()
        self.assert_settled(self.backend.ack([first])[0])
        self.assertEqual(self._ids(), [second])

    def test_a_settle_that_came_too_late_frees_nothing(self) -> None:
        stale, current = self.stale_and_current(**DISK)
        self.put(**DISK)
        self.assert_nothing_due()
        self.assert_lost(self.backend.ack([stale])[0])
        self.assert_lost(self.backend.nack(stale, 3600))
        self.assert_nothing_due()
        self.assert_settled(self.backend.ack([current])[0])
        self.assertEqual(len(self._leases()), 1)

    def test_the_fence_grows_with_every_lease_of_a_key(self) -> None:
        self._put(3, **DISK)
        fences = []
        while leases := self._leases():
            fences += [lease.fence for lease in leases]
            self.backend.ack(leases)
        self.assertEqual(fences, sorted(set(fences)))
        self.assertNotIn(None, fences)

    def test_a_job_without_a_key_has_no_fence(self) -> None:
        self.put()
        self.assertIsNone(self.take().fence)

    # -- which job goes next --------------------------------------------------------------

    def test_a_queue_without_a_worker_holds_up_no_other(self) -> None:
        self.put(**DISK)
        holder = self.take()
        for _ in range(3):
            self.put("unserved", **DISK)
        self.assert_nothing_due("unserved")
        ids = self._put(3, **DISK)
        self.assert_nothing_due()
        seen = []
        for _ in ids:
            self.backend.ack([holder])
            holder = self.take()
            seen.append(holder.id)
        self.assertEqual(seen, ids)
        self.assert_nothing_due("unserved")
        self.backend.ack([holder])
        self.assertEqual(len(self.fetch(9, "unserved")), 1)

    def test_a_job_cancelled_on_its_turn_passes_it_on(self) -> None:
        self.needs("cancel")
        _, second, third = self._put(3, **DISK)
        self.backend.ack([self._take_alone()])
        self.assertTrue(self.backend.cancel(second))
        self.assertEqual(self._ids(), [third])

    def test_a_job_cancelled_while_it_waits_is_left_out(self) -> None:
        self.needs("cancel")
        _, second, third = self._put(3, **DISK)
        holder = self._take_alone()
        self.assertTrue(self.backend.cancel(second))
        self.assert_nothing_due()
        self.backend.ack([holder])
        self.assertEqual(self._ids(), [third])

    def test_a_job_replaced_on_its_turn_passes_it_on(self) -> None:
        self.needs("unique")
        self.put(**DISK)
        self.put(**DISK, unique_key="digest")
        third = self.put(**DISK)
        self.backend.ack([self._take_alone()])
        self.put(unique_key="digest", on_conflict=OnConflict.REPLACE, delay=3600)
        self.assertEqual(self._ids(), [third])

    def test_a_job_that_still_waits_for_its_other_key_passes_its_turn_on(self) -> None:
        self.put(**ONCE)
        self.put(**DISK)
        once, lock = self._leases()
        both, only = self.put(**DISK, **ONCE), self.put(**DISK)
        self.assert_nothing_due()
        self.backend.ack([lock])
        lock = self.take()
        self.assertEqual(lock.id, only)
        self.backend.ack([lock])
        self.assert_nothing_due()
        self.backend.abandon(once, Failure(reason="exhausted"))
        self.assertEqual(self._ids(), [both])

    # -- idempotency ----------------------------------------------------------------------

    def test_the_work_of_a_key_is_done_once(self) -> None:
        first, second = self._put(2, **ONCE)
        lease = self.take()
        self.assertEqual((lease.id, lease.done_by), (first, ""))
        self.assert_nothing_due()
        self.backend.ack([lease])
        skipped = self.take()
        self.assertEqual((skipped.id, skipped.done_by), (second, first))

    def test_work_that_is_done_stays_done_for_those_that_come_later(self) -> None:
        done = self.put(**ONCE)
        self.backend.ack([self.take()])
        self._put(3, **ONCE)
        leases = self._leases()
        self.assertEqual([lease.done_by for lease in leases], [done] * 3)
        self.backend.ack(leases)
        self.put(**ONCE)
        self.assertEqual(self.take().done_by, done)

    def test_a_failure_leaves_the_work_to_be_done(self) -> None:
        first, second = self._put(2, **ONCE, max_retries=3)
        self.backend.nack(self.take(), 3600)
        lease = self.take()
        self.assertEqual((lease.id, lease.done_by), (second, ""))
        self.backend.abandon(lease, Failure(reason="exhausted"))
        self.assertNotEqual(first, second)
        self.put(**ONCE)
        self.assertEqual(self.take().done_by, "")

    def test_a_job_that_ends_without_its_work_leaves_it_to_be_done(self) -> None:
        _, second, third = self._put(3, **ONCE)
        for expected in (second, third):
            lease = self.take()
            self.assert_settled(self.backend.ack([lease], undone=[lease.id])[0])
            leases = self._leases(2)
            self.assertEqual([(lease.id, lease.done_by) for lease in leases], [(expected, "")])
            self.backend.nack(leases[0], None, charge=Charge.NOTHING)
        self.backend.ack([self.take()])
        self.put(**ONCE)
        self.assertEqual(self.take().done_by, third)

    def test_a_job_that_was_lost_does_its_work_again(self) -> None:
        job_id = self.put(**ONCE)
        self.lose(self.take())
        lease = self.take()
        self.assertEqual((lease.id, lease.done_by), (job_id, ""))

    def test_the_same_key_of_another_handler_is_another_key(self) -> None:
        self.put(**ONCE)
        self.backend.ack([self.take()])
        self.put(**ONCE, job="another.handler")
        self.assertEqual(self.take().done_by, "")

    def test_a_place_shares_no_key_with_work_that_is_done(self) -> None:
        for name in ("key", "instance", "concurrency", "idempotency"):
            done = self.put(job=name, idempotency_key="a")
            self.backend.ack([self.take()])
            self.put(concurrency_key="a")
            self.backend.ack([self.take()])
            self.put(single_instance="a")
            self.backend.ack([self.take()])
            self.put(job=name, idempotency_key="a")
            skipped = self.take()
            self.assertEqual(skipped.done_by, done)
            self.backend.ack([skipped])

    def test_both_kinds_of_key_have_to_let_a_job_go(self) -> None:
        ids = [self.put(**DISK), self.put(**DISK, **ONCE), self.put(**ONCE)]
        first, third = self._leases()
        self.assertEqual([first.id, third.id], [ids[0], ids[2]])
        self.backend.abandon(third, Failure(reason="exhausted"))
        self.assert_nothing_due()
        self.backend.ack([first])
        lease = self.take()
        self.assertEqual((lease.id, lease.done_by), (ids[1], ""))

    def test_work_that_is_done_needs_no_place_to_be_skipped(self) -> None:
        self.put(**ONCE)
        self.backend.ack([self.take()])
        self.put(**DISK)
        self.put(**DISK, **ONCE)
        holder, skipped = self._leases()
        self.assertEqual((holder.done_by, bool(skipped.done_by)), ("", True))
