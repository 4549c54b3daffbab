"""A bar for what takes a while: drawn in a terminal with rich, some lines elsewhere.

It goes to standard error, so that standard output stays what others can read.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.core.management.base import OutputWrapper

SHOWN_FROM = 51
_LINES = 10


@contextmanager
def progress(stream: OutputWrapper, total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many more are done."""
    if total < SHOWN_FROM:
        yield lambda _count: None
        return
    if stream.isatty():
        try:
            from rich.console import Console  # noqa: PLC0415 - an extra; it may be absent
            from rich.progress import MofNCompleteColumn, Progress  # noqa: PLC0415 - as above
        except ImportError:
            pass
        else:
            console = Console(stderr=True)
            columns = (*Progress.get_default_columns(), MofNCompleteColumn())
            with Progress(*columns, console=console) as bar:
                bar_id = bar.add_task(label, total=total)
                yield lambda count: bar.advance(bar_id, count)
            return
    yield _Lines(stream, total, label).advance


class _Lines:
    """A line for each tenth."""

    def __init__(self, stream: OutputWrapper, total: int, label: str) -> None:
        self._stream = stream
        self._total = total
        self._label = label
        self._done = 0
        self._told = 0

    def advance(self, count: int) -> None:
        self._done += count
        tenth = min(self._done, self._total) * _LINES // self._total
        if tenth > self._told:
            self._told = tenth
            self._stream.write(f"{self._label}: {self._done} of {self._total}", lambda text: text)
            self._stream.flush()
