"""The limits of queues, of rate and of concurrency, from the settings or set by operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_jobs.backends.rates import Rate
from django_jobs.conf import get_settings
from django_jobs.models import QueueControl
from django_jobs.telemetry.events import RateUnreadable, emit

if TYPE_CHECKING:
    from collections.abc import Mapping


UNLIMITED = "none"


class QueueLimits(NamedTuple):
    """The limits of a queue now.

    ``unread``: a rate in an operator's row that cannot be read. The settings apply then, as if
    none had been set: jobs do not wait because of a typing error.
    """

    rate: Rate | None = None
    concurrency: int | None = None
    unread: str = ""


def limits_of(alias: str, backend: str) -> dict[str, QueueLimits]:
    """The limits of a backend's queues, by queue."""
    configured = get_settings().queues
    texts = {name: queue.rate_limit or "" for name, queue in configured.items()}
    places: dict[str, int | None] = {}
    rows = QueueControl.objects.using(alias).filter(backend=backend)
    unread: dict[str, str] = {}
    for queue, rate, concurrency in rows.values_list("queue", "rate_limit", "concurrency"):
        if is_rate(rate):
            texts[queue] = str(rate)
        elif rate:
            unread[queue] = str(rate)
        places[queue] = max(concurrency, 0) if isinstance(concurrency, int) else None
    limited = {}
    for queue in texts.keys() | places.keys():
        text = texts.get(queue, "")
        parsed = Rate.parse(text) if text and text != UNLIMITED else None
        limits = QueueLimits(parsed, places.get(queue), unread.get(queue, ""))
        if limits != QueueLimits():
            limited[queue] = limits
    return limited


def is_rate(text: object) -> bool:
    """Whether a text is a valid rate, or says that there is none."""
    if not text or text == UNLIMITED:
        return bool(text)
    try:
        Rate.parse(str(text))
    except ValueError:
        return False
    return True


def report_unread(
    backend: str, before: Mapping[str, QueueLimits], after: Mapping[str, QueueLimits]
) -> None:
    """Report rates that cannot be read, once each time one is set."""
    for queue, limits in after.items():
        if limits.unread and limits.unread != before.get(queue, QueueLimits()).unread:
            emit(RateUnreadable(backend=backend, queue=queue, rate=limits.unread))
