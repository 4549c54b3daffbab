"""Bars as numbers for an SVG that the server writes: no script, no style, no library."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils import timezone
from django.utils.formats import date_format

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django_jobs.operations.overview import Counts, Series

WIDTH = 600
TOP, BOTTOM = 14, 126
LEFT = 34
GAP_SHARE = 0.25
TABLE_ROWS = 12
KINDS = ("succeeded", "retried", "dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A piece of a bar. ``kind`` is its colour."""

    kind: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table that says the same."""

    since: str
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart ready to be written down."""

    id: str
    title: str
    description: str
    bars: list[Bar]
    most: str
    half: str
    begins: str
    middle: str
    total: Counts
    rows: list[Row]


def chart(name: str, title: str, series: Series) -> Chart:
    """Stacked bars, one for each slot."""
    most = nice(max((slot.total for slot in series.slots), default=0))
    total = series.total
    rows = series.by(max(len(series.slots) // TABLE_ROWS, 1))
    return Chart(
        id=name,
        title=title,
        description=(
            f"{total.succeeded} runs succeeded, {total.retried} failed and were to be retried, "
            f"{total.dead} ended as dead letters; at most {most} in {series.slot_minutes} minutes."
        ),
        bars=list(_bars(series, most)),
        most=_short(most),
        half=_short(most / 2) if most > 1 else "",
        begins=_clock(series.begins),
        middle=_clock(_moment(series, len(series.slots) // 2)),
        total=total,
        rows=[
            Row(since=_clock(_moment(rows, place)), counts=counts)
            for place, counts in enumerate(rows.slots)
        ],
    )


def nice(number: int) -> int:
    """The next number that reads well on an axis."""
    if number <= 0:
        return 1
    size = int(10 ** (len(str(number)) - 1))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= number)


def _bars(series: Series, most: int) -> Iterator[Bar]:
    step = (WIDTH - LEFT) / len(series.slots)
    for place, counts in enumerate(series.slots):
        y = float(BOTTOM)
        for kind in KINDS:
            if not (count := getattr(counts, kind)):
                continue
            # What happened at all is to be seen, however high the other bars are.
            height = max(count / most * (BOTTOM - TOP), 1.0)
            y -= height
            yield Bar(
                kind=kind,
                x=f"{LEFT + place * step + step * GAP_SHARE / 2:.2f}",
                y=f"{y:.2f}",
                width=f"{step * (1 - GAP_SHARE):.2f}",
                height=f"{height:.2f}",
            )


def _moment(series: Series, place: int) -> datetime:
    return series.begins + timedelta(minutes=series.slot_minutes * place)


def _clock(moment: datetime) -> str:
    return date_format(timezone.localtime(moment), "H:i")


def _short(number: float) -> str:
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"
