"""Job ids: UUID version 7, unique, and increasing in the order they were made."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import RFC_4122, UUID, uuid4

import pytest

from django_jobs import ids
from django_jobs.backends import breakers
from django_jobs.backends.registry import backends
from django_jobs.execution import output
from django_jobs.ids import made_at, new_id, parse_id

A_WHILE = 10**9  # nanoseconds


def milliseconds_in(identifier: str) -> int:
    return UUID(identifier).int >> 80


class SetClock:
    """Stands in for the module ``time``: a clock that stays where it is put."""

    def __init__(self):
        self.now = time.time_ns()

    def time_ns(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """A clock to set, in a process that has made no id before."""
    clock = SetClock()
    monkeypatch.setattr(ids, "time", clock)
    monkeypatch.setattr(ids, "_last", 0)
    return clock


def test_an_id_is_a_uuid_of_version_seven():
    for _ in range(1_000):
        identifier = UUID(new_id())
        assert identifier.version == 7
        assert identifier.variant == RFC_4122


def test_an_id_is_spelled_canonically():
    for _ in range(1_000):
        identifier = new_id()
        assert identifier == str(UUID(identifier))


def test_an_id_begins_with_the_millisecond_it_was_made_in():
    before = time.time_ns() // 1_000_000
    made_in = milliseconds_in(new_id())
    # Ids made in a burst may run ahead of the clock by the counter they use up.
    assert before <= made_in <= time.time_ns() // 1_000_000 + 1_000


def test_a_hundred_thousand_ids_rise_and_none_occurs_twice():
    made = [new_id() for _ in range(100_000)]
    assert all(earlier < later for earlier, later in pairwise(made))
    assert len(set(made)) == len(made)


def test_threads_get_rising_ids_and_never_the_same():
    start = threading.Barrier(8)

    def make(_):
        start.wait()
        return [new_id() for _ in range(5_000)]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(8)))
    for of_one_thread in made:
        assert all(earlier < later for earlier, later in pairwise(of_one_thread))
    assert len({identifier for of_one_thread in made for identifier in of_one_thread}) == 40_000


def test_the_time_parts_of_all_ids_differ_so_that_order_never_hangs_on_chance():
    stamps = [UUID(new_id()).int >> 64 for _ in range(10_000)]
    assert len(set(stamps)) == len(stamps)


def test_ids_rise_while_the_clock_stands_still(clock):
    made = [new_id() for _ in range(10_000)]
    assert all(earlier < later for earlier, later in pairwise(made))


def test_ids_rise_when_the_clock_is_set_back(clock):
    before = new_id()
    clock.now -= 3600 * A_WHILE
    after = [new_id() for _ in range(5_000)]
    assert all(earlier < later for earlier, later in pairwise([before, *after]))


def test_ids_follow_the_clock_again_when_it_has_caught_up(clock):
    new_id()
    clock.now -= A_WHILE
    new_id()
    clock.now += 10 * A_WHILE
    assert milliseconds_in(new_id()) == clock.now // 1_000_000


def test_the_fraction_of_a_millisecond_is_in_the_id(clock):
    clock.now = 1_700_000_000_000 * 1_000_000
    at_the_start = UUID(new_id())
    clock.now += 500_000
    in_the_middle = UUID(new_id())
    assert milliseconds_in(str(at_the_start)) == milliseconds_in(str(in_the_middle))
    assert (at_the_start.int >> 64) & 0xFFF == 0
    assert (in_the_middle.int >> 64) & 0xFFF == 0x800


def test_the_random_part_uses_all_its_bits():
    parts = [UUID(new_id()).int & (1 << 62) - 1 for _ in range(2_000)]
    for bit in range(62):
        assert 0 < sum(part >> bit & 1 for part in parts) < len(parts)


def test_an_id_is_parsed_from_any_usual_spelling():
    identifier = new_id()
    bare = identifier.replace("-", "")
    for spelling in (identifier, identifier.upper(), bare, f"{{{bare}}}", f"urn:uuid:{identifier}"):
        assert parse_id(spelling) == identifier
    assert parse_id(UUID(identifier)) == identifier


def test_an_id_of_another_version_is_an_id_too():
    identifier = str(uuid4())
    assert parse_id(identifier) == identifier


@pytest.mark.parametrize(
    "nonsense",
    ["", " ", "42", "x" * 36, "0" * 31, "0" * 33, None, 42, 4.2, b"0" * 32, [], {}],
    ids=repr,
)
def test_what_is_no_id_is_none(nonsense):
    assert parse_id(nonsense) is None


def test_an_id_tells_when_it_was_made():
    before = time.time_ns() // 1_000_000
    made = made_at(UUID(new_id()))
    assert before * 1000 <= made <= time.time_ns() // 1000 + 1000
    assert made_at(uuid4()) is None


@pytest.mark.parametrize(
    "lock",
    [
        lambda: ids._lock,
        lambda: output._streams._lock,
        lambda: breakers._lock,
        lambda: backends._lock,
    ],
    ids=["ids", "output", "circuits", "backends"],
)
def test_a_copy_of_this_process_waits_for_no_thread_that_it_has_not(lock):
    """Forked while another thread held a lock, which is then held for ever in the copy."""
    with lock():
        pid = os.fork()
        if pid == 0:
            os._exit(not lock().acquire(blocking=False))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
