"""The child process that enqueues for one contestant: orders on stdin, answers on stdout.

Every contestant has one, so that each is fed by its own library in a site of its own.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from tests.benchmarks.rivals.contestants import chosen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.rivals.adapters.djangos_tasks import TasksSite
    from tests.benchmarks.rivals.site import Site

SOONEST, LATEST = 0.05, 0.15
FED_AT_ONCE = {True: 10_000, False: 200}  # in bulk or not: a second or less, in quiet


def prepare(site: Site) -> None:
    site.prepare()


def fill(site: Site, jobs: int, singly: int) -> dict[str, float]:
    """Enqueue some one by one and the others in bulk; how many of each a second."""
    singly = min(singly, jobs) if site.bulk else jobs
    rates = {"one": singly / _seconds(lambda: site.each(range(singly)))}
    if jobs > singly:
        rates["many"] = (jobs - singly) / _seconds(lambda: _many(site, range(singly, jobs)))
    return rates


def _many(site: Site, numbers: range) -> None:
    for start in range(0, len(numbers), site.together):
        site.many(list(numbers[start : start + site.together]))


def feed(site: Site, first: int, jobs: int, seconds: float) -> int:
    """Enqueue jobs numbered from one on, until they or the time are all; how many."""
    deadline = time.monotonic() + seconds
    together = min(site.together, FED_AT_ONCE[site.bulk])
    for start in range(0, jobs, together):
        if time.monotonic() > deadline:
            return start
        site.feed(range(first + start, first + min(jobs, start + together)))
    return jobs


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def trickle(site: Site, first: int, jobs: int, seed: int) -> list[int]:
    """Enqueue one job after the other at random moments; when each enqueue had returned."""
    chance, returned = random.Random(seed), []
    for n in range(first, first + jobs):
        time.sleep(chance.uniform(SOONEST, LATEST))
        site.one(n)
        returned.append(time.monotonic_ns())
    return returned


def look_up(site: TasksSite, reads: int) -> dict[str, float]:
    return site.look_up(reads)


ORDERS: dict[str, Callable[..., Any]] = {
    "prepare": prepare,
    "feed": feed,
    "fill": fill,
    "look_up": look_up,
    "trickle": trickle,
}


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is log
    site = chosen()
    try:
        site.start()
    except Exception:  # noqa: BLE001 - told to the driver, whatever it is
        print(json.dumps({"error": traceback.format_exc()}), file=answers, flush=True)
        return
    print(json.dumps({"answer": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = {"answer": ORDERS[order.pop("do")](site, **order)}
        except Exception:  # noqa: BLE001 - as above
            told = {"error": traceback.format_exc()}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
