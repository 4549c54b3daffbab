"""How commands show things: plain tables, rich ones in a terminal, JSON, times in words.

What jobs carry was written by anybody. Nothing of it reaches a terminal before it went
through ``escaped``, which keeps it on its line, too.
"""

from __future__ import annotations

import io
import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from django_jobs.clock import to_datetime
from django_jobs.texts import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.core.management.base import OutputWrapper

_UNITS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0))
_UNITS_FROM = 2
SHORT = 60


class Output:
    """One command's way to its standard output."""

    def __init__(self, stream: OutputWrapper, *, colour: bool = True) -> None:
        self._stream = stream
        self._colour = colour

    @property
    def is_terminal(self) -> bool:
        return self._stream.isatty()

    def line(self, text: str = "") -> None:
        """Our own words, on as many lines as they have; a name in them went through ``escaped``."""
        self._write(escaped(text, keep_lines=True))

    def document(self, value: Any) -> None:
        """One JSON document, ASCII throughout."""
        text = json.dumps(value, indent=2, ensure_ascii=True)
        self._stream.write(text.replace("\x7f", "\\u007f"))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows under headers; every cell is escaped here."""
        cells = [[escaped(str(cell)) for cell in row] for row in rows]
        drawn = _rich_table(headers, cells, colour=self._colour) if self.is_terminal else None
        self._write(aligned(headers, cells) if drawn is None else drawn)

    def _write(self, text: str) -> None:
        self._stream.write(encodable(text, self._stream))

    def clear(self) -> None:
        """Start at the top of an empty screen, where there is a screen."""
        if self.is_terminal:
            self._stream.write("\x1b[2J\x1b[H", ending="")

    def flush(self) -> None:
        self._stream.flush()


def escaped(text: str, *, keep_lines: bool = False) -> str:
    """A text whose control, direction and half characters are written out."""
    if not keep_lines:
        return one_line(text)
    return printable(text.replace("\r\n", "\n"))  # a terminal needs no \r, and obeys it elsewhere


def shortened(text: str, length: int = SHORT) -> str:
    """The beginning of a text's first line."""
    first, _, rest = text.strip().partition("\n")
    line = escaped(first)
    if len(line) > length:
        return f"{line[: length - 1]}…"
    return f"{line} …" if rest else line


def error_in_short(error_type: str, message: str) -> str:
    """What went wrong, for a cell of a table."""
    return shortened(": ".join(part for part in (error_type, message) if part))


def encodable(text: str, stream: Any) -> str:
    """A text that the stream's encoding can say, the rest of it written out."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for pipes: two spaces between columns, nothing drawn."""
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _rich_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, colour: bool
) -> str | None:
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra; it may be absent
        from rich.table import Table  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above
    except ImportError:
        return None
    table = Table(header_style="bold", pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        # As Text, so that square brackets in it are no markup.
        table.add_row(*map(Text, row))
    width = shutil.get_terminal_size().columns
    console = Console(file=io.StringIO(), force_terminal=True, no_color=not colour, width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def span(seconds: float) -> str:
    """A length of time in its greatest fitting unit: 12 s, 3 min, 2 h, 5 d."""
    for unit, size in _UNITS:
        if seconds >= _UNITS_FROM * size or (seconds >= size and seconds % size == 0):
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def from_now(seconds: float) -> str:
    """How far a moment lies ahead (or, below zero, back): "in 3 min", "2 h ago"."""
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def aware(moment: datetime) -> datetime:
    """A DateTimeField's value in UTC, whatever USE_TZ says."""
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    return moment.astimezone(UTC)


def iso(moment: datetime | int | None) -> str | None:
    """A moment (or microseconds on the store's clock) for JSON, in UTC."""
    if moment is None:
        return None
    return (to_datetime(moment) if isinstance(moment, int) else aware(moment)).isoformat()
