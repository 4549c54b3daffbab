"""For dramatiq: the broker of this process."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.benchmarks.rivals.marks import mark
from tests.benchmarks.rivals.surroundings import Surroundings

dramatiq.set_broker(RedisBroker(url=Surroundings.here().database))


@dramatiq.actor
def noop(n: int) -> None:
    mark(n)
