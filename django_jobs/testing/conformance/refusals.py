"""Verification: fetched messages are genuine, and altered ones are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Charge, Failure, ResultRecord, Settled
from django_jobs.clock import SECOND
from django_jobs.exceptions import Rejection
from django_jobs.ids import new_id
from django_jobs.testing.conformance.base import Suite
from django_jobs.testing.factories import make_opener
from django_jobs.wire.envelope import MAX_COUNT
from django_jobs.wire.opening import early_by

if TYPE_CHECKING:
    from django_jobs.backends.base import Lease
    from django_jobs.wire.envelope import Envelope


class Opening(Suite):
    """Fetched messages, checked by the Opener that a worker uses."""

    def _open(self, lease: Lease) -> Envelope:
        return make_opener(self.backend.alias).open(lease.message, lease.queue)

    def _assert_rejected(self, reason: str, job_id: str, **columns: Any) -> None:
        self.tamper(job_id, **columns)
        lease = self.take()
        self.assertEqual(lease.id, job_id)
        with self.assertRaises(Rejection) as caught:
            self._open(lease)
        self.assertEqual(caught.exception.reason, reason)

    def test_a_fetched_message_opens(self) -> None:
        payload = {"args": [1, "zwei"], "kwargs": {"drei": 3.5}}
        job_id = self.put(payload=payload)
        envelope = self._open(self.take())
        self.assertEqual((envelope.identifier, envelope.payload), (job_id, payload))

    def test_a_message_with_every_column_filled_opens(self) -> None:
        self.needs("unique")
        self.put(
            priority=-7,
            name="Nächtlicher Bericht",
            unique_key="Key",
            concurrency_key="tenant:é",
            tenant="Ünïcode",
            expires_at=4_000_000_000 * SECOND,
            trace_id="0af7651916cd43dd8448eb211c80319c",
            replay_of=new_id(),
        )
        self._open(self.take())

    def test_a_message_still_opens_after_a_retry_and_a_loss(self) -> None:
        self.put(max_retries=3)
        self.backend.nack(self.take(), 0)
        self.lose(self.take())
        self._open(self.take())

    def test_a_scheduled_message_opens_when_it_is_due(self) -> None:
        self.needs("delay")
        self.put(schedule=self.now() + 60 * SECOND)
        self.advance(60)
        self._open(self.take())

    def test_an_altered_body_does_not_open(self) -> None:
        outgoing = self.outgoing(payload={"args": ["10 EUR"], "kwargs": {}})
        self.backend.enqueue([outgoing])
        altered = outgoing.body.replace("10 EUR", "90 EUR")
        self._assert_rejected("rejected-signature", outgoing.id, body=altered)

    def test_a_removed_signature_does_not_open(self) -> None:
        self._assert_rejected("rejected-signature", self.put(), signature="")

    def test_the_signature_of_another_job_does_not_open(self) -> None:
        other = self.outgoing()
        self._assert_rejected("rejected-signature", self.put(), signature=other.signature)

    def test_an_altered_priority_does_not_open(self) -> None:
        self._assert_rejected("rejected-mismatch", self.put(), rank=-100)

    def test_an_altered_handler_does_not_open(self) -> None:
        self._assert_rejected("rejected-mismatch", self.put(), handler="tests.other")

    def test_a_message_made_due_before_its_schedule_does_not_open(self) -> None:
        self.needs("delay")
        now = self.now()
        job_id = self.put(schedule=now + 60 * SECOND)
        self._assert_rejected("rejected-mismatch", job_id, due=now - SECOND)

    def test_a_key_that_was_taken_away_does_not_open(self) -> None:
        self.needs("keys")
        cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
            ({"concurrency_key": "disk"}, ("concurrency_key", "concurrency")),
            ({"single_instance": "report"}, ("concurrency_key", "concurrency")),
            ({"idempotency_key": "receipt"}, ("idempotency_key",)),
        ]
        for terms, columns in cases:
            job_id = self.put(**terms)
            self._assert_rejected("rejected-mismatch", job_id, **dict.fromkeys(columns))

    # -- delays, which the store counts from its own now ------------------------------------------

    def _early(self, lease: Lease) -> int:
        return early_by(self._open(lease), self.now())

    def test_a_delay_that_was_taken_away_is_waited_for(self) -> None:
        self.needs("delay")
        self.advance(0)
        now = self.now()
        job_id = self.put(delay=3600, enqueued_at=now)
        self.tamper(job_id, due=now - SECOND)
        lease = self.take()
        early = self._early(lease)
        self.assertGreater(early, 3200 * SECOND)
        self.assert_settled(self.backend.nack(lease, early / SECOND, charge=Charge.NOTHING))
        self.assert_nothing_due()
        self.advance(early / SECOND)
        again = self.take()
        self.assertEqual((again.id, self._early(again)), (job_id, 0))

    def test_no_sound_job_seems_to_have_been_brought_forward(self) -> None:
        self.needs("delay")
        self.advance(0)
        for ahead in (-86_400, -1, 0, 1, 300):
            self.put(delay=120, enqueued_at=self.now() + ahead * SECOND, max_retries=3)
            self.advance(120)
            lease = self.take()
            self.assertEqual(self._early(lease), 0)
            for charge, delay in (
                (Charge.NOTHING, None),
                (Charge.NOTHING, 5),
                (Charge.PUT_OFF, 5),
                (Charge.SUSPICION, None),
                (Charge.ATTEMPT, 0),
            ):
                self.assert_settled(self.backend.nack(lease, delay, charge=charge))
                self.advance(delay or 0)
                lease = self.take()
                self.assertEqual(self._early(lease), 0, f"after {charge}, {ahead} s ahead")
            self.lose(lease)
            again = self.take()
            self.assertEqual(self._early(again), 0)
            self.backend.ack([again])

    def test_a_signer_whose_clock_is_fast_delays_a_job_once_and_no_longer_than_its_delay(
        self,
    ) -> None:
        self.needs("delay")
        self.advance(0)
        for ahead in (301, 600, 900, 901, 86_400):
            job_id = self.put(delay=600, enqueued_at=self.now() + ahead * SECOND)
            self.advance(600)
            lease = self.take()
            early = self._early(lease) / SECOND
            self.assertLessEqual(early, min(600, ahead - 300))
            self.backend.nack(lease, early, charge=Charge.NOTHING)
            self.advance(early)
            again = self.take()
            self.assertEqual((again.id, self._early(again)), (job_id, 0))
            self.backend.ack([again])

    # -- forged counters: kept within their range, and no job waits because of them -------------

    def _take_with(self, **counters: int) -> tuple[Lease, Lease]:
        """Leases of a job whose counters were changed, and of an intact job."""
        odd = self.put(max_retries=3)
        self.backend.nack(self.take(), None, charge=Charge.NOTHING)
        self.tamper(odd, **counters)
        sound = self.put()
        leases = {lease.id: lease for lease in self.fetch(5)}
        self.assertEqual(set(leases), {odd, sound}, "both jobs are leased")
        return leases[odd], leases[sound]

    def _assert_in_range(self, lease: Lease) -> None:
        header = lease.message.header
        for count in (header.attempts, header.deliveries, header.crashes):
            self.assertTrue(0 <= count <= MAX_COUNT, f"{header} is within its range")

    def test_counters_at_their_end_stop_no_claim_and_no_settle(self) -> None:
        counters = dict.fromkeys(("attempts", "deliveries", "crashes"), MAX_COUNT)
        lease, beside = self._take_with(**counters)
        self._assert_in_range(lease)
        self.assert_settled(self.backend.nack(lease, None, charge=Charge.ATTEMPT))
        again = self.take()
        self.assertEqual(again.id, lease.id)
        self._assert_in_range(again)
        self.assert_settled(self.backend.nack(again, None, charge=Charge.CRASH))
        last = self.take()
        self.assert_settled(self.backend.abandon(last, Failure(reason="exhausted")))
        self.existing(self.dead_letter(lease.id), "dead letter")
        self.assertEqual(self.backend.ack([beside]), [Settled.SETTLED])

    def test_counters_below_zero_stop_no_claim_and_no_settle(self) -> None:
        counters = dict.fromkeys(("attempts", "deliveries", "crashes"), -1000)
        lease, beside = self._take_with(**counters)
        self._assert_in_range(lease)
        kept = {lease.id: ResultRecord(status="succeeded")}
        results = kept if self.backend.capabilities.results else None
        self.assertEqual(self.backend.ack([lease, beside], results), [Settled.SETTLED] * 2)
        if results:
            self.assertEqual(self.existing(self.result_of(lease.id), "result").status, "succeeded")

    def test_a_full_counter_stops_no_reaping(self) -> None:
        self.put()
        self.lose(self.take())
        odd = self.take()
        self.assertTrue(odd.suspect)
        self.backend.nack(odd, None, charge=Charge.NOTHING)
        self.tamper(odd.id, crashes=MAX_COUNT)
        again = self.take()
        beside = self.put("beside")
        self.fetch(1, "beside")
        self.advance(self.lease_seconds)
        self.assertEqual(self.backend.reap_expired(), 2, "both expired leases are reaped")
        self.assertEqual(self.take("beside").id, beside)
        self.assert_lost(self.backend.ack([again])[0])

    def test_a_moment_out_of_all_range_stops_no_claim(self) -> None:
        self.needs("delay")
        odd, sound = self.put(), self.put()
        self.tamper(odd, due=-(2**53))
        leases = {lease.id: lease for lease in self.fetch(5)}
        self.assertIn(sound, leases)
        for lease in leases.values():
            self.assertGreaterEqual(lease.message.header.available_at, 0)

    def test_a_message_moved_to_another_queue_does_not_open(self) -> None:
        job_id = self.put("quiet")
        self.tamper(job_id, queue="loud")
        lease = self.take("loud")
        with self.assertRaises(Rejection):
            self._open(lease)
