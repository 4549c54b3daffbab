"""What was fetched can be believed, and what was altered on the way cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.clock import SECOND
from django_jobs.exceptions import Rejection
from django_jobs.ids import new_id
from django_jobs.testing.conformance.base import Suite
from django_jobs.testing.factories import make_opener

if TYPE_CHECKING:
    from django_jobs.backends.base import Lease
    from django_jobs.wire.envelope import Envelope


class Opening(Suite):
    """Fetched messages under the eyes of the Opener that a worker uses."""

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

    def test_a_message_moved_to_another_queue_does_not_open(self) -> None:
        job_id = self.put("quiet")
        self.tamper(job_id, queue="loud")
        lease = self.take("loud")
        with self.assertRaises(Rejection):
            self._open(lease)
