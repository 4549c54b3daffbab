"""A breaker: what opens it, what passes, and what the one that passes decides."""

from hypothesis import given
from hypothesis import strategies as st

from django_jobs.backends.breakers import CLOSED, Circuit

THRESHOLD, COOLDOWN = 3, 100


def failed(circuit, times, now=0):
    for _ in range(times):
        circuit = circuit.failed("t", now, THRESHOLD)
    return circuit


def test_so_many_failures_in_a_row_open_it():
    assert not failed(CLOSED, THRESHOLD - 1).is_open
    assert failed(CLOSED, THRESHOLD, now=7) == Circuit(THRESHOLD, 7)


def test_a_success_between_begins_the_count_anew():
    circuit = failed(CLOSED, THRESHOLD - 1).succeeded("t")
    assert circuit == CLOSED
    assert not failed(circuit, THRESHOLD - 1).is_open


def test_nothing_passes_until_it_has_cooled_down():
    circuit = failed(CLOSED, THRESHOLD, now=1000)
    assert [circuit.cools_for(now, COOLDOWN) for now in (1000, 1099, 1100, 5000)] == [100, 1, 0, 0]
    assert CLOSED.cools_for(0, COOLDOWN) == 0


def test_the_probe_closes_it_or_opens_it_anew():
    probing = failed(CLOSED, THRESHOLD, now=0).probed_by("probe")
    assert probing.succeeded("probe") == CLOSED
    again = probing.failed("probe", 200, THRESHOLD)
    assert (again.opened_at, again.probe) == (200, "")
    assert again.cools_for(250, COOLDOWN) == 50


def test_what_was_under_way_when_it_opened_decides_nothing():
    probing = failed(CLOSED, THRESHOLD, now=0).probed_by("probe")
    assert probing.succeeded("early") == probing
    assert probing.failed("early", 200, THRESHOLD) == probing
    cooling = failed(CLOSED, THRESHOLD, now=0)
    assert cooling.succeeded("early") == cooling


def test_closed_on_trust_the_next_failure_opens_it():
    trusted = failed(CLOSED, THRESHOLD).probed_by("probe").on_trust(THRESHOLD)
    assert not trusted.is_open
    assert trusted.failed("other", 5, THRESHOLD).is_open
    assert trusted.succeeded("probe") == CLOSED


@given(st.lists(st.booleans(), max_size=40))
def test_closed_it_opens_exactly_when_the_last_so_many_failed(outcomes):
    circuit, row = CLOSED, 0
    for now, works in enumerate(outcomes):
        row = 0 if works else row + 1
        circuit = circuit.succeeded("t") if works else circuit.failed("t", now, THRESHOLD)
        assert circuit.is_open == (row >= THRESHOLD)
        if circuit.is_open:
            break
