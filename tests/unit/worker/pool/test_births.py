"""Births as the parent sees them; with real children they are in the tests of workers."""

import os
import selectors
import socket

import pytest

from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.forkserver import Nursery
from django_jobs.worker.pool.lifecycle import Births
from django_jobs.worker.pool.shared_memory import Places, shared_memory


def test_a_child_that_is_born_while_its_worker_ends_is_told_so():
    places = Places(1)
    memory = shared_memory(places.slots)
    ours, theirs = socket.socketpair()
    nursery = Nursery(ours, memory, lambda: None)
    with theirs, selectors.DefaultSelector() as selector:
        births = Births(nursery, places, selector, print, ())
        births.wish(0)
        births.step()
        _, (descriptor,), _, _ = socket.recv_fds(theirs, 2, 1)  # as the nursery does
        births.close()
        with socket.socket(fileno=descriptor) as sock:
            channel = Channel.for_child(sock)
            sock.settimeout(1.0)
            with pytest.raises(EOFError):
                channel.receive()
    nursery.close()
    os.close(memory)
