"""Pauses between waits that end at once."""

import pytest

from django_jobs.worker.store import FIRST_RESTRAINT, Restraint


def test_pauses_double_up_to_the_most():
    restraint = Restraint(most=0.03)
    pauses = [restraint.pause_after(0.0) for _ in range(5)]
    assert pauses == pytest.approx([0.005, 0.01, 0.02, 0.03, 0.03])


def test_what_a_wait_has_lasted_already_counts():
    restraint = Restraint(most=1.0)
    restraint.pause_after(0.0)
    assert restraint.pause_after(0.008) == pytest.approx(0.002)


@pytest.mark.parametrize(
    "ends", [Restraint.end, lambda one: one.pause_after(1.0)], ids=["work", "a long wait"]
)
def test_work_and_a_wait_that_lasted_begin_it_anew(ends):
    restraint = Restraint(most=1.0)
    for _ in range(6):
        restraint.pause_after(0.0)
    ends(restraint)
    assert restraint.pause_after(0.0) == FIRST_RESTRAINT
