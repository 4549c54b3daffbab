"""Stats, peek, find and cancel: what an operator sees and may do."""

from __future__ import annotations

from django_jobs.backends.base import (
    Backend,
    Cancels,
    Failure,
    Inspects,
    QueueStats,
    ResultRecord,
    unfounded,
)
from django_jobs.exceptions import NotSupported
from django_jobs.ids import new_id
from django_jobs.testing.conformance.base import QUEUE, Suite


class Looking(Suite):
    """Looking changes nothing, and only waiting jobs can be cancelled."""

    # -- stats ----------------------------------------------------------------------------

    def test_the_stats_of_an_empty_queue_are_zero(self) -> None:
        self.assertEqual(self.backend.stats(QUEUE), QueueStats())

    def test_stats_count_what_is_ready_and_what_runs(self) -> None:
        for _ in range(3):
            self.put()
        self.take()
        stats = self.backend.stats(QUEUE)
        self.assertEqual((stats.ready, stats.scheduled, stats.running), (2, 0, 1))

    def test_stats_count_what_is_not_due_yet(self) -> None:
        self.needs("delay")
        self.put(delay=60)
        self.put()
        self.backend.nack(self.take(), 5)
        stats = self.backend.stats(QUEUE)
        self.assertEqual((stats.ready, stats.scheduled, stats.running), (0, 2, 0))

    def test_stats_are_those_of_one_queue(self) -> None:
        self.put("other")
        self.assertEqual(self.backend.stats(QUEUE), QueueStats())

    def test_stats_tell_how_long_the_oldest_ready_job_has_waited(self) -> None:
        self.put()
        self.advance(4)
        self.put()
        self.advance(1.5)
        self.assertEqual(self.backend.stats(QUEUE).oldest_ready_seconds, 5.5)

    def test_a_job_that_ended_is_counted_no_more(self) -> None:
        self.put()
        self.backend.ack([self.take()])
        self.assertEqual(self.backend.stats(QUEUE), QueueStats())

    # -- peek and find --------------------------------------------------------------------

    def _peeked(self, limit: int = 20) -> list[str]:
        return [seen.id for seen in self.backend.peek(QUEUE, limit)]

    def test_peek_shows_jobs_in_the_order_they_would_be_fetched(self) -> None:
        self.needs("peek")
        self.needs("priority")
        plain, urgent, last = (self.put(priority=priority) for priority in (0, 9, -9))
        self.assertEqual(self._peeked(), [urgent, plain, last])
        self.assertEqual(self._peeked(2), [urgent, plain])

    def test_peek_leases_nothing(self) -> None:
        self.needs("peek")
        outgoing = self.outgoing()
        self.backend.enqueue([outgoing])
        seen = self.backend.peek(QUEUE)
        self.assertEqual([delivery.message.body for delivery in seen], [outgoing.body])
        lease = self.take()
        self.assertEqual((lease.id, lease.message.header.deliveries), (outgoing.id, 1))

    def test_peek_shows_only_what_waits_in_its_queue(self) -> None:
        self.needs("peek")
        self.put()
        self.take()
        self.put("other")
        waiting = self.put()
        self.assertEqual(self._peeked(), [waiting])

    def test_find_tells_where_a_live_job_stands(self) -> None:
        self.needs("peek")
        job_id = self.put()
        seen = self.existing(self.backend.find(job_id), "live job")
        self.assertEqual((seen.id, seen.queue, seen.state), (job_id, QUEUE, "ready"))
        lease = self.take()
        seen = self.existing(self.backend.find(job_id), "live job")
        self.assertEqual((seen.state, seen.lease_expires), ("running", lease.expires_at))

    def test_find_tells_when_a_waiting_job_is_due(self) -> None:
        self.needs("peek")
        self.needs("delay")
        due = self.now() + 3_600_000_000
        seen = self.existing(self.backend.find(self.put(schedule=due)), "live job")
        self.assertEqual((seen.state, seen.due), ("scheduled", due))

    def test_find_knows_no_job_that_ended_or_never_was(self) -> None:
        self.needs("peek")
        job_id = self.put()
        self.backend.ack([self.take()])
        self.assertIsNone(self.backend.find(job_id))
        self.assertIsNone(self.backend.find(new_id()))

    # -- cancel ---------------------------------------------------------------------------

    def test_a_waiting_job_can_be_cancelled(self) -> None:
        self.needs("cancel")
        self.assertTrue(self.backend.cancel(self.put()))
        self.assert_nothing_due()

    def test_a_job_that_is_not_due_yet_can_be_cancelled(self) -> None:
        self.needs("cancel")
        self.needs("delay")
        self.assertTrue(self.backend.cancel(self.put(delay=5)))
        self.advance(10)
        self.assert_nothing_due()

    def test_a_running_job_is_not_cancelled(self) -> None:
        self.needs("cancel")
        job_id = self.put()
        lease = self.take()
        self.assertFalse(self.backend.cancel(job_id))
        self.assert_settled(self.backend.ack([lease])[0])

    def test_a_job_that_is_not_there_is_not_cancelled(self) -> None:
        self.needs("cancel")
        job_id = self.put()
        self.backend.cancel(job_id)
        self.assertFalse(self.backend.cancel(job_id))
        self.assertFalse(self.backend.cancel(new_id()))

    def test_a_backend_is_all_that_it_claims(self) -> None:
        self.assertEqual(unfounded(self.backend), {}, "claims, and what it does not derive from")

    def test_what_a_backend_does_not_claim_it_refuses(self) -> None:
        backend: Backend = self.backend
        claimed = backend.capabilities
        if isinstance(backend, Inspects) and not claimed.peek:
            with self.assertRaises(NotSupported):
                backend.peek(QUEUE)
            with self.assertRaises(NotSupported):
                backend.find(new_id())
        if isinstance(backend, Cancels) and not claimed.cancel:
            with self.assertRaises(NotSupported):
                backend.cancel(new_id())
        if isinstance(backend, Inspects) and not claimed.accounts:
            with self.assertRaises(NotSupported):
                backend.account(new_id())

    def test_outcomes_tell_what_lives_and_how_the_others_ended(self) -> None:
        self.needs("peek")
        self.needs("results")
        done, waiting, running, dead = (self.put(queue) for queue in "abcd")
        self.backend.ack([self.take("a")], {done: ResultRecord(status="succeeded")})
        self.take("c")
        self.backend.abandon(self.take("d"), Failure(reason="handler-failed"))
        asked = [done, waiting, running, dead, new_id()]
        self.assertEqual(
            self.backend.outcomes(asked),
            {done: "succeeded", waiting: None, running: None, dead: "dead"},
        )
