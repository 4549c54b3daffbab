"""For huey on Redis: the instance that its consumer runs."""

from huey import RedisHuey

from tests.benchmarks.rivals.marks import mark
from tests.benchmarks.rivals.surroundings import Surroundings

huey = RedisHuey("huey", url=Surroundings.here().database)


@huey.task()
def noop(n: int) -> None:
    mark(n)
