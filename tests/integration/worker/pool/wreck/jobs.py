"""Handlers that break what they run in, each in a way of its own."""

import asyncio
import contextlib
import itertools
import locale
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from decimal import getcontext
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.utils import timezone, translation

from django_jobs import job
from testproject.shop.models import Order
from tests.integration.worker.pool.gang.jobs import write

PATIENCE_SECONDS = 60.0
BEAT_SECONDS = 0.01
ENOUGH_BEATS = 5


@job(key="wreck.pulse")
def pulse(diary, gate, word="pulse"):
    """Write a line every hundredth of a second until the gate, or one of its own, is a file."""
    gates = [Path(gate), Path(f"{gate}.{os.getpid()}")]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(gate.exists() for gate in gates) and time.monotonic() < deadline:
        write(diary, word)
        time.sleep(BEAT_SECONDS)
    write(diary, f"{word}-ends")
    return os.getpid()


@job(key="wreck.turn")
def turn(diary, word, gate=""):
    """Short, unless it is given a gate to wait for."""
    write(diary, f"{word}-begins")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while gate and not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(BEAT_SECONDS)
    write(diary, f"{word}-ends")


# ------------------------------------------------------------------------------- without an end


@job(key="wreck.endless", timeout=0.4, max_retries=0)
def endless(diary, how):
    ENDLESS[how](diary)


def swallows_exceptions(diary):
    write(diary, "swallows-exceptions-begins")
    while True:
        try:
            time.sleep(0.01)
            int("again")
        except Exception:  # noqa: BLE001, S110 - the fault that is shown
            pass


def ignores_the_alarm(diary):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    write(diary, "ignores-the-alarm-begins")
    time.sleep(60)


def masks_the_alarm(diary):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    write(diary, "masks-the-alarm-begins")
    time.sleep(60)


def sleeps_and_catches_all(diary):
    write(diary, "sleeps-and-catches-all-begins")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.2)


def stays_in_c(diary):
    """A loop in C that neither lets go of the interpreter nor looks for signals."""
    enough = threading.Event()

    def beat():
        for count in itertools.count(1):
            write(diary, "beat")
            if count >= ENOUGH_BEATS:
                enough.set()
            time.sleep(BEAT_SECONDS)

    threading.Thread(target=beat, daemon=True).start()
    enough.wait()
    write(diary, "stays-in-c-begins")
    assert 0 in itertools.repeat(1)


ENDLESS = {
    "swallows-exceptions": swallows_exceptions,
    "ignores-the-alarm": ignores_the_alarm,
    "masks-the-alarm": masks_the_alarm,
    "sleeps-and-catches-all": sleeps_and_catches_all,
    "stays-in-c": stays_in_c,
}


# --------------------------------------------------------------------------- with an end too soon


@job(key="wreck.ends", max_crashes=2, timeout=0.4)
def ends(diary, how):
    write(diary, f"{how}-begins")
    ENDS[how]()


def aborts():
    os.abort()


def unhandled_alarm():
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    time.sleep(60)


ENDS = {"aborts": aborts, "unhandled-alarm": unhandled_alarm}


# ---------------------------------------------------------------------------- without being ended


@job(key="wreck.poison", max_retries=0)
def poison(diary, how):
    write(diary, how)
    POISONS[how]()


def out_of_memory():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), hard))
    try:
        bytearray(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def recurses():
    recurses()


def exits():
    sys.exit(3)


def interrupts():
    raise KeyboardInterrupt


def closes_its_streams():
    for descriptor in range(3):
        os.close(descriptor)
    raise ValueError("no streams left")


def loses_its_folder():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    raise ValueError("no folder left")


def empties_its_environment():
    os.environ.clear()
    raise ValueError("no environment left")


POISONS = {
    "out-of-memory": out_of_memory,
    "recurses": recurses,
    "exits": exits,
    "interrupts": interrupts,
    "closes-its-streams": closes_its_streams,
    "loses-its-folder": loses_its_folder,
    "empties-its-environment": empties_its_environment,
}


# ----------------------------------------------------------------------------------- connections


@job(key="wreck.breaks")
def breaks(diary, how):
    """Break the connection and end well."""
    Order.objects.count()
    write(diary, f"{how}-breaks")
    BREAKS[how]()


def shuts_the_socket():
    with _socket_copy() as copy:
        copy.shutdown(socket.SHUT_RDWR)


def closes_the_driver():
    connection.connection.close()


def is_ended_by_the_server():
    if connection.vendor == "postgresql":
        statement = "SELECT pg_terminate_backend(pg_backend_pid())"
    else:
        statement = "KILL CONNECTION_ID()"
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
    except Exception:  # noqa: BLE001, S110 - that is the point
        pass


def leaves_autocommit_off():
    transaction.set_autocommit(False)
    Order.objects.create(email="messy@example.com", total=1)


def leaves_nested_blocks():
    for _ in range(3):
        transaction.atomic().__enter__()
        Order.objects.create(email="messy@example.com", total=1)


def leaves_a_failed_block():
    transaction.atomic().__enter__()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")
    except Exception:  # noqa: BLE001, S110 - that is the point
        pass


def leaves_an_unread_cursor():
    cursor = connection.cursor()
    cursor.execute("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
    cursor.fetchone()


def _socket_copy():
    driver = connection.connection
    end = driver if hasattr(driver, "fileno") else driver._sock
    return socket.socket(fileno=os.dup(end.fileno()))


BREAKS = {
    "shuts-the-socket": shuts_the_socket,
    "closes-the-driver": closes_the_driver,
    "is-ended-by-the-server": is_ended_by_the_server,
    "leaves-autocommit-off": leaves_autocommit_off,
    "leaves-nested-blocks": leaves_nested_blocks,
    "leaves-a-failed-block": leaves_a_failed_block,
    "leaves-an-unread-cursor": leaves_an_unread_cursor,
}


# ------------------------------------------------------------------------ sessions of a database

SLOW = {"postgresql": "SELECT 'slow', pg_sleep(1)", "mysql": "SELECT 'slow', SLEEP(1)"}
SESSION = {
    "postgresql": (
        "CREATE TEMPORARY TABLE left_behind (a INT)",
        "SELECT pg_advisory_lock(42)",
        "SET statement_timeout = '59s'",
    ),
    "mysql": (
        "CREATE TEMPORARY TABLE left_behind (a INT)",
        "SELECT GET_LOCK('left_behind', 0)",
        "SET SESSION lock_wait_timeout = 59",
    ),
    "sqlite": ("CREATE TEMPORARY TABLE left_behind (a INT)", "PRAGMA query_only = 1"),
}
# Nothing of the above; both locks would be had again by the session that has them.
LOOKS = {
    "postgresql": (
        "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42) +"
        " (current_setting('statement_timeout') = '59s')::int +"
        " (to_regclass('pg_temp.left_behind') IS NOT NULL)::int"
    ),
    "mysql": "SELECT IS_FREE_LOCK('left_behind') = 0 OR @@lock_wait_timeout = 59",
    "sqlite": "SELECT count(*) FROM sqlite_temp_master WHERE name = 'left_behind'",
}


def asked(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()


@job(key="wreck.waits", timeout=0.4, max_retries=0)
def waits_for_the_database(diary):
    write(diary, "waits")
    asked(SLOW[connection.vendor])


@job(key="wreck.leaves", max_retries=0)
def leaves(diary):
    write(diary, "leaves")
    _leave()


def _leave():
    with connection.cursor() as cursor:
        for statement in SESSION[connection.vendor]:
            cursor.execute(statement)
    raise ValueError("left a session behind")


@job(key="wreck.looks")
def looks(diary):
    """How much is left of an earlier session."""
    write(diary, "looks")
    return int(asked(LOOKS[connection.vendor])[0])


@job(key="wreck.async_waits", timeout=0.4, max_retries=0)
async def async_waits_for_the_database(diary):
    write(diary, "waits")
    await sync_to_async(asked)(SLOW[connection.vendor])


@job(key="wreck.async_leaves", max_retries=0)
async def async_leaves(diary):
    write(diary, "leaves")
    await sync_to_async(_leave)()


@job(key="wreck.async_looks")
async def async_looks(diary):
    write(diary, "looks")
    return int((await sync_to_async(asked)(LOOKS[connection.vendor]))[0])


@job(key="wreck.async_relies")
async def async_relies_on_its_session(diary, gate):
    """Use what it has made in its session, with a while between."""
    await sync_to_async(_make)()
    write(diary, "relies-begins")
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - a gate of another process
        await asyncio.sleep(BEAT_SECONDS)
    return (await sync_to_async(asked)("SELECT count(*) FROM relied_on"))[0]


def _make():
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE relied_on (a INT)")


# ----------------------------------------------------------------------------------- the process

SIGNALS = [signal.SIGALRM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE]
SIGNALS += [signal.SIGTERM]


def found():
    """What a job finds in its process, some of it as programs see it that it starts."""
    umask = os.umask(0)
    os.umask(umask)
    seen = subprocess.run(["/usr/bin/env"], check=True, stdout=subprocess.PIPE, text=True)
    handlers = [signal.getsignal(number) for number in SIGNALS]
    return {
        "folder": str(Path.cwd()),
        "umask": umask,
        "variables": sorted(f"{name}={value}" for name, value in os.environ.items()),
        "variables of programs": sorted(seen.stdout.splitlines()),
        "zone of C": time.localtime(0).tm_hour,
        "socket timeout": socket.getdefaulttimeout(),
        "locale": locale.setlocale(locale.LC_ALL),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "handlers": [getattr(one, "__qualname__", str(one)) for one in handlers],
        "precision": getcontext().prec,
        "language": translation.get_language(),
        "zone": timezone.get_current_timezone_name(),
        "streams": [type(sys.stdout).__name__, type(sys.stderr).__name__],
    }


def change():
    os.chdir(tempfile.gettempdir())
    os.umask(0o377)
    os.environ.pop("PATH", None)
    os.environ.update(LEFT="behind", TZ="Asia/Tokyo", HOME="/nowhere")
    time.tzset()
    os.environ = dict(os.environ)  # noqa: B003 - that is the point
    socket.setdefaulttimeout(0.01)
    others = {"C", "C.UTF-8"} - {locale.setlocale(locale.LC_ALL)}
    locale.setlocale(locale.LC_ALL, min(others))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1])
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
    getcontext().prec = 3
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - as above


@job(key="wreck.finds")
def finds(diary):
    write(diary, "finds")
    return found()


@job(key="wreck.changes", timeout=None)
def changes(diary):
    write(diary, "changes")
    change()


@job(key="wreck.async_finds")
async def async_finds(diary):
    write(diary, "finds")
    return found()


@job(key="wreck.async_changes", timeout=None)
async def async_changes(diary):
    write(diary, "changes")
    change()


@job(key="wreck.naps", timeout=None)
def naps(diary):
    write(diary, "naps")
    time.sleep(0.4)
