"""Ack and abandon: a job ends once, and only the holder of its lease can end it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django_jobs.backends.base import AttemptRecord, Charge, Failure, ResultRecord, Settled
from django_jobs.backends.values import NOT_KEPT
from django_jobs.testing.conformance.base import Suite
from django_jobs.testing.factories import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from django_jobs.testing.conformance.base import DeadLetter

EXHAUSTED = Failure(reason="exhausted")


class Settling(Suite):
    """Settles that end a job."""

    def _dead(self, job_id: str) -> DeadLetter:
        return self.existing(self.dead_letter(job_id), "dead letter")

    # -- ack ------------------------------------------------------------------------------

    def test_an_acked_job_is_gone(self) -> None:
        self.put()
        self.assertEqual(self.backend.ack([self.take()]), [Settled.SETTLED])
        self.assert_nothing_due()

    def test_a_job_is_acked_once(self) -> None:
        self.put()
        lease = self.take()
        self.backend.ack([lease])
        self.assertEqual(self.backend.ack([lease]), [Settled.LOST])

    def test_a_late_ack_counts_while_its_token_is_current(self) -> None:
        self.put()
        lease = self.take()
        self.advance(self.lease_seconds * 10)
        self.assertEqual(self.backend.ack([lease]), [Settled.SETTLED])
        self.assertEqual(self.backend.reap_expired(), 0)

    def test_an_ack_after_reaping_is_lost(self) -> None:
        self.put()
        lease = self.take()
        self.lose(lease)
        self.assertEqual(self.backend.ack([lease]), [Settled.LOST])
        self.assertEqual(self.take().id, lease.id)

    def test_an_ack_with_a_lost_lease_leaves_the_new_holder_alone(self) -> None:
        stale, current = self.stale_and_current()
        self.assertEqual(self.backend.ack([stale]), [Settled.LOST])
        self.assertEqual(self.backend.ack([current]), [Settled.SETTLED])

    def test_an_ack_with_a_returned_lease_is_lost(self) -> None:
        self.put()
        returned = self.take()
        self.backend.nack(returned, 0)
        self.assertEqual(self.backend.ack([returned]), [Settled.LOST])
        current = self.take()
        self.assertEqual(self.backend.ack([returned]), [Settled.LOST])
        self.assertEqual(self.backend.ack([current]), [Settled.SETTLED])

    def test_one_lost_lease_in_a_batch_does_not_keep_the_others_from_settling(self) -> None:
        for _ in range(3):
            self.put()
        first, lost, last = self.fetch(3)
        self.backend.nack(lost, 0)
        answers = self.backend.ack([first, lost, last])
        self.assertEqual(answers, [Settled.SETTLED, Settled.LOST, Settled.SETTLED])
        self.assertEqual(self.fetched_ids(), [lost.id])

    def test_acking_nothing_is_answered_with_nothing(self) -> None:
        self.assertEqual(self.backend.ack([]), [])

    def test_an_ack_keeps_the_result_given_for_its_job(self) -> None:
        self.needs("results")
        self.put()
        self.put()
        with_result, without_result = self.fetch(2)
        record = ResultRecord(status="succeeded", value_json='{"sum":3}', output="two lines\n\n")
        self.backend.ack([with_result, without_result], {with_result.id: record})
        result = self.existing(self.result_of(with_result.id), "result")
        kept = (result.status, result.value_json, result.output)
        self.assertEqual(kept, ("succeeded", '{"sum":3}', "two lines\n\n"))
        self.assertIsNone(self.result_of(without_result.id))

    def test_an_ack_keeps_why_a_return_value_could_not_be_kept(self) -> None:
        self.needs("results")
        job_id = self.put()
        why = NOT_KEPT + "value is of type date ✗"
        record = ResultRecord(status="succeeded", value_json=why)
        self.backend.ack([self.take()], {job_id: record})
        values = [self.existing(self.result_of(job_id), "result").value_json]
        values.append(self.existing(self.backend.result(job_id), "end").value_json)
        if self.backend.capabilities.accounts:
            values.append(self.existing(self.backend.account(job_id), "account").value_json)
        self.assertEqual(set(values), {why})

    def test_a_body_and_a_result_as_long_as_escapes_make_them_are_kept(self) -> None:
        self.needs("results")
        letters = "ж" * (MAX_PAYLOAD_BYTES // 2 - 50)
        job_id = self.put(payload={"args": [letters], "kwargs": {}})
        lease = self.take()
        self.assertGreater(len(lease.message.body), MAX_PAYLOAD_BYTES * 2.9)
        self.assertEqual(json.loads(lease.message.body)["payload"]["args"], [letters])
        value = json.dumps(letters)
        self.backend.ack([lease], {job_id: ResultRecord(status="succeeded", value_json=value)})
        self.assertEqual(self.existing(self.result_of(job_id), "result").value_json, value)

    def test_a_lost_ack_keeps_no_result(self) -> None:
        self.needs("results")
        self.put()
        lease = self.take()
        self.backend.nack(lease, 0)
        self.backend.ack([lease], {lease.id: ResultRecord(status="succeeded")})
        self.assertIsNone(self.result_of(lease.id))

    # -- abandon --------------------------------------------------------------------------

    def test_an_abandoned_job_is_gone_from_its_queue(self) -> None:
        self.put()
        self.assert_settled(self.backend.abandon(self.take(), EXHAUSTED))
        self.assert_nothing_due()

    def test_an_abandoned_job_is_a_dead_letter_with_its_reason(self) -> None:
        job_id = self.put("billing")
        failure = Failure(reason="rejected-queue", error_type="E", error_message="wrong ✗ site")
        self.backend.abandon(self.take("billing"), failure)
        dead = self._dead(job_id)
        self.assertEqual((dead.job_id, dead.queue), (job_id, "billing"))
        self.assertEqual(dead.reason, "rejected-queue")
        self.assertEqual((dead.error_type, dead.error_message), ("E", "wrong ✗ site"))

    def test_a_dead_letter_counts_the_run_that_ended_it(self) -> None:
        for charge, counted in (
            (Charge.NOTHING, (1, 0)),
            (Charge.ATTEMPT, (2, 0)),
            (Charge.CRASH, (1, 1)),
        ):
            job_id = self.put()
            self.backend.nack(self.take(), 0)
            failure = Failure(reason="exhausted", charge=charge)
            self.backend.abandon(self.take(), failure)
            dead = self._dead(job_id)
            self.assertEqual((dead.attempts, dead.crashes), counted, charge)

    def test_abandon_keeps_the_record_of_the_last_attempt(self) -> None:
        job_id = self.put()
        record = AttemptRecord(number=1, outcome="failed", started_at=1, finished_at=2)
        failure = Failure(reason="exhausted", charge=Charge.ATTEMPT, attempt=record)
        self.backend.abandon(self.take(), failure)
        self.assertEqual([kept.number for kept in self.attempts_of(job_id)], [1])

    def test_an_abandon_with_a_lost_lease_leaves_no_dead_letter(self) -> None:
        stale, current = self.stale_and_current()
        self.assert_lost(self.backend.abandon(stale, EXHAUSTED))
        self.assertIsNone(self.dead_letter(stale.id))
        self.assert_settled(self.backend.ack([current])[0])

    def test_an_abandon_with_a_returned_lease_leaves_no_dead_letter(self) -> None:
        self.put()
        returned = self.take()
        self.backend.nack(returned, 0)
        self.assert_lost(self.backend.abandon(returned, EXHAUSTED))
        self.assertIsNone(self.dead_letter(returned.id))
        self.assertEqual(self.take().id, returned.id)

    def test_an_acked_job_leaves_no_dead_letter(self) -> None:
        self.put()
        lease = self.take()
        self.backend.ack([lease])
        self.assert_lost(self.backend.abandon(lease, EXHAUSTED))
        self.assertIsNone(self.dead_letter(lease.id))

    def test_an_abandoned_job_cannot_be_settled_again(self) -> None:
        self.put()
        lease = self.take()
        self.backend.abandon(lease, EXHAUSTED)
        self.assert_lost(self.backend.abandon(lease, Failure(reason="crashed")))
        self.assert_lost(self.backend.nack(lease, 0))
        self.assertEqual(self._dead(lease.id).reason, "exhausted")
