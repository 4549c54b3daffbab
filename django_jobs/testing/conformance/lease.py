"""Leases: one holder at a time, known by a token, for a while."""

from __future__ import annotations

from django_jobs.backends.base import Settled
from django_jobs.clock import to_microseconds
from django_jobs.testing.conformance.base import QUEUE, Suite


class Leasing(Suite):
    """What a fetch returns, and how a lease is kept."""

    def test_a_fetch_of_an_empty_store_is_an_empty_list(self) -> None:
        self.assertEqual(self.fetch(5), [])

    def test_a_leased_job_is_not_leased_again(self) -> None:
        self.put()
        self.take()
        self.assert_nothing_due()

    def test_two_fetches_share_no_job(self) -> None:
        ids = [self.put() for _ in range(6)]
        first, second = self.fetched_ids(3), self.fetched_ids(6)
        self.assertEqual(first + second, ids)

    def test_a_lease_ends_the_asked_time_from_the_stores_now(self) -> None:
        self.advance(0)
        self.put()
        expected = self.now() + to_microseconds(12.5)
        leases = self.backend.fetch([QUEUE], 1, 12.5)
        self.assertEqual([lease.expires_at for lease in leases], [expected])

    def test_every_fetch_has_a_token_of_its_own(self) -> None:
        self.put()
        tokens = set()
        for _ in range(4):
            lease = self.take()
            tokens.add(lease.token)
            self.backend.nack(lease, 0)
        self.assertEqual(len(tokens), 4, "a token was used again")

    def test_jobs_fetched_apart_have_different_tokens(self) -> None:
        self.put()
        self.put()
        self.assertNotEqual(self.take().token, self.take().token)

    def test_a_token_is_too_long_to_be_guessed(self) -> None:
        self.put()
        self.assertGreaterEqual(len(self.take().token), 22, "less than 128 bits")

    def test_every_lease_is_counted_as_a_delivery(self) -> None:
        self.put()
        counted = []
        for _ in range(3):
            lease = self.take()
            counted.append(lease.message.header.deliveries)
            self.backend.nack(lease, 0)
        self.assertEqual(counted, [1, 2, 3])

    # -- renewing -------------------------------------------------------------------------

    def test_a_renewed_lease_is_not_reaped_at_its_old_end(self) -> None:
        self.needs("renew")
        self.put()
        lease = self.take()
        self.advance(20)
        self.assertEqual(self.backend.renew([lease], 30), [Settled.SETTLED])
        self.advance(29)
        self.assertEqual(self.backend.reap_expired(), 0)
        self.assert_settled(self.backend.ack([lease])[0])

    def test_a_renewed_lease_ends_the_asked_time_from_the_stores_now(self) -> None:
        self.needs("renew")
        self.put()
        lease = self.take()
        self.advance(20)
        self.backend.renew([lease], 5)
        self.advance(5)
        self.assertEqual(self.backend.reap_expired(), 1)

    def test_a_lease_that_ran_out_but_was_not_reaped_can_be_renewed(self) -> None:
        self.needs("renew")
        self.put()
        lease = self.take()
        self.advance(self.lease_seconds + 1)
        self.assertEqual(self.backend.renew([lease], 30), [Settled.SETTLED])
        self.assertEqual(self.backend.reap_expired(), 0)

    def test_a_lost_lease_is_not_renewed(self) -> None:
        self.needs("renew")
        stale, current = self.stale_and_current()
        self.advance(1)
        self.assertEqual(self.backend.renew([stale], 3600), [Settled.LOST])
        self.advance(self.lease_seconds - 1)
        self.assertEqual(self.backend.reap_expired(), 1, "the current lease was prolonged")
        self.assert_lost(self.backend.ack([current])[0])

    def test_renewing_answers_for_each_lease(self) -> None:
        self.needs("renew")
        for _ in range(3):
            self.put()
        first, gone, last = self.fetch(3)
        self.backend.ack([gone])
        answers = self.backend.renew([first, gone, last], 60)
        self.assertEqual(answers, [Settled.SETTLED, Settled.LOST, Settled.SETTLED])

    def test_renewing_nothing_is_answered_with_nothing(self) -> None:
        self.needs("renew")
        self.assertEqual(self.backend.renew([], 60), [])
