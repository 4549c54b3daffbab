"""Births that fail: of processes that die before they can work, or that cannot be forked.

``dies:3`` lets the first three children die at birth, ``forks:3`` lets the fork server's first
three forks fail; without a number all do. Each failure adds its moment to the tally.
"""

import errno
import os
import time
from pathlib import Path

FORK_SERVER, CHILD = 1, 2


def prepare(what, tally):
    how, _, count = what.partition(":")
    _Sabotage(how, float(count or "inf"), Path(tally))


class _Sabotage:
    def __init__(self, how, count, tally):
        self.how, self.count, self.tally = how, count, tally
        self.generation = 0
        self.fork = os.fork
        os.register_at_fork(after_in_child=self.born)

    def born(self):
        self.generation += 1
        if self.how == "dies" and self.generation == CHILD and self.again():
            os._exit(9)
        if self.how == "forks" and self.generation == FORK_SERVER:
            os.fork = self.refuse

    def refuse(self):
        if self.again():
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self.fork()

    def again(self):
        """Whether this one fails too."""
        failed = self.tally.read_text().count("\n") if self.tally.exists() else 0
        if failed >= self.count:
            return False
        with self.tally.open("a") as tally:
            tally.write(f"{time.monotonic()}\n")
        return True
