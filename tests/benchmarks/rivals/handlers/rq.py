"""For rq: its queue, and its worker by ``python -m``."""

from __future__ import annotations

import sys

import redis
from rq import Queue, SimpleWorker, Worker

from tests.benchmarks.rivals.surroundings import Surroundings


def queue() -> Queue:
    """The default queue on the server of this process."""
    return Queue(connection=redis.Redis.from_url(Surroundings.here().database))


if __name__ == "__main__":
    kind = SimpleWorker if sys.argv[1] == "simple" else Worker
    served = queue()
    kind([served], connection=served.connection).work(logging_level="WARNING")
