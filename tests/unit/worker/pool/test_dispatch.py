"""How many leases a worker asks for; what it does with them is seen with real children."""

import os
import socket
import time
from types import SimpleNamespace
from unittest import mock

import pytest

from django_jobs.backends.base import Settled
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.children import Child, Held, Lane
from django_jobs.worker.pool.dispatch import CHUNK_BYTES, LONGEST_WAIT, WHY_LATE, Dispatch
from django_jobs.worker.pool.lifecycle import ChildLimits, Recycling
from django_jobs.worker.pool.pace import LARGEST_CHUNK, LARGEST_PROMPT
from django_jobs.worker.pool.settlement import UNSETTLED_BYTES, Settlement
from django_jobs.worker.pool.shared_memory import Board, Places, shared_memory
from django_jobs.worker.pool.thread_messages import Done
from django_jobs.worker.settle import Verdict
from tests.unit.worker.pool.test_children import child, held, marks

__all__ = ["child", "marks"]  # fixtures

MOST = 1 + 2 * LARGEST_CHUNK  # one to run, and as many ahead as there may be


@pytest.fixture
def dispatch():
    return Dispatch({}, None, Places(1), ChildLimits())


def hold(dispatch: Dispatch, count: int) -> list[Held]:
    leases = [held(number) for number in range(count)]
    dispatch.receive(leases)
    return leases


def test_of_jobs_that_it_does_not_know_it_wants_what_it_can_run(dispatch):
    assert dispatch.wanted() == 1
    hold(dispatch, 1)
    assert dispatch.wanted() == 0


def test_of_short_jobs_it_wants_many_when_a_part_of_them_is_done(dispatch):
    (first,) = hold(dispatch, 1)
    dispatch.observe(first, 0.00001)
    assert dispatch.wanted() == MOST - 1
    hold(dispatch, MOST - LARGEST_CHUNK // 2 - 1)
    assert dispatch.wanted() == LARGEST_CHUNK // 2
    hold(dispatch, 1)
    assert dispatch.wanted() == 0


def test_with_plenty_of_bytes_it_wants_what_it_can_run_and_nothing_ahead(dispatch):
    (first,) = hold(dispatch, 1)
    dispatch.observe(first, 0.00001)
    assert dispatch.wanted(has_plenty=True) == 0
    dispatch.ready.clear()
    assert dispatch.wanted(has_plenty=True) == 1


def test_a_lane_is_given_no_more_bytes_than_a_chunk_may_have(child, marks):
    dispatch = Dispatch({0: child}, None, Places(1), ChildLimits())
    size = CHUNK_BYTES // 3 + 1
    large = [held(number, size=size) for number in range(9)]
    dispatch.observe(large[0], 0.00001)
    dispatch.receive(large)
    for _ in range(3):
        dispatch.step()
        assert len(child.lanes[0].held) == 2
    dispatch.ready.clear()
    child.lanes[0].held.clear()
    dispatch.receive([held(9, size=2 * CHUNK_BYTES)])
    dispatch.step()
    assert len(child.lanes[0].held) == 1  # one of any size has to run


def test_much_that_is_not_settled_yet_is_enough():
    settlement = Settlement(Settles(), lambda _: None, None, "worker")
    finished = []
    while not settlement.has_plenty:
        settlement.give_back(held(len(finished), size=1_000_000), "why")
        finished = settlement._finished
    assert sum(len(one.run.lease.message.body) for one in finished) > UNSETTLED_BYTES
    assert len(finished) == UNSETTLED_BYTES // 1_000_000 + 1
    verdict = Verdict("requeued", Settled.SETTLED)
    settlement.done([Done(one.run, one.outcome, verdict) for one in finished[:2]])
    assert not settlement.has_plenty


def test_of_jobs_that_take_a_while_it_wants_each_that_it_can_use(dispatch):
    (first,) = hold(dispatch, 1)
    dispatch.observe(first, 0.01)
    assert dispatch.wanted() == 2
    hold(dispatch, 1)
    assert dispatch.wanted() == 1


class Settles:
    """Takes down what is to be settled."""

    def __init__(self):
        self.outcomes = []

    def settle(self, finished):
        self.outcomes += [one.outcome for one in finished]


class Apart:
    """The dispatch of a worker whose children run several jobs at once, and what it gives back."""

    def __init__(self, children, *, can_put_off=True):
        self.store = Settles()
        self.settlement = Settlement(self.store, None, None, "worker", can_put_off=can_put_off)
        self.dispatch = Dispatch(children, self.settlement, Places(1, 4), ChildLimits())

    def suspect(self, number=1):
        one = held(number)
        one.lease = one.lease._replace(suspect=True)
        self.dispatch.receive([one])
        self.dispatch.step()
        self.settlement.flush()
        return one

    @property
    def delays(self):
        assert all(outcome.suspect for outcome in self.store.outcomes)
        return [outcome.delay for outcome in self.store.outcomes]


def test_a_suspect_that_cannot_begin_is_put_off_and_others_are_wanted_as_before():
    apart = Apart({})
    assert apart.dispatch.wanted() == 4
    for number in range(5):
        apart.suspect(number)
    assert apart.dispatch.lacks_isolated
    assert (list(apart.dispatch.ready), apart.dispatch.wanted()) == ([], 4)
    assert apart.delays == sorted(apart.delays)
    assert 0.0 < apart.delays[0] < apart.delays[-1] < 1.0


def test_a_suspect_begins_at_once_in_a_child_that_runs_nothing_else(child, marks):
    child.isolated = True
    marks.beat(time.monotonic())
    apart = Apart({0: child})
    first = apart.suspect()
    assert [given.lease.id for given in child.lanes[0].held.values()] == [first.lease.id]
    assert (apart.delays, apart.dispatch.wanted()) == ([], 4)
    assert not apart.dispatch.lacks_isolated
    child.lanes[0].given_at -= 3600  # the later, the longer that one has been running
    for number in range(2, 6):
        apart.suspect(number)
    assert apart.delays == pytest.approx([LONGEST_WAIT] * 4, abs=1.0)


def test_a_suspect_is_given_to_no_child_that_runs_other_jobs(child, marks):
    marks.beat(time.monotonic())
    apart = Apart({0: child})
    apart.suspect()
    assert child.is_idle
    assert len(apart.delays) == 1


def test_a_suspect_whose_lease_was_not_renewed_in_time_is_handed_to_nobody(child, marks):
    child.isolated = True
    marks.beat(time.monotonic())
    apart = Apart({0: child})
    late = held(1)
    late.lease = late.lease._replace(suspect=True)
    late.ends = time.monotonic()
    apart.dispatch.receive([late])
    apart.dispatch.step()
    apart.settlement.flush()
    assert child.is_idle
    assert [(one.delay, one.reason) for one in apart.store.outcomes] == [
        (None, "its lease could not be renewed in time")
    ]


def test_where_a_store_cannot_wait_a_suspect_waits_here():
    apart = Apart({}, can_put_off=False)
    one = apart.suspect()
    assert (list(apart.dispatch.ready), apart.delays) == ([one], [])
    assert apart.dispatch.lacks_isolated


def test_what_is_put_off_is_known_to_come_back_when_the_store_has_it():
    told = []
    settlement = Settlement(Settles(), told.extend, None, "worker")
    settlement.put_off(held(1), 7.0, "why")
    assert (settlement.open, settlement.back_at) == (1, 0.0)
    (finished,) = settlement._finished
    verdict = Verdict("requeued", Settled.SETTLED, 7.0)
    settlement.done([Done(finished.run, finished.outcome, verdict)])
    assert (settlement.open, settlement.processed) == (0, 0)
    assert settlement.back_at == pytest.approx(time.monotonic() + 7.0, abs=1.0)


def test_a_child_for_what_runs_alone_leaves_when_there_is_nothing_for_a_while(child, marks):
    child.isolated = True
    marks.beat(time.monotonic())
    apart = Apart({0: child})
    recycling = Recycling(ChildLimits(), SimpleNamespace(by_slot={0: child}), apart.dispatch)
    apart.suspect()
    apart.dispatch._suspect_at -= LONGEST_WAIT
    recycling.step()
    assert not child.dismissed  # it runs one
    child.lanes[0].held.clear()
    recycling.step()
    assert (child.dismissed, child.replaced, child.is_free) == (True, False, False)


class Pool:
    """Children of one lane each that are up, their dispatch, and what it gives back."""

    def __init__(self, count):
        self._memory = shared_memory(count)
        board, self._sockets, self.children = Board(self._memory, count), [], {}
        for slot in range(count):
            ours, theirs = socket.socketpair()
            self._sockets += [ours, theirs]
            marks = board.marks(slot)
            marks.reset()
            marks.beat(1.0)
            self.children[slot] = child = Child(slot, 0, Channel(ours))
            child.lanes.append(Lane(child, 0, marks))
        self.store = Settles()
        settlement = Settlement(self.store, None, None, "worker")
        self.dispatch = Dispatch(self.children, settlement, Places(count), ChildLimits())

    def close(self):
        for one in self._sockets:
            one.close()
        os.close(self._memory)

    @property
    def given(self):
        return [
            [one.lease.id for one in child.lanes[0].held.values()]
            for child in self.children.values()
        ]

    def step(self, *leases):
        if leases:
            self.dispatch.receive(leases)
        self.dispatch.step()
        self.dispatch._settlement.flush()

    @property
    def idle(self):
        return self.dispatch.idle(0, 99).lanes


@pytest.fixture
def pool():
    pools = []

    def pool(count):
        pools.append(Pool(count))
        return pools[-1]

    yield pool
    for one in pools:
        one.close()


@pytest.fixture
def clock():
    """A monotonic clock that is set by hand."""
    with mock.patch.object(time, "monotonic", return_value=1000.0) as clock:
        yield clock


def limited(number, start_by=1000.04, queue="limited"):
    one = held(number)
    one.lease = one.lease._replace(start_by=start_by, queue=queue)
    return one


def test_a_job_of_a_limited_queue_never_waits_behind_one_of_another_queue(pool, clock):
    pool = pool(2)
    pool.dispatch.observe(held(0), 0.000_01)  # short: a lane is given many at a time
    pool.step(held(1))
    pool.step(limited(2), limited(3))
    assert pool.given == [["job1"], ["job2", "job3"]]
    pool.step(limited(4))
    assert pool.given == [["job1"], ["job2", "job3"]]
    pool.children[0].lanes[0].held.clear()
    pool.step()
    assert pool.given == [["job4"], ["job2", "job3"]]


def test_a_job_of_a_limited_queue_that_may_take_a_while_has_a_lane_of_its_own(pool, clock):
    pool = pool(2)
    pool.step(*(limited(number) for number in range(3)))
    assert pool.given == [["job0"], ["job1"]]


def test_a_job_of_a_limited_queue_starts_before_what_was_fetched_ahead(pool, clock):
    pool = pool(1)
    pool.step(*(held(number) for number in range(3)))
    pool.step(limited(9))
    assert pool.given == [["job0"]]
    pool.children[0].lanes[0].held.clear()
    pool.step()
    assert pool.given == [["job9"]]


def test_a_job_of_a_limited_queue_that_finds_no_lane_in_time_goes_back_as_not_begun(pool, clock):
    pool = pool(1)
    pool.step(held(1))
    pool.step(limited(2))
    assert pool.store.outcomes == []
    clock.return_value += 0.05
    pool.step()
    assert [(one.reason, one.begun) for one in pool.store.outcomes] == [(WHY_LATE, False)]
    assert (pool.given, list(pool.dispatch.ready)) == ([["job1"]], [])


def test_idle_lanes_share_the_jobs_of_a_limited_queue(pool, clock):
    pool = pool(2)
    one = limited(0)
    pool.dispatch.observe(one, 0.000_01)
    assert pool.dispatch.idle(0, 999).room("limited") == 2 * LARGEST_PROMPT
    assert pool.dispatch.idle(0, 99).room("another") == 2
    assert pool.dispatch.idle(0, 7).room("limited") == 7
    pool.step(*(limited(number) for number in range(6)))
    assert [len(given) for given in pool.given] == [3, 3]


def test_a_lane_is_idle_when_its_child_is_up_and_nothing_is_on_its_way_to_it(pool, clock):
    pool = pool(3)
    assert pool.idle == 3
    pool.children[0].lanes[0].marks.beat(0.0)  # it is only being born
    assert pool.idle == 2
    pool.dispatch.receive([limited(1)])
    assert pool.idle == 1
    pool.step(limited(2))
    assert (pool.given[0], pool.idle) == ([], 0)


def test_where_jobs_of_a_limited_queue_lack_a_lane_one_is_kept_free_for_them(pool, clock):
    pool = pool(2)
    pool.dispatch.lack_lanes = True
    pool.step(*(held(number) for number in range(4)))
    assert sorted(map(len, pool.given)) == [0, 1]
    assert pool.idle == 1
    pool.step(limited(9))
    assert ["job9"] in pool.given
    pool.dispatch.lack_lanes = False
    pool.dispatch.ready.clear()
    pool.step(held(5))
    assert sorted(pool.given) == [["job0"], ["job9"]]


def test_jobs_of_other_queues_have_their_turn_between_those_of_a_limited_one(pool, clock):
    pool = pool(1)
    pool.dispatch.lack_lanes = True
    lane = pool.children[0].lanes[0]
    pool.step(held(1), held(2))
    for number in (1, 2):
        assert pool.given == [[]]
        pool.step(limited(9))
        assert pool.given == [["job9"]]
        lane.held.clear()
        pool.step()
        assert pool.given == [[f"job{number}"]]
        lane.held.clear()
        pool.step()


def test_a_suspect_of_a_limited_queue_runs_alone_and_is_put_off_as_not_begun():
    apart = Apart({})
    one = limited(1, start_by=time.monotonic() + 60)
    one.lease = one.lease._replace(suspect=True)
    apart.dispatch.receive([one])
    apart.dispatch.step()
    apart.settlement.flush()
    (outcome,) = apart.store.outcomes
    assert (outcome.begun, outcome.suspect) == (False, True)
    assert outcome.delay > 0
