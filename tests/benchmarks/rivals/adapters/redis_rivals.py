"""dramatiq, celery, rq and huey on Redis, with their own workers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, REDIS, Site, Way

HANDLERS = "tests.benchmarks.rivals.handlers"


class DramatiqSite(Site):
    """Eight threads in each process, as it comes."""

    name = "dramatiq"
    vendor = REDIS
    distribution = "dramatiq"
    keeps = "killed work runs again, when a worker comes that has its queue; no results"
    left = "return redis.call('HLEN', 'dramatiq:default.msgs')"
    bulk = False
    _worker = ("dramatiq", f"{HANDLERS}.dramatiq", "--threads", "8", "--processes")
    ways = (
        Way(DEFAULTS, (("dramatiq", f"{HANDLERS}.dramatiq"),), "as it comes", 2_000),
        Way(ONE, ((*_worker, "1"),), "1 process, 8 threads", 2_000),
        Way(MACHINE, ((*_worker, str(CORES)),), f"{CORES} processes, 8 threads", 2_500),
    )

    def start(self) -> None:
        self.noop: Any = import_module(f"{HANDLERS}.dramatiq").noop

    def one(self, n: int) -> None:
        self.noop.send(n)


class CelerySite(Site):
    """Late acks, so that killed work runs again; results are ignored."""

    name = "celery, acks_late"
    vendor = REDIS
    distribution = "celery"
    keeps = "acks late: killed work runs again after an hour (visibility_timeout); no results"
    left = "return redis.call('LLEN', 'celery') + redis.call('HLEN', 'unacked')"
    bulk = False
    _worker = ("celery", "-A", f"{HANDLERS}.celery", "worker", "-l", "ERROR", "-c")
    ways = (
        Way(DEFAULTS, (("celery", "-A", f"{HANDLERS}.celery", "worker"),), "as it comes", 800),
        Way(ONE, ((*_worker, "1"),), "-c 1", 800),
        Way(MACHINE, ((*_worker, str(CORES)),), f"-c {CORES}", 1_000),
    )

    def start(self) -> None:
        self.noop: Any = import_module(f"{HANDLERS}.celery").noop

    def one(self, n: int) -> None:
        self.noop.delay(n)


class RqSite(Site):
    """A fork for each job, as it comes; or none."""

    name = "rq"
    vendor = REDIS
    distribution = "rq"
    keeps = "results for 500 s; killed work fails, and is retried when its job says so; pickle"
    left = "return redis.call('LLEN', 'rq:queue:default') + redis.call('ZCARD', 'rq:wip:default')"
    together = 1_000
    ways = (
        Way(DEFAULTS, ((f"{HANDLERS}.rq", "forks"),), "a fork for each job", 60),
        Way(ONE, ((f"{HANDLERS}.rq", "simple"),), "SimpleWorker", 500),
        Way(MACHINE, ((f"{HANDLERS}.rq", "simple"),) * CORES, f"{CORES} SimpleWorkers", 700),
    )

    def start(self) -> None:
        import rq

        self.queue: Any = import_module(f"{HANDLERS}.rq").queue()
        self.prepared = rq.Queue.prepare_data

    def one(self, n: int) -> None:
        self.queue.enqueue(f"{HANDLERS}.plain.noop", n)

    def many(self, numbers: list[int]) -> None:
        self.queue.enqueue_many([self.prepared(f"{HANDLERS}.plain.noop", (n,)) for n in numbers])


class HueyRedisSite(Site):
    """Its own consumer."""

    name = "huey"
    vendor = REDIS
    distribution = "huey"
    keeps = "at most once: a task is removed before it runs, killed work is lost; pickle"
    left = "return redis.call('LLEN', 'huey.redis.huey')"
    bulk = False
    _worker = ("huey.bin.huey_consumer", f"{HANDLERS}.huey_redis.huey")
    _processes = ("--quiet", "--worker-type", "process", "--workers", str(CORES))
    ways = (
        Way(DEFAULTS, (_worker,), "one thread, a line of log per task", 3_000),
        Way(ONE, ((*_worker, "--quiet"),), "one thread, quiet", 4_000),
        Way(MACHINE, ((*_worker, *_processes),), f"{CORES} processes, quiet", 5_000),
    )

    def start(self) -> None:
        self.noop: Any = import_module(f"{HANDLERS}.huey_redis").noop

    def one(self, n: int) -> None:
        self.noop(n)
