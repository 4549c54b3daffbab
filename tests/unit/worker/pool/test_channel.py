"""Frames arrive whole and in order, and posting never waits."""

import marshal
import socket
import struct
import threading

import pytest

from django_jobs.worker.pool.channel import MOST_BYTES, Channel


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


@pytest.fixture
def family():
    """The parent's end, the child's, and the socket of the latter, which user code can find."""
    ours, theirs = socket.socketpair()
    parent = Channel.for_parent(ours)
    child = Channel.for_child(theirs)
    yield parent, child, theirs
    ours.close()
    theirs.close()


def framed(channel, frame):
    """A frame as it travels from an end; the other one does not see it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        same = Channel(ours, channel.key)
        same.send(frame)
        return theirs.recv(4096)


def key_of(channel):
    return framed(channel, None)[:4]


def test_a_parent_and_its_child_understand_each_other(family):
    parent, child, _ = family
    child.send((0, 1, "skipped"))
    parent.post(("run", []))
    assert parent.receive_ready() == [(0, 1, "skipped")]
    assert child.receive() == ("run", [])
    assert not parent.garbled


@pytest.mark.parametrize(
    "stray",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x05\x00\x00\x00hello",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        struct.pack("<II", 0, 5) + marshal.dumps(7),
    ],
)
def test_bytes_without_the_key_are_never_read_and_what_came_before_them_counts(family, stray):
    parent, child, found = family
    child.send("before")
    found.sendall(stray)
    child.send("behind")
    assert parent.receive_ready() == ["before"]
    assert parent.garbled == "bytes that are no frame"
    child.send("later")
    assert parent.receive_ready() == parent.receive_rest() == []


def test_less_than_a_header_is_known_for_what_it_is(family):
    parent, _, found = family
    found.sendall(b"\x00" if key_of(parent)[:1] != b"\x00" else b"\x01")
    assert parent.receive_ready() == []
    assert parent.garbled


def test_half_a_frame_is_waited_for(family):
    parent, child, found = family
    whole = framed(child, "late")
    for place in range(len(whole)):
        found.sendall(whole[place : place + 1])
        assert not parent.garbled
        assert parent.receive_ready() == (["late"] if place == len(whole) - 1 else [])
        assert parent.is_mid_frame == (place < len(whole) - 1)


@pytest.mark.parametrize("length", [MOST_BYTES + 1, (1 << 32) - 1])
def test_a_frame_that_no_child_can_send_is_not_waited_for(family, length):
    parent, _, found = family
    found.sendall(key_of(parent) + struct.pack("<I", length))
    assert parent.receive_ready() == []
    assert parent.garbled == f"a frame of {length:,} bytes"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"(",
        b"[\xff\xff\xff\xff",
        b"r\x05\x00\x00\x00",
        b"(\x01\x00\x00\x00" * 5000 + b"N",
        b"{" + marshal.dumps([]) + b"N0",
    ],
)
def test_what_cannot_be_unmarshalled_harms_nobody(family, body):
    parent, _, found = family
    found.sendall(key_of(parent) + struct.pack("<I", len(body)) + body)
    assert parent.receive_ready() == []
    assert parent.garbled.startswith("a frame that cannot be read: ")


def test_a_child_hears_so_rather_than_send_too_much(family):
    _, child, _ = family
    with pytest.raises(ValueError, match="more than 8,388,608"):
        child.send("x" * MOST_BYTES)


def test_what_others_go_on_to_write_for_a_dead_process_is_read_to_some_end(ends):
    ours, theirs = ends
    over = threading.Event()

    def write():
        while not over.is_set():
            ours.send("x" * 100_000)

    writer = threading.Thread(target=write)
    writer.start()
    frames = theirs.receive_rest()
    over.set()
    while writer.is_alive():
        theirs.receive_rest()
        writer.join(0.001)
    assert sum(map(len, frames)) < 3 * MOST_BYTES
