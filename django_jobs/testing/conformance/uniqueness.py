"""unique_key: one live job per key."""

from __future__ import annotations

from django_jobs.backends.base import Enqueued, Failure, OnConflict, push
from django_jobs.exceptions import DuplicateJob
from django_jobs.testing.conformance.base import Suite, needing

KEY = "report-2024"


@needing("unique")
class Uniqueness(Suite):
    """The three ways to handle a conflict, and when a key is free."""

    def _assert_held_by(self, job_id: str) -> None:
        stored = self.backend.enqueue([self.outgoing(unique_key=KEY)])
        self.assertEqual(stored, [Enqueued(job_id, created=False)])

    def _assert_free(self) -> None:
        outgoing = self.outgoing(unique_key=KEY)
        self.assertEqual(self.backend.enqueue([outgoing]), [Enqueued(outgoing.id, created=True)])

    def test_a_second_enqueue_of_a_key_returns_the_live_job(self) -> None:
        holder = self.put(unique_key=KEY)
        self._assert_held_by(holder)
        self.assertEqual(self.fetched_ids(), [holder])

    def test_a_second_enqueue_of_a_key_raises_when_asked_to(self) -> None:
        holder = self.put(unique_key=KEY)
        with self.assertRaises(DuplicateJob) as caught:
            self.put(unique_key=KEY, on_conflict=OnConflict.RAISE)
        self.assertEqual(caught.exception.unique_key, KEY)
        self.assertEqual(caught.exception.existing_id, holder)
        self.assertEqual(self.fetched_ids(), [holder])

    def test_a_second_enqueue_of_a_key_replaces_a_waiting_job_when_asked_to(self) -> None:
        self.put(unique_key=KEY)
        outgoing = self.outgoing(unique_key=KEY)
        stored = self.backend.enqueue([outgoing], on_conflict=OnConflict.REPLACE)
        self.assertEqual(stored, [Enqueued(outgoing.id, created=True)])
        self.assertEqual(self.fetched_ids(), [outgoing.id])

    def test_a_job_that_is_not_due_yet_is_replaced_as_well(self) -> None:
        self.needs("delay")
        self.put(unique_key=KEY, delay=3600)
        outgoing = self.outgoing(unique_key=KEY)
        self.backend.enqueue([outgoing], on_conflict=OnConflict.REPLACE)
        self.assertEqual(self.fetched_ids(), [outgoing.id])

    def test_a_running_job_is_never_replaced(self) -> None:
        holder = self.put(unique_key=KEY)
        lease = self.take()
        with self.assertRaises(DuplicateJob) as caught:
            self.put(unique_key=KEY, on_conflict=OnConflict.REPLACE)
        self.assertEqual(caught.exception.existing_id, holder)
        self.assert_nothing_due()
        self.assert_settled(self.backend.ack([lease])[0])

    def test_the_same_id_and_key_again_is_no_conflict(self) -> None:
        outgoing = self.outgoing(unique_key=KEY)
        self.backend.enqueue([outgoing])
        for on_conflict in OnConflict:
            stored = self.backend.enqueue([outgoing], on_conflict=on_conflict)
            self.assertEqual(stored, [Enqueued(outgoing.id, created=False)])
        self.assertEqual(self.fetched_ids(), [outgoing.id])

    def test_a_key_twice_in_one_batch_makes_one_job(self) -> None:
        first, second = self.outgoing(unique_key=KEY), self.outgoing(unique_key=KEY)
        stored = self.backend.enqueue([first, second])
        expected = [Enqueued(first.id, created=True), Enqueued(first.id, created=False)]
        self.assertEqual(stored, expected)
        self.assertEqual(self.fetched_ids(), [first.id])

    def test_a_key_is_held_across_queues(self) -> None:
        holder = self.put("elsewhere", unique_key=KEY)
        self._assert_held_by(holder)

    def test_a_key_is_held_while_its_job_runs(self) -> None:
        holder = self.put(unique_key=KEY)
        self.take()
        self._assert_held_by(holder)

    def test_a_key_is_held_while_its_job_waits_for_a_retry(self) -> None:
        holder = self.put(unique_key=KEY)
        self.backend.nack(self.take(), 0)
        self._assert_held_by(holder)

    def test_a_key_is_free_again_after_ack(self) -> None:
        self.put(unique_key=KEY)
        self.backend.ack([self.take()])
        self._assert_free()

    def test_a_key_is_free_again_after_abandon(self) -> None:
        self.put(unique_key=KEY)
        self.backend.abandon(self.take(), Failure(reason="exhausted"))
        self._assert_free()

    def test_a_key_is_free_again_after_cancel(self) -> None:
        self.needs("cancel")
        self.assertTrue(self.backend.cancel(self.put(unique_key=KEY)))
        self._assert_free()

    def test_keys_are_compared_exactly(self) -> None:
        keys = ["key", "KEY", "key ", " key", "kéy", "ke\u0301y", "k" * 255, "k" * 254]
        ids = [self.put(unique_key=key) for key in keys]
        self.assertEqual(len(set(ids)), len(keys), "different keys were taken for one")

    def test_jobs_without_a_key_do_not_conflict(self) -> None:
        self.assertNotEqual(self.put(), self.put())

    def test_an_ended_job_that_is_pushed_again_blocks_no_other(self) -> None:
        ended = self.outgoing(unique_key=KEY)
        self.backend.enqueue([ended])
        self.backend.ack([self.take()])
        holder = self.put(unique_key=KEY)
        for on_conflict in OnConflict:
            stored = push(self.backend, [ended], on_conflict=on_conflict)
            self.assertEqual(stored, [Enqueued(ended.id, created=False)])
        self.assertEqual(self.fetched_ids(), [holder])

    def test_a_job_that_was_replaced_and_comes_again_makes_no_job(self) -> None:
        replaced, new = self.outgoing(unique_key=KEY), self.outgoing(unique_key=KEY)
        self.backend.enqueue([replaced])
        self.backend.enqueue([new], on_conflict=OnConflict.REPLACE)
        for on_conflict in OnConflict:
            stored = push(self.backend, [replaced], on_conflict=on_conflict)
            self.assertEqual(stored, [Enqueued(replaced.id, created=False)])
        self.assertEqual(self.fetched_ids(), [new.id])

    def test_a_push_follows_its_on_conflict(self) -> None:
        holder, new = self.outgoing(unique_key=KEY), self.outgoing(unique_key=KEY)
        self.assertEqual(push(self.backend, [holder]), [Enqueued(holder.id, created=True)])
        self.assertEqual(push(self.backend, [new]), [Enqueued(holder.id, created=False)])
        with self.assertRaises(DuplicateJob):
            push(self.backend, [new], on_conflict=OnConflict.RAISE)
        stored = push(self.backend, [new], on_conflict=OnConflict.REPLACE)
        self.assertEqual(stored, [Enqueued(new.id, created=True)])
        self.assertEqual(self.fetched_ids(), [new.id])
