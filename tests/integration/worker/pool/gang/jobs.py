"""Handlers for children of a pool. Each writes a line to a file when it begins or ends."""

import asyncio
import contextlib
import contextvars
import ctypes
import gc
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.utils import timezone, translation

from django_jobs import Cancel, job
from django_jobs.backends.registry import backends
from django_jobs.handlers.shell import stray_processes
from django_jobs.worker.pool.channel import Channel
from testproject.shop.models import Order
from tests.integration.worker.pool.gang import parting
from tests.integration.worker.pool.gang.haunting import hang_in

PATIENCE_SECONDS = 60.0


def write(diary, word):
    line = f"{os.getpid()} {word} {time.monotonic():.3f}\n"
    descriptor = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@job(key="gang.note")
def note(diary, word="ran", padding=""):
    write(diary, word)
    return len(padding)


@job(key="gang.hold")
def hold(diary, gate, word="hold"):
    """Run until the gate is a file."""
    write(diary, f"{word}-begins")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    write(diary, f"{word}-ends")


@job(key="gang.nap")
def nap(diary, seconds, word="nap"):
    write(diary, f"{word}-begins")
    time.sleep(seconds)
    write(diary, f"{word}-ends")


@job(key="gang.large")
def large(diary, word, size, padding=""):
    write(diary, word)
    return "r" * size


@job(key="gang.stuck", timeout=0.4, max_retries=0)
def stuck(diary, how):
    write(diary, f"{how}-begins")
    STUCK[how](diary)


def loops(_diary):
    while True:
        pass


def swallows(_diary):
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


def unalarmed(_diary):
    signal.alarm(0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    time.sleep(60)


def regex(_diary):
    re.match(r"(a|a)*$", "a" * 60 + "b")


def holds_the_lock(_diary):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.PyDLL(None).sleep(60)  # PyDLL: in C and without letting go of the interpreter


def grandchild(diary):
    signal.setitimer(signal.ITIMER_REAL, 0)
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    write(diary, f"helper={helper.pid}")
    helper.wait()


STUCK = {
    "loops": loops,
    "swallows": swallows,
    "unalarmed": unalarmed,
    "regex": regex,
    "holds-the-lock": holds_the_lock,
    "grandchild": grandchild,
}


@job(key="gang.die", max_crashes=2)
def die(diary, how):
    write(diary, f"{how}-begins")
    if how == "exit-0":
        os._exit(0)
    if how == "exit-1":
        os._exit(1)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "mute":
        os.closerange(3, 64)
        time.sleep(60)


def own_channel():
    """The one that is open; that of the fork server, whose copy this process is, is closed here."""
    found = (one for one in gc.get_objects() if isinstance(one, Channel))
    return next(one for one in found if one.fileno() >= 0)


GARBAGE = {"request": b"GET / HTTP/1.1\r\n\r\n", "byte": b"\n", "length": b"\xff" * 8}
UNSOUND = {"no-frame": 7, "no-text": (0, 1, "ran", ("Succeeded", 1, 2, 3), None, (0, 0), (1, 2))}


@job(key="gang.garble", max_crashes=2)
def garble(diary, how):
    """Write to the connection to the parent, as code does with the number of a descriptor."""
    write(diary, f"{how}-begins")
    channel = own_channel()
    if how in GARBAGE:
        with socket.socket(fileno=os.dup(channel.fileno())) as stale:
            stale.sendall(GARBAGE[how])
    elif how in UNSOUND:
        channel.send(UNSOUND[how])
    elif how == "endless":
        channel.sock.sendall(struct.pack("<II", channel.key, (1 << 32) - 1))
    time.sleep(PATIENCE_SECONDS if how == "byte" else 0)


@job(key="gang.haunt", max_crashes=1)
def haunt(diary, place):
    """Leave something behind that does not let the process go on, once it comes to a place."""
    write(diary, "haunt")
    hang_in(place)


@job(key="gang.async_haunt", max_crashes=1)
async def async_haunt(diary, place):
    write(diary, "haunt")
    hang_in(place)


@job(key="gang.hog", max_crashes=1)
def hog(diary, gate):
    """Leave a thread that takes the interpreter once the gate is a file, as a bad regex does."""
    write(diary, "hog")
    threading.Thread(target=take_interpreter, args=(Path(gate),), daemon=True).start()


def take_interpreter(gate):
    while not gate.exists():
        time.sleep(0.01)
    # In one call, so that nothing is run any more when the file is there that tells of it.
    ctypes.PyDLL(None).system(f"touch {gate}-taken; exec sleep 60".encode())


@job(key="gang.messy")
def messy(diary):
    """Leaves a transaction open, with something in it, and a thread running."""
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    transaction.atomic().__enter__()
    Order.objects.create(email="messy@example.com", total=1)
    write(diary, "messy")


@job(key="gang.order")
def order(diary):
    assert not connection.in_atomic_block
    Order.objects.create(email="tidy@example.com", total=1)
    write(diary, "order")


@job(key="gang.inventory")
def inventory(diary):
    """What a child has inherited: its open descriptors, beside its own connections."""
    told = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a list of numbers
        try:
            told.append(f"{name}={Path('/proc/self/fd', name).readlink()}".replace(" ", ""))
        except OSError:
            continue
    write(diary, ",".join(told))


@job(key="gang.atomic", atomic=True, timeout=4.5)  # on SQLite below a third of the lease
def atomic(diary, end=""):
    Order.objects.create(email="atomic@example.com", total=1)
    write(diary, "atomic")
    if end == "dies":
        os._exit(7)
    if end.startswith("hook"):
        transaction.on_commit(lambda: int(end) if end == "hook-raises" else sys.exit(end))
        transaction.on_commit(lambda: write(diary, "next-hook"))


remembered = contextvars.ContextVar("remembered", default="nothing")


@job(key="gang.surroundings")
def surroundings(diary, word):
    """What the run finds around itself, and then changes for those that come after it."""
    found = [remembered.get(), translation.get_language(), timezone.get_current_timezone_name()]
    remembered.set(word)
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    write(diary, word)
    return found


@job(key="gang.sets_the_clock_back")
def sets_the_clock_back(diary, seconds):
    """By an hour, in its own process."""
    write(diary, "sets-the-clock-back")
    time.sleep(seconds)
    times = time.time, time.time_ns
    time.time, time.time_ns = (lambda: times[0]() - 3600), (lambda: times[1]() - 3600 * 10**9)


@job(key="gang.parts")
def parts(diary, *hows, told="", dies=False):
    """Have exit hooks, as libraries have that are first used in a job."""
    write(diary, "parts")
    parting.register(diary, *hows)
    if told:
        parting.tracker.tell(diary, told)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)


@job(key="gang.has_folder")
def has_folder(diary, word):
    write(diary, word)
    return parting.has_folder()


@job(key="gang.async_nap")
async def async_nap(diary, seconds, word="nap"):
    write(diary, f"{word}-begins")
    print(f"{word} says hello")
    found = remembered.get()
    remembered.set(word)
    await asyncio.sleep(seconds)
    write(diary, f"{word}-ends")
    return found


@job(key="gang.async_hold")
async def async_hold(diary, gate, word="hold"):
    """Run until the gate is a file."""
    write(diary, f"{word}-begins")
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - a gate of another process
        await asyncio.sleep(0.01)
    write(diary, f"{word}-ends")


@job(key="gang.async_block")
async def async_block(diary, gate):
    """A mistake that is to be survived: nothing else goes on in its process."""
    write(diary, "block-begins")
    while not Path(gate).exists():  # noqa: ASYNC240 - as said
        time.sleep(0.01)  # noqa: ASYNC251 - as said


@job(key="gang.async_stuck", timeout=0.4)
async def async_stuck(diary, how):
    write(diary, f"{how}-begins")
    while how == "swallows":
        with contextlib.suppress(BaseException):
            await asyncio.sleep(60)
    if how == "blocks":
        time.sleep(60)  # noqa: ASYNC251 - the mistake that is to be survived
    await asyncio.sleep(60)


@job(key="gang.async_exits")
async def async_exits(diary):
    """A task of a task: asyncio stops its loop for these."""

    async def leave():
        sys.exit(3)

    write(diary, "exits")
    await asyncio.gather(leave())


@job(key="gang.async_messy")
async def async_messy(diary):
    def leave_open():
        transaction.atomic().__enter__()
        Order.objects.create(email="messy@example.com", total=1)

    await sync_to_async(leave_open)()
    write(diary, "messy")


@job(key="gang.async_order")
async def async_order(diary):
    in_block = await sync_to_async(lambda: connection.in_atomic_block)()
    assert not in_block
    await Order.objects.acreate(email="tidy@example.com", total=1)
    write(diary, "order")


@job(key="gang.hoard")
def hoard(diary, megabytes, word="hoard"):
    """Keep memory, and all of it in use."""
    HOARDED.append(b"x" * (megabytes << 20))
    write(diary, word)


HOARDED = []


@job(key="gang.census")
def census(diary):
    """The threads of a child, by name."""
    write(diary, ",".join(sorted(thread.name for thread in threading.enumerate())))


@job(key="gang.fail")
def fail(message):
    raise ValueError(message)


@job(key="gang.fork")
def fork(diary, how):
    """Both processes leave the handler; the copy of the one that was asked raises there."""
    copy = os.fork()
    write(diary, "original" if copy else "copy")
    if not copy and how == "raises":
        raise ValueError("the copy fails")
    if copy:
        os.waitpid(copy, 0)


@job(key="gang.async_fork")
async def async_fork(diary, how):
    fork(diary, how)


@job(key="gang.watch", takes_context=True)
def watch(context, diary, how, word="watch"):
    """Run until somebody asks it to stop, and hear of it in one way or another."""
    write(diary, f"{word}-begins")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if how == "calls-off" and context.cancelled:
            raise Cancel("asked to stop")
        if how == "looks" and context.cancelled:
            write(diary, f"{word}-saw-it")
            raise RuntimeError("half done")
        if how == "returns" and context.cancelled:
            return "tidied up"
        time.sleep(0.02)
    return None


@job(key="gang.awatch")
async def awatch(diary, word="awatch"):
    write(diary, f"{word}-begins")
    await asyncio.sleep(PATIENCE_SECONDS)


@job(key="gang.claimed", takes_context=True)
def claimed(context, diary):
    """When it was claimed, by the clock of Redis."""
    write(diary, f"claimed-{backends['redis'].find(context.id).extra['leased_at']}")


@job(key="gang.kept")
def kept():
    return stray_processes.forbids_dumps()
