"""For huey: the instance that its consumer runs, on the database of this process."""

from huey import PostgresHuey, SqliteHuey

from tests.benchmarks.rivals.marks import mark
from tests.benchmarks.rivals.surroundings import Surroundings

_surroundings = Surroundings.here()
huey = (
    SqliteHuey(filename=_surroundings.database)
    if _surroundings.contestant.startswith("sqlite:")
    else PostgresHuey()  # libpq's variables say where
)


@huey.task()
def noop(n: int) -> None:
    mark(n)
