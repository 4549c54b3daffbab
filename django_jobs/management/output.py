"""The output of commands: plain tables, rich ones in a terminal, JSON, and times in words.

The data of jobs is not trusted: it reaches a terminal only through ``escaped``, which also keeps
it on one line.
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
    """Writes the standard output of a command."""

    def __init__(self, stream: OutputWrapper, *, colour: bool = True) -> None:
        self._stream = stream
        self._colour = colour

    @property
    def is_terminal(self) -> bool:
        return self._stream.isatty()

    def line(self, text: str = "") -> None:
        """Write our own text, of any number of lines; names in it must be escaped before."""
        self._write(escaped(text, keep_lines=True))

    def document(self, value: Any) -> None:
        """Write one JSON document in ASCII."""
        text = json.dumps(value, indent=2, ensure_ascii=True)
        self._stream.write(text.replace("\x7f", "\\u007f"))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Write a table; every cell is escaped here."""
        cells = [[escaped(str(cell)) for cell in row] for row in rows]
        drawn = _rich_table(headers, cells, colour=self._colour) if self.is_terminal else None
        self._write(aligned(headers, cells) if drawn is None else drawn)

    def _write(self, text: str) -> None:
        self._stream.write(encodable(text, self._stream))

    def clear(self) -> None:
        """Clear the screen of a terminal."""
        if self.is_terminal:
            self._stream.write("\x1b[2J\x1b[H", ending="")

    def flush(self) -> None:
        self._stream.flush()


def escaped(text: str, *, keep_lines: bool = False) -> str:
    """A text with escapes for control characters, direction marks and lone surrogates."""
    if not keep_lines:
        return one_line(text)
    return printable(text.replace("\r\n", "\n"))  # elsewhere \r moves the cursor back


def shortened(text: str, length: int = SHORT) -> str:
    """The beginning of a text's first line."""
    first, _, rest = text.strip().partition("\n")
    line = escaped(first)
    if len(line) > length:
        return f"{line[: length - 1]}…"
    return f"{line} …" if rest else line


def error_in_short(error_type: str, message: str) -> str:
    """An error for a cell of a table."""
    return shortened(": ".join(part for part in (error_type, message) if part))


def encodable(text: str, stream: Any) -> str:
    """A text with escapes for the characters that the stream cannot encode."""
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
    """A length of time in its largest fitting unit: 12 s, 3 min, 2 h, 5 d."""
    for unit, size in _UNITS:
        if seconds >= _UNITS_FROM * size or (seconds >= size and seconds % size == 0):
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def from_now(seconds: float) -> str:
    """The distance of a moment from now: "in 3 min", or if negative "2 h ago"."""
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def aware(moment: datetime) -> datetime:
    """A DateTimeField's value in UTC, with and without USE_TZ."""
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    return moment.astimezone(UTC)


def iso(moment: datetime | int | None) -> str | None:
    """A moment (or microseconds on the store's clock) for JSON, in UTC."""
    if moment is None:
        return None
    return (to_datetime(moment) if isinstance(moment, int) else aware(moment)).isoformat()
