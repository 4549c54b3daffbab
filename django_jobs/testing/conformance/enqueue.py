"""Enqueue: stored once, stored exactly, all or none."""

from __future__ import annotations

from typing import Any

from django_jobs.backends.base import (
    Enqueued,
    Failure,
    OnConflict,
    ResultRecord,
    ids_known_to,
    joins,
    push,
)
from django_jobs.exceptions import DuplicateJob
from django_jobs.ids import new_id
from django_jobs.testing.conformance.base import QUEUE, Suite

AWKWARD: dict[str, Any] = {
    "escapes": 'é ü \U0001f680 \u2028 </script> "quoted" \\ \\u0041 \\\\',
    "spaces": "  leading, trailing and tab\t\r\n ",
    "big": 10**40 + 1,
    "negative": -(2**63) - 1,
    "floats": [1.0, 0.1, 1e-7, 1e22, -0.0],
    "z before a": {"z": 1, "a": 2, "": 3},
    "like sql": "'; DROP TABLE jobs; -- %s %(x)s {0} $1 ?",
    "empty": [[], {}, "", None, False],
}


class Enqueueing(Suite):
    """What an enqueue promises about the messages it was given."""

    def test_enqueue_answers_with_the_id_and_that_it_made_the_job(self) -> None:
        outgoing = self.outgoing()
        self.assertEqual(self.backend.enqueue([outgoing]), [Enqueued(outgoing.id, created=True)])

    def test_an_enqueued_job_is_fetched_under_its_id_and_queue(self) -> None:
        job_id = self.put()
        lease = self.take()
        self.assertEqual((lease.id, lease.queue), (job_id, QUEUE))

    def test_a_fresh_job_has_no_attempts_and_no_crashes(self) -> None:
        self.put()
        lease = self.take()
        self.assertEqual((lease.message.header.attempts, lease.message.header.crashes), (0, 0))
        self.assertFalse(lease.suspect)

    def test_a_batch_is_answered_in_its_order_and_stored_whole(self) -> None:
        batch = [self.outgoing() for _ in range(120)]
        stored = self.backend.enqueue(batch)
        self.assertEqual(stored, [Enqueued(job.id, created=True) for job in batch])
        self.assertEqual(self.fetched_ids(200), [job.id for job in batch])

    def test_a_batch_may_span_queues(self) -> None:
        first, second = self.outgoing("one"), self.outgoing("two")
        self.backend.enqueue([first, second])
        self.assertEqual(self.fetched_ids(9, "two"), [second.id])
        self.assertEqual(self.fetched_ids(9, "one"), [first.id])

    def test_an_empty_batch_is_answered_with_nothing(self) -> None:
        self.assertEqual(self.backend.enqueue([]), [])

    def test_enqueueing_a_live_id_again_leaves_the_job_alone(self) -> None:
        outgoing = self.outgoing()
        self.backend.enqueue([outgoing])
        again = self.outgoing(identifier=outgoing.id, payload={"args": ["other"], "kwargs": {}})
        self.assertEqual(self.backend.enqueue([again]), [Enqueued(outgoing.id, created=False)])
        lease = self.take()
        self.assertEqual(lease.message.body, outgoing.body)
        self.assert_nothing_due()

    def test_pushing_a_live_id_again_leaves_the_job_alone(self) -> None:
        outgoing = self.outgoing()
        self.assertEqual(push(self.backend, [outgoing]), [Enqueued(outgoing.id, created=True)])
        self.assertEqual(push(self.backend, [outgoing]), [Enqueued(outgoing.id, created=False)])
        lease = self.take()
        self.assertEqual(push(self.backend, [outgoing]), [Enqueued(outgoing.id, created=False)])
        self.assert_settled(self.backend.ack([lease])[0])

    def test_pushing_an_id_that_has_ended_makes_no_job(self) -> None:
        ended = [self.outgoing() for _ in range(2)]
        push(self.backend, ended)
        for lease, end in zip(self.fetch(2), ("ack", "abandon"), strict=True):
            if end == "abandon":
                self.backend.abandon(lease, Failure(reason="exhausted"))
            else:
                kept = ResultRecord(status="succeeded", ttl_seconds=86_400.0)
                self.backend.ack([lease], {lease.id: kept})
        fresh = self.outgoing()
        answers = push(self.backend, [*ended, fresh])
        self.assertEqual([answer.created for answer in answers], [False, False, True])
        self.assertEqual(self.fetched_ids(), [fresh.id])

    def test_pushing_an_id_that_has_ended_without_a_result_makes_no_job(self) -> None:
        ended = [self.outgoing() for _ in range(3)]
        push(self.backend, ended)
        self.backend.ack(self.fetch(3))
        answers = push(self.backend, [*ended, fresh := self.outgoing()])
        self.assertEqual([answer.created for answer in answers], [False, False, False, True])
        self.assertEqual(self.fetched_ids(), [fresh.id])

    def test_pushing_an_id_that_was_cancelled_makes_no_job(self) -> None:
        self.needs("cancel")
        outgoing = self.outgoing()
        self.backend.enqueue([outgoing])
        self.assertTrue(self.backend.cancel(outgoing.id))
        self.assertEqual(push(self.backend, [outgoing]), [Enqueued(outgoing.id, created=False)])
        self.assert_nothing_due()

    def test_pushing_what_was_enqueued_and_has_ended_makes_no_job(self) -> None:
        outgoing = self.outgoing()
        self.backend.enqueue([outgoing])
        self.backend.ack([self.take()])
        self.assertEqual(push(self.backend, [outgoing]), [Enqueued(outgoing.id, created=False)])
        self.assert_nothing_due()

    def test_of_ids_that_were_pushed_it_is_known_that_they_live_or_have_ended(self) -> None:
        waits, runs, acked, dead, never = (self.outgoing() for _ in range(5))
        for job in (acked, dead, runs, waits):
            push(self.backend, [job])
        self.backend.ack([self.take()])
        self.backend.abandon(self.take(), Failure(reason="exhausted"))
        self.take()
        jobs = {job.id: job.terms.queue for job in (waits, runs, acked, dead, never)}
        self.assertEqual(ids_known_to(self.backend, jobs), jobs.keys() - {never.id})
        self.assertEqual(ids_known_to(self.backend, {}), set())

    def test_a_push_that_is_refused_stores_none_of_its_messages(self) -> None:
        self.needs("unique")
        holder = self.put(unique_key="taken")
        batch = [self.outgoing(), self.outgoing(unique_key="taken"), self.outgoing()]
        with self.assertRaises(DuplicateJob):
            push(self.backend, batch, on_conflict=OnConflict.RAISE)
        self.assertEqual(self.fetched_ids(), [holder])
        self.assertEqual(
            [answer.created for answer in push(self.backend, batch)], [True, False, True]
        )

    def test_a_push_over_queues_that_was_refused_can_be_pushed_again(self) -> None:
        self.needs("unique")
        self.put(unique_key="taken")
        first, refused = self.outgoing("other"), self.outgoing(unique_key="taken")
        with self.assertRaises(DuplicateJob):
            push(self.backend, [first, refused], on_conflict=OnConflict.RAISE)
        self.assertEqual(push(self.backend, [first]), [Enqueued(first.id, created=True)])
        self.assertEqual(self.fetched_ids(9, "other"), [first.id])

    def test_enqueueing_a_running_id_again_does_not_disturb_its_lease(self) -> None:
        outgoing = self.outgoing()
        self.backend.enqueue([outgoing])
        lease = self.take()
        self.assertEqual(self.backend.enqueue([outgoing]), [Enqueued(outgoing.id, created=False)])
        self.assert_nothing_due()
        self.assert_settled(self.backend.ack([lease])[0])
        self.assert_nothing_due()

    def test_an_id_twice_in_one_batch_makes_one_job(self) -> None:
        outgoing = self.outgoing()
        stored = self.backend.enqueue([outgoing, outgoing])
        self.assertEqual([answer.created for answer in stored], [True, False])
        self.assertEqual(self.fetched_ids(), [outgoing.id])

    def test_a_batch_with_a_known_id_stores_the_rest(self) -> None:
        existing, fresh = self.outgoing(), self.outgoing()
        self.backend.enqueue([existing])
        stored = self.backend.enqueue([fresh, existing])
        self.assertEqual([answer.created for answer in stored], [True, False])
        self.assertEqual(sorted(self.fetched_ids()), sorted([existing.id, fresh.id]))

    def test_a_refused_batch_stores_none_of_its_messages(self) -> None:
        self.needs("unique")
        holder = self.put(unique_key="taken")
        batch = [self.outgoing(), self.outgoing(unique_key="taken"), self.outgoing()]
        with self.assertRaises(DuplicateJob):
            self.backend.enqueue(batch, on_conflict=OnConflict.RAISE)
        self.assertEqual(self.fetched_ids(), [holder])

    def test_an_enqueue_that_is_rolled_back_never_existed(self) -> None:
        self.needs("transactional_enqueue")
        with self.rolled_back():
            self.put()
        self.assert_nothing_due()

    def test_it_joins_transactions_on_its_own_database_and_no_other(self) -> None:
        backend = self.backend
        claims = backend.capabilities.transactional_enqueue and not backend.runs_at_enqueue
        self.assertEqual(backend.home is not None and joins(backend, backend.home), claims)
        self.assertFalse(joins(backend, "a database of no site"))

    # -- bodies ---------------------------------------------------------------------------

    def test_a_body_comes_back_byte_for_byte(self) -> None:
        outgoing = self.outgoing(payload=AWKWARD, name="naïve – ✓", meta={"é": "\U0001f600"})
        self.backend.enqueue([outgoing])
        message = self.take().message
        self.assertEqual(message.body, outgoing.body)
        self.assertEqual(message.signature, outgoing.signature)
        self.assertEqual(message.key_id, outgoing.key_id)

    def test_a_large_body_comes_back_byte_for_byte(self) -> None:
        outgoing = self.outgoing(payload={"args": ["0123456789" * 25_600], "kwargs": {}})
        self.assertGreater(len(outgoing.body), 250 * 1024)
        self.backend.enqueue([outgoing])
        self.assertTrue(self.take().message.body == outgoing.body, "the body was altered")

    def test_a_body_is_the_same_after_a_retry(self) -> None:
        outgoing = self.outgoing(payload=AWKWARD)
        self.backend.enqueue([outgoing])
        for _ in range(3):
            self.assert_settled(self.backend.nack(self.take(), 0))
        message = self.take().message
        self.assertEqual((message.body, message.signature), (outgoing.body, outgoing.signature))

    def test_a_dead_letter_keeps_the_body_byte_for_byte(self) -> None:
        outgoing = self.outgoing(payload=AWKWARD)
        self.backend.enqueue([outgoing])
        self.assert_settled(self.backend.abandon(self.take(), Failure(reason="exhausted")))
        dead = self.existing(self.dead_letter(outgoing.id), "dead letter")
        self.assertEqual(dead.body, outgoing.body)
        self.assertEqual((dead.signature, dead.key_id), (outgoing.signature, outgoing.key_id))

    def test_a_body_that_is_no_json_is_carried_all_the_same(self) -> None:
        outgoing = self.outgoing()._replace(id=new_id(), body="} no JSON {", signature="")
        self.backend.enqueue([outgoing])
        message = self.take().message
        self.assertEqual((message.body, message.signature), ("} no JSON {", ""))
