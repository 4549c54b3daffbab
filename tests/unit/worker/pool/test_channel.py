"""Frames arrive whole and in order, and posting never waits."""

import socket
import threading

import pytest

from django_jobs.worker.pool.channel import Channel


@pytest.fixture
def ends():
    pair = [Channel(end) for end in socket.socketpair()]
    yield pair
    for end in pair:
        end.close()


def test_frames_arrive_one_by_one_and_in_order(ends):
    ours, theirs = ends
    for frame in [(1, "a"), ["b", None, 2.5], {"c": b"\x00"}]:
        ours.send(frame)
    assert [theirs.receive() for _ in range(3)] == [(1, "a"), ["b", None, 2.5], {"c": b"\x00"}]


def test_what_is_not_there_yet_is_not_waited_for(ends):
    assert ends[0].receive_ready() == []


def test_the_end_is_an_eof_and_what_came_before_it_counts(ends):
    ours, theirs = ends
    ours.send("last")
    ours.close()
    assert theirs.receive_rest() == ["last"]
    with pytest.raises(EOFError):
        theirs.receive_ready()


def test_what_a_dead_process_said_is_read_though_others_hold_its_end(ends):
    ours, theirs = ends
    ours.send("last")
    assert theirs.receive_rest() == ["last"]


def test_posting_more_than_there_is_room_for_does_not_wait(ends):
    ours, theirs = ends
    frames = ["x" * 250_000, *range(20), "y" * 5_000_000]
    for frame in frames:
        ours.post(frame)
    assert ours.is_full
    got = []
    reader = threading.Thread(target=lambda: got.extend(theirs.receive() for _ in frames))
    reader.start()
    while ours.is_full:
        ours.flush()
    reader.join(10)
    assert got == frames


def test_both_sides_may_be_full_at_once(ends):
    """A child that sends results while it is sent bodies: only the child may wait."""
    ours, theirs = ends
    large, got = "z" * 3_000_000, []

    def child():
        theirs.send(large)
        got.append(theirs.receive())

    other = threading.Thread(target=child)
    other.start()
    ours.post(large)
    heard = []
    while not heard or ours.is_full:
        ours.flush()
        heard += ours.receive_ready()
    other.join(10)
    assert heard == got == [large]


def test_posting_to_nobody_is_an_error(ends):
    ours, theirs = ends
    theirs.close()
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the moment
        ours.post("anybody?")
