"""The order within a queue and between queues."""

from __future__ import annotations

from django_jobs.backends.values import CLAIM_BYTES
from django_jobs.clock import SECOND
from django_jobs.testing.conformance.base import Suite


class Ordering(Suite):
    """Higher priority, then earlier due, then earlier id; queues strictly apart."""

    def test_a_higher_priority_is_fetched_first(self) -> None:
        self.needs("priority")
        ids = {priority: self.put(priority=priority) for priority in (0, -100, 7, 100, -1)}
        expected = [ids[priority] for priority in (100, 7, 0, -1, -100)]
        self.assertEqual(self.fetched_ids(), expected)

    def test_fetching_one_at_a_time_keeps_the_order(self) -> None:
        self.needs("priority")
        ids = {priority: self.put(priority=priority) for priority in (0, -5, 5)}
        fetched = [self.take().id for _ in ids]
        self.assertEqual(fetched, [ids[5], ids[0], ids[-5]])

    def test_jobs_of_one_priority_are_fetched_in_the_order_of_enqueueing(self) -> None:
        ids = [self.put() for _ in range(20)]
        self.assertEqual([self.take().id for _ in ids], ids)

    def test_of_two_jobs_due_at_once_the_earlier_id_is_fetched_first(self) -> None:
        self.needs("delay")
        due = self.now() - SECOND
        batch = [self.outgoing(schedule=due) for _ in range(5)]
        self.backend.enqueue(batch[::-1])
        self.assertEqual(self.fetched_ids(), [outgoing.id for outgoing in batch])

    def test_an_earlier_due_goes_before_an_earlier_id(self) -> None:
        self.needs("delay")
        now = self.now()
        late, early = (self.put(schedule=now - ago * SECOND) for ago in (1, 3))
        middle = self.put(schedule=now - 2 * SECOND)
        self.assertEqual(self.fetched_ids(), [early, middle, late])

    def test_a_priority_goes_before_an_earlier_due(self) -> None:
        self.needs("delay")
        self.needs("priority")
        now = self.now()
        old = self.put(schedule=now - 3600 * SECOND)
        urgent = self.put(schedule=now - SECOND, priority=1)
        self.assertEqual(self.fetched_ids(), [urgent, old])

    def test_a_job_whose_delay_ended_takes_its_place_by_priority(self) -> None:
        self.needs("delay")
        self.needs("priority")
        urgent = self.put(delay=10, priority=5)
        self.advance(10)
        plain = self.put()
        self.assertEqual(self.fetched_ids(), [urgent, plain])

    def test_a_job_whose_delay_ended_takes_its_place_by_its_due(self) -> None:
        self.needs("delay")
        delayed = self.put(delay=10)
        first = self.put()
        self.advance(11)
        last = self.put()
        self.assertEqual(self.fetched_ids(), [first, delayed, last])

    def test_a_fetch_returns_no_more_than_its_limit(self) -> None:
        ids = [self.put() for _ in range(5)]
        self.assertEqual(self.fetched_ids(2), ids[:2])
        self.assertEqual(self.fetched_ids(2), ids[2:4])
        self.assertEqual(self.fetched_ids(2), ids[4:])

    def test_a_queue_gives_only_its_own_jobs(self) -> None:
        mine, other = self.put("mine"), self.put("other")
        self.assertEqual(self.fetched_ids(9, "mine"), [mine])
        self.assertEqual(self.fetched_ids(9, "other"), [other])

    def test_queues_with_alike_names_are_kept_apart(self) -> None:
        names = ["mail", "mail.eu", "mail_eu", "mail-eu", "mai", "maila"]
        ids = {name: self.put(name) for name in names}
        for name in reversed(names):
            self.assertEqual(self.fetched_ids(9, name), [ids[name]])

    def test_the_first_queue_with_work_wins(self) -> None:
        second, third = self.put("second"), self.put("third")
        self.assertEqual(self.fetched_ids(9, "first", "second", "third"), [second])
        self.assertEqual(self.fetched_ids(9, "first", "second", "third"), [third])

    def test_a_fetch_never_mixes_queues(self) -> None:
        first = self.put("first")
        self.put("second")
        self.assertEqual(self.fetched_ids(9, "first", "second"), [first])

    def test_the_order_of_queues_goes_before_priority(self) -> None:
        self.needs("priority")
        self.put("second", priority=100)
        first = self.put("first", priority=-100)
        self.assertEqual(self.fetched_ids(1, "first", "second"), [first])

    def test_a_queue_whose_jobs_are_not_due_is_passed_over(self) -> None:
        self.needs("delay")
        self.put("first", delay=3600)
        second = self.put("second")
        self.assertEqual(self.fetched_ids(9, "first", "second"), [second])

    def test_a_claim_ends_when_its_bodies_make_so_many_bytes(self) -> None:
        payload = {"args": ["x" * 250_000], "kwargs": {}}
        fit = -(-CLAIM_BYTES // 250_000)
        small = [self.put() for _ in range(3)]
        large = [self.put(payload=payload) for _ in range(fit + 2)]
        ids = small + large
        first = self.fetched_ids(1000)
        self.assertGreater(len(first), len(small))
        self.assertLessEqual(len(first), len(small) + fit)
        self.assertEqual(first, ids[: len(first)])
        self.assertEqual(self.fetched_ids(1000), ids[len(first) :])
