"""A scheduler whose store tells the time it is told: a line in, a tick, a line out."""

import sys

import django

django.setup()

from django_jobs.backends.registry import backends  # noqa: E402 - as above
from django_jobs.clock import ManualClock  # noqa: E402 - as above
from django_jobs.cron.tick import Ticker  # noqa: E402 - as above
from django_jobs.db.clock import StoreClock  # noqa: E402 - needs the apps


class ToldClock(ManualClock):
    """Shows the last time that was told."""

    def set(self, now: int) -> None:
        self._now = now


def main() -> None:
    clock = ToldClock()
    backends["database"].clock = StoreClock(clock)  # type: ignore[attr-defined] # the database one
    ticker = Ticker()
    print("ready", flush=True)
    for line in sys.stdin:
        clock.set(int(line))
        count = 0
        while True:
            count += len(ticker.tick())
            if not (ticker.is_behind or ticker.undecided):
                break
        print(count, flush=True)


main()
