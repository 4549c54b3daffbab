"""What is taken back does not run, what runs is not taken back."""

import os
import time

import pytest

from django_jobs.worker.pool.shared_memory import (
    LEAST_ISOLATED,
    Board,
    Places,
    shared_memory,
)


@pytest.fixture
def memory():
    descriptor = shared_memory(3)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def marks(memory):
    marks = Board(memory, 3).marks(1)
    marks.reset()
    return marks


def test_begin_and_done(marks):
    before = time.monotonic()
    assert marks.begin(1)
    assert before <= marks.began_at <= time.monotonic()
    assert (marks.started, marks.ran, marks.finished) == (1, 1, 0)
    marks.run_until(12.5)
    assert marks.deadline == 12.5
    marks.done(1)
    assert (marks.started, marks.finished, marks.deadline) == (1, 1, 0.0)


def test_what_was_taken_back_is_not_begun(marks):
    assert marks.begin(1)
    assert marks.take_back_from(3) == 1
    assert marks.begin(2)
    assert not marks.begin(3)
    assert (marks.started, marks.ran) == (2, 2)
    marks.allow_all()
    assert marks.begin(4)


def test_nothing_is_begun_after_its_lease_can_have_ended(marks):
    marks.hold_until(time.monotonic() + 60)
    assert marks.begin(1)
    marks.hold_until(time.monotonic() - 0.001)
    assert not marks.begin(2)
    assert (marks.started, marks.ran) == (1, 1)
    marks.hold_until(time.monotonic() + 60)  # it was renewed all the same
    assert marks.begin(3)


def test_slots_do_not_touch_each_other(memory, marks):
    before, after = Board(memory, 3).marks(0), Board(memory, 3).marks(2)
    for other in (before, after):
        other.reset()
    marks.begin(2**40)
    assert (before.started, after.started) == (0, 0)
    assert Board(memory, 3).marks(1).started == 2**40


def test_no_number_is_both_run_and_taken_back(memory):
    """Two processes race for each number; both claims or none of them would be an error."""
    rounds = 3000
    parent = Board(memory, 3).marks(0)
    parent.reset()
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        child = Board(memory, 3).marks(0)
        ran = bytes(child.begin(number) for number in range(1, rounds + 1))
        os.write(writes, ran)
        os._exit(0)
    os.close(writes)
    taken = set()
    deadline = time.monotonic() + 30
    while (started := parent.started) < rounds - 1 and time.monotonic() < deadline:
        number = started + 1
        if number > parent.take_back_from(number):
            # Like the parent: until the child has come across it, nothing is allowed.
            while parent.started not in (number, number - 1) and time.monotonic() < deadline:
                pass
            taken.add(number)
            break
        parent.allow_all()
    ran = b""
    while chunk := os.read(reads, 65536):
        ran += chunk
    os.close(reads)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not [number for number in taken if ran[number - 1]]


def test_a_process_shows_that_it_goes_on(marks):
    assert marks.beaten_at == 0.0
    marks.beat(7.5)
    assert (marks.beaten_at, marks.deadline, marks.started) == (7.5, 0.0, 0)


def test_every_lane_has_a_slot_of_its_own():
    places = Places(3, 4)
    slots = [slot for child in places.children for slot in places.of_child(child)]
    assert slots == list(range(places.slots))
    assert {len(places.of_child(child)) for child in places.children} == {4}


@pytest.mark.parametrize(
    ("places", "lanes", "alone"),
    [(Places(2), 2, 0), (Places(1, 20), 20, LEAST_ISOLATED), (Places(9, 20), 180, 9)],
)
def test_each_child_has_a_spare_place_and_so_has_what_runs_alone(places, lanes, alone):
    assert (places.lanes, places.isolated) == (lanes, alone)
    assert len(places.children) == 2 * places.processes + alone
    assert [places.signal_process, places.scheduler_process] == [
        len(places.children),
        len(places.children) + 1,
    ]
