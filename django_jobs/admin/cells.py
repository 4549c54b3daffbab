"""Table cells with a second, smaller line. Whatever comes from a job is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timesince import timesince, timeuntil

from django_jobs.admin.presentation import shortened
from django_jobs.backends.database.rows import for_people
from django_jobs.texts import printable

if TYPE_CHECKING:
    from datetime import datetime

NOTHING = "–"
A_MOMENT = 60


def two_lines(above: str, below: str, title: str = "") -> str:
    """A cell of two lines; with a title, the whole of what its first line shortens."""
    return format_html(
        '<span class="dj-main" title="{}">{}</span> <span class="dj-where">{}</span>',
        printable(title or above),
        printable(above),
        printable(below),
    )


def handler_cell(handler: str) -> str:
    """The function of a handler, its module below."""
    module, _, function = handler.rpartition(".")
    return two_lines(function, module, handler)


def moment_cell(moment: datetime | None) -> str:
    """A moment, and how far it is from now."""
    if moment is None:
        return NOTHING
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return two_lines(date_format(local, "j M, H:i"), away(moment), moment.isoformat(" ", "seconds"))


def away(moment: datetime) -> str:
    """How far a moment is from now, in its largest unit."""
    now = timezone.now()
    if abs((moment - now).total_seconds()) < A_MOMENT:
        return "just now"
    if moment > now:
        return f"in {timeuntil(moment, now, depth=1)}"
    return f"{timesince(moment, now, depth=1)} ago"


def error_text(error_type: str, message: str) -> str:
    """An error in one short line."""
    kind = shortened(error_type.rpartition(".")[2])
    return ": ".join(filter(None, (kind, shortened(message)))) or NOTHING


def badge(word: str) -> str:
    """A word in a coloured frame."""
    return format_html('<span class="dj-badge dj-{}">{}</span>', printable(word), printable(word))


def moment_of(microseconds: int | None) -> datetime | None:
    """A moment on the store's clock, for people."""
    return None if microseconds is None else for_people(microseconds)


def in_full(moment: datetime | None) -> str:
    """A moment as the site writes it."""
    if moment is None:
        return NOTHING
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    # Other times on the same page may be of UTC, and say so.
    return f"{date_format(local, 'DATETIME_FORMAT')} {date_format(local, 'T')}"
