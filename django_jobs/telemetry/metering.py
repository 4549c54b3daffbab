"""From events to the collectors that ``METRICS`` names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from django.utils.module_loading import import_string

from django_jobs.conf import get_settings
from django_jobs.exceptions import SettingsError
from django_jobs.telemetry import events, figures
from django_jobs.telemetry.errors import cleaned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django_jobs.conf import JobsSettings
    from django_jobs.telemetry.collectors import Collector
    from django_jobs.telemetry.gauges import Gauges

logger = logging.getLogger("django_jobs")
T = TypeVar("T")

gauges: Gauges | None = None
"""What collectors may watch; put here from above, where the stores can be asked."""
_made: dict[str, Any] = {}
_current: tuple[JobsSettings | None, tuple[Any, ...]] = (None, ())


def collectors() -> tuple[Any, ...]:
    """Those in force in this process. One that cannot be had is told once, and left out."""
    global _current  # noqa: PLW0603 - one set of settings is in force at a time
    try:
        settings = get_settings()
    except SettingsError:  # the system checks tell of it
        return ()
    if _current[0] is not settings:
        found = tuple(made for path in settings.metrics if (made := _collector(path)) is not None)
        _current = (settings, found)
    return _current[1]


def _collector(path: str) -> Any:
    if path not in _made:
        try:
            _made[path] = import_string(path)()
        except Exception as error:  # noqa: BLE001 - told, and the others go on
            _failed("METRICS: %s is not used", path, error)
            _made[path] = None
        _let_watch(_made[path])
    return _made[path]


def _let_watch(collector: Any) -> None:
    """Gauges are for those that ask for them; a collector may be for counters alone."""
    watch = getattr(collector, "watch", None)
    if watch is None or gauges is None:
        return
    try:
        watch(gauges)
    except Exception as error:  # noqa: BLE001 - told, and the others go on
        _failed("%s watches no gauges", type(collector).__qualname__, error)


def _failed(sentence: str, name: str, error: Exception) -> None:
    logger.error(sentence, name, extra={"key": "metrics.failed"}, exc_info=cleaned(error))


def of_kind(kind: type[T]) -> list[T]:
    """The collectors of a class."""
    return [one for one in collectors() if isinstance(one, kind)]


_WITHOUT = {events.JobSucceeded, events.JobClaimed, events.JobStarted}


def wants(kind: type[events.Event]) -> bool:
    """Only what adds to a figure. A plain success is told without an event, by ``succeeded``."""
    return kind not in _WITHOUT


def count(event: events.Event) -> None:
    """Add an event to the figures."""
    _tell(lambda collector: figures.add(collector, event))


def succeeded(runs: Iterable[tuple[str, float, float]]) -> None:
    """Add runs that ended well, when nobody else wants to know of them.

    Of each its queue, how long it waited, and how long it took.
    """
    lasted: dict[str, tuple[list[float], list[float]]] = {}
    for queue, waited, seconds in runs:
        waits, times = lasted.get(queue) or lasted.setdefault(queue, ([], []))
        waits.append(waited)
        times.append(seconds)
    for queue, told in lasted.items():
        _tell(lambda collector: figures.add_successes(collector, queue, *told))  # noqa: B023 - called at once


def _tell(add: Callable[[Collector], None]) -> None:
    for collector in collectors():
        try:
            add(collector)
        except Exception as error:  # noqa: BLE001 - told, and the others go on
            _failed("the collector %s raised", type(collector).__qualname__, error)
