"""A handler may fork and let both processes return. Only one of them is the worker's.

The copy holds the same lease, the same connections and the same pipes. Were it to go on,
it would settle the job a second time and take the next ones.
"""

from __future__ import annotations

import os


class EndingCopies:
    """A process that was forked inside the block ends with it, and runs nothing after it."""

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        self._mine = os.getpid()

    def __exit__(self, *raised: object) -> None:
        if os.getpid() != self._mine:
            os._exit(int(raised[0] is not None))
