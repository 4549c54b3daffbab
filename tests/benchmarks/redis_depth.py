"""How the Redis backend drains when little waits and when a million jobs do, and their memory.

python -m tests.benchmarks.redis_depth [--deep N], on a server of its own.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import django
from django.core.management import call_command
from django.db import connections
from django.test.utils import override_settings

from tests.redis_servers import running

SHALLOW, DEEP, DRAINED, AT_ONCE = 10_000, 1_000_000, 10_000, 100
STEP = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deep", type=int, default=DEEP, metavar="N")
    deep = parser.parse_args().deep
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    django.setup()
    # The limits of queues are in the site's database; here it is one that holds nothing.
    connections["default"].settings_dict["NAME"] = ":memory:"
    call_command("migrate", verbosity=0)
    with running("--appendfsync", "everysec") as server:
        options = {"URL": server.url}
        backend = {"BACKEND": "django_jobs.backends.redis.RedisBackend", "OPTIONS": options}
        jobs = {"BACKENDS": {"redis": backend}, "DEFAULT_BACKEND": "redis"}
        with override_settings(DJANGO_JOBS=jobs):
            measure(server, deep)


def measure(server: Any, deep: int) -> None:
    from django_jobs import enqueue_many, job
    from django_jobs.backends.registry import backends

    prepared = job(key="benchmark.nothing")(nothing)
    backend = backends["redis"]
    rates = {}
    for depth in (SHALLOW, deep):
        before, waiting = server.client.info("memory")["used_memory"], 0
        while waiting < depth:
            enqueue_many([prepared.prepare() for _ in range(STEP)])
            waiting += STEP
        each = (server.client.info("memory")["used_memory"] - before) / depth
        spent = _cpu(server) + time.process_time()
        began = time.perf_counter()
        drained = 0
        while drained < DRAINED:
            leases = backend.fetch(["default"], AT_ONCE, 30.0)
            backend.ack(leases)
            drained += len(leases)
        seconds = time.perf_counter() - began
        spent = _cpu(server) + time.process_time() - spent
        rates[depth] = DRAINED / spent
        print(
            f"{depth:>9,} waiting: {DRAINED / seconds:,.0f} jobs/s fetched and acked, "
            f"{spent / DRAINED * 1e6:.0f} µs of processors for each; {each:.0f} bytes per job"
        )
    print(f"deep / shallow, by processor time: {rates[deep] / rates[SHALLOW]:.2f}")


def nothing() -> None:
    """As small as a job gets."""


def _cpu(server: Any) -> float:
    told = server.client.info("cpu")
    return float(told["used_cpu_user"] + told["used_cpu_sys"])


if __name__ == "__main__":
    main()
