"""How many leases a worker asks for; what it does with them is seen with real children."""

import pytest

from django_jobs.worker.pool.crew import Held
from django_jobs.worker.pool.dispatch import Dispatch
from django_jobs.worker.pool.marks import Places
from django_jobs.worker.pool.pace import LARGEST_CHUNK
from django_jobs.worker.pool.recycling import ChildLimits
from tests.unit.worker.pool.test_crew import held

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


def test_of_jobs_that_take_a_while_it_wants_each_that_it_can_use(dispatch):
    (first,) = hold(dispatch, 1)
    dispatch.observe(first, 0.01)
    assert dispatch.wanted() == 2
    hold(dispatch, 1)
    assert dispatch.wanted() == 1
