"""How many leases a worker asks for; what it does with them is seen with real children."""

import time
from types import SimpleNamespace

import pytest

from django_jobs.backends.base import Settled
from django_jobs.worker.pool.crew import Held
from django_jobs.worker.pool.desk import UNSETTLED_BYTES, Desk
from django_jobs.worker.pool.dispatch import CHUNK_BYTES, LONGEST_WAIT, Dispatch
from django_jobs.worker.pool.facts import Done
from django_jobs.worker.pool.marks import Places
from django_jobs.worker.pool.pace import LARGEST_CHUNK
from django_jobs.worker.pool.recycling import ChildLimits, Recycling
from django_jobs.worker.settle import Verdict
from tests.unit.worker.pool.test_crew import child, held, marks

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
        assert len(child.lanes[0].given) == 2
    dispatch.ready.clear()
    child.lanes[0].given.clear()
    dispatch.receive([held(9, size=2 * CHUNK_BYTES)])
    dispatch.step()
    assert len(child.lanes[0].given) == 1  # one of any size has to run


def test_much_that_is_not_settled_yet_is_enough():
    desk = Desk(Settles(), lambda _: None, None, "worker")
    finished = []
    while not desk.has_plenty:
        desk.give_back(held(len(finished), size=1_000_000), "why")
        finished = desk._finished
    assert sum(len(one.run.lease.message.body) for one in finished) > UNSETTLED_BYTES
    assert len(finished) == UNSETTLED_BYTES // 1_000_000 + 1
    verdict = Verdict("requeued", Settled.SETTLED)
    desk.done([Done(one.run, one.outcome, verdict) for one in finished[:2]])
    assert not desk.has_plenty


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
        self.desk = Desk(self.store, None, None, "worker", can_put_off=can_put_off)
        self.dispatch = Dispatch(children, self.desk, Places(1, 4), ChildLimits())

    def suspect(self, number=1):
        one = held(number)
        one.lease = one.lease._replace(suspect=True)
        self.dispatch.receive([one])
        self.dispatch.step()
        self.desk.flush()
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
    assert apart.dispatch.lacks_one_alone
    assert (list(apart.dispatch.ready), apart.dispatch.wanted()) == ([], 4)
    assert apart.delays == sorted(apart.delays)
    assert 0.0 < apart.delays[0] < apart.delays[-1] < 1.0


def test_a_suspect_begins_at_once_in_a_child_that_runs_nothing_else(child, marks):
    child.alone = True
    marks.beat(time.monotonic())
    apart = Apart({0: child})
    first = apart.suspect()
    assert [given.lease.id for given in child.lanes[0].given.values()] == [first.lease.id]
    assert (apart.delays, apart.dispatch.wanted()) == ([], 4)
    assert not apart.dispatch.lacks_one_alone
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
    child.alone = True
    marks.beat(time.monotonic())
    apart = Apart({0: child})
    late = held(1)
    late.lease = late.lease._replace(suspect=True)
    late.ends = time.monotonic()
    apart.dispatch.receive([late])
    apart.dispatch.step()
    apart.desk.flush()
    assert child.is_idle
    assert [(one.delay, one.reason) for one in apart.store.outcomes] == [
        (None, "its lease could not be renewed in time")
    ]


def test_where_a_store_cannot_wait_a_suspect_waits_here():
    apart = Apart({}, can_put_off=False)
    one = apart.suspect()
    assert (list(apart.dispatch.ready), apart.delays) == ([one], [])
    assert apart.dispatch.lacks_one_alone


def test_what_is_put_off_is_known_to_come_back_when_the_store_has_it():
    told = []
    desk = Desk(Settles(), told.extend, None, "worker")
    desk.put_off(held(1), 7.0, "why")
    assert (desk.open, desk.back_at) == (1, 0.0)
    (finished,) = desk._finished
    verdict = Verdict("requeued", Settled.SETTLED, 7.0)
    desk.done([Done(finished.run, finished.outcome, verdict)])
    assert (desk.open, desk.processed) == (0, 0)
    assert desk.back_at == pytest.approx(time.monotonic() + 7.0, abs=1.0)


def test_a_child_for_what_runs_alone_leaves_when_there_is_nothing_for_a_while(child, marks):
    child.alone = True
    marks.beat(time.monotonic())
    apart = Apart({0: child})
    recycling = Recycling(ChildLimits(), SimpleNamespace(children={0: child}), apart.dispatch)
    apart.suspect()
    apart.dispatch._suspect_at -= LONGEST_WAIT
    recycling.step()
    assert not child.dismissed  # it runs one
    child.lanes[0].given.clear()
    recycling.step()
    assert (child.dismissed, child.replaced, child.is_free) == (True, False, False)
