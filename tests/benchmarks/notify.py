"""What NOTIFY costs those who enqueue: processes that commit together, with it on and off.

DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.notify

A third contestant sends its NOTIFY inside every transaction, as is often done: there the
server lets one commit at a time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.benchmarks.harness import print_conditions, throwaway_database, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMITTERS = 8
ROUNDS = 9
SECONDS = 2.0
OFF, ON, INSIDE = "NOTIFY off", "NOTIFY on (default)", "NOTIFY inside every transaction"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--committers", type=int, default=COMMITTERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    with throwaway_database():
        print_conditions()
        with listener() as heard:
            figures = measured(options.committers, options.rounds, options.seconds, heard)
        write_json(options.json, figures)


def measured(committers: int, rounds: int, seconds: float, heard: list[int]) -> dict[str, float]:
    """Commits per second of all processes together, in turns within every round."""
    from django.db import connections

    connections.close_all()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(committers + 1)
    crew = []
    for _ in range(committers):
        ours, theirs = context.Pipe()
        process = context.Process(target=_commit, args=(theirs, barrier), daemon=True)
        process.start()
        crew.append(ours)
    rates: dict[str, list[float]] = {OFF: [], ON: [], INSIDE: []}
    told: dict[str, list[float]] = {OFF: [], ON: [], INSIDE: []}
    for _ in range(rounds):
        for mode, found in rates.items():
            _truncate()
            for one in crew:
                one.send((mode, seconds))
            before = heard[0]
            barrier.wait()
            found.append(sum(one.recv() for one in crew) / seconds)
            told[mode].append((heard[0] - before) / seconds)
    for one in crew:
        one.send(None)
    print(f"\n{committers} processes, each a job per transaction ({rounds} rounds)")
    print(f"  {'':<36}{'commits/s':>12}{'ratio':>8}{'heard/s':>10}")
    for mode, found in rates.items():
        pairs = zip(found, rates[OFF], strict=True)
        ratio = statistics.median(one / off for one, off in pairs)
        print(
            f"  {mode:<36}{statistics.median(found):>12,.0f}{ratio:>8.2f}"
            f"{statistics.median(told[mode]):>10.0f}"
        )
    return {
        f"notify_{name}_ratio": statistics.median(
            one / off for one, off in zip(rates[mode], rates[OFF], strict=True)
        )
        for name, mode in (("on", ON), ("inside", INSIDE))
    }


def _commit(pipe: Any, barrier: Any) -> None:
    from django.db import connection, transaction

    from django_jobs.backends.database import DatabaseBackend
    from django_jobs.backends.database.notify import CHANNEL
    from django_jobs.testing.factories import make_outgoing

    quiet = DatabaseBackend("database", {"NOTIFY": False})
    backends = {OFF: quiet, INSIDE: quiet, ON: DatabaseBackend("database", {})}
    connection.ensure_connection()
    while (told := pipe.recv()) is not None:
        mode, seconds = told
        backend = backends[mode]
        barrier.wait()
        count, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            with transaction.atomic():
                backend.enqueue([make_outgoing("default", backend="database")])
                if mode == INSIDE:
                    with connection.cursor() as cursor:
                        cursor.execute(f"SELECT pg_notify({CHANNEL}, 'database default')")
            count += 1
        pipe.send(count)


def _truncate() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_jobs_job")
        cursor.execute("CHECKPOINT")


@contextmanager
def listener() -> Iterator[list[int]]:
    """One worker's ear: how many notifications it has heard so far."""
    import psycopg
    from django.db import connection

    from django_jobs.backends.database.notify import CHANNEL

    heard, ended = [0], threading.Event()
    own = psycopg.connect(**connection.get_connection_params(), autocommit=True)
    row = own.execute(f"SELECT {CHANNEL}").fetchone()
    assert row is not None
    own.execute(f'LISTEN "{row[0]}"')

    def listen() -> None:
        while not ended.is_set():
            heard[0] += sum(1 for _ in own.notifies(timeout=0.1))

    thread = threading.Thread(target=listen)
    # The committers are forked before it runs: a thread does not survive that.
    starter = threading.Timer(0.5, thread.start)
    starter.start()
    try:
        yield heard
    finally:
        ended.set()
        starter.join()
        thread.join()
        own.close()


if __name__ == "__main__":
    main()
