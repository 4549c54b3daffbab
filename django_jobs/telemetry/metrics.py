"""Counters, histograms and gauges: their names, their meaning and what an event adds to them.

Alerts and dashboards rely on the names. Counters and histograms have the label ``queue``, which
is empty where a metric belongs to no queue.

Gauges are read from the stores on demand. They describe the whole installation in every process.
So only one process may export them: if several did, their sum would be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from django.utils.module_loading import import_string

from django_jobs.conf import get_settings
from django_jobs.exceptions import SettingsError
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from django_jobs.conf import JobsSettings
    from django_jobs.telemetry.collectors import Collector


COUNTERS: Final = {
    "jobs_fetched": "Deliveries that came to an end, however they ended.",
    "jobs_succeeded": "Runs that ended well.",
    "jobs_failed": "Runs that failed, whether a retry followed or not.",
    "jobs_timed_out": "Those of them that took too long.",
    "jobs_requeued": "Failed runs after which the job waits for a retry.",
    "jobs_failed_permanently": "Jobs that became dead letters, but those that were rejected.",
    "jobs_rejected": "Jobs that were rejected unrun, for whatever reason.",
    "jobs_rejected_signature": "Those of them whose signature was wrong.",
    "jobs_skipped_idempotent": "Jobs whose idempotency key was done already.",
    "jobs_cancelled": "Jobs that were cancelled or discarded.",
    "jobs_snoozed": "Deliveries given back for later without consuming anything.",
    "jobs_interrupted": "Runs that were stopped from outside, and run again.",
    "jobs_crashed": "Crashes that a job was charged with.",
    "leases_lost": "Settles that came too late.",
    "leases_reaped": "Leases that ended without a verdict.",
    "settles_unknown": "Settles whose outcome is unknown.",
    "store_outages": "Times that a backend did not answer, or only with errors.",
}
HISTOGRAMS: Final = {
    "job_wait_seconds": "From the moment a job was due to the start of its run.",
    "job_run_seconds": "How long runs took.",
}
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds in seconds; longer durations are in the total only."""

_SUCCESS = ("jobs_fetched", "jobs_succeeded")
_RAN = frozenset({"exhausted", "not-retryable", "timed-out"})


def add(collector: Collector, event: events.Event) -> None:
    """Add an event to the metrics of a collector."""
    match event:
        case events.JobSucceeded():
            add_successes(collector, event.queue, [event.waited], [event.seconds])
        case events.JobRetried():
            _add_failure(collector, event, timed_out=event.error_type.endswith("JobTimeout"))
            collector.increment("jobs_requeued", event.queue)
        case events.JobDied():
            _add_death(collector, event)
        case events.JobEvent() if name := _END.get((type(event), getattr(event, "status", ""))):
            _add_end(collector, event, name)
        case events.Reaped():
            collector.increment("leases_reaped", "", event.count)
        case events.StoreLost():
            collector.increment("store_outages", "")


_END = {
    (events.JobEnded, "cancelled"): "jobs_cancelled",
    (events.JobEnded, "skipped-idempotent"): "jobs_skipped_idempotent",
    (events.JobReturned, "requeued"): "jobs_interrupted",
    (events.JobReturned, "snoozed"): "jobs_snoozed",
    (events.JobCrashed, ""): "jobs_crashed",
    (events.LeaseLost, ""): "leases_lost",
    (events.SettleUnknown, ""): "settles_unknown",
}
"""(Kind of event, status) → the counter of deliveries that ended so."""


def add_successes(
    collector: Collector, queue: str, waited: Sequence[float], seconds: Sequence[float]
) -> None:
    """Add successful runs of a queue, the most frequent event, without building events."""
    for name in _SUCCESS:
        collector.increment(name, queue, len(seconds))
    observed = (("job_wait_seconds", waited), ("job_run_seconds", seconds))
    observe_all = getattr(collector, "observe_all", None)
    for name, times in observed:
        if observe_all is not None:
            observe_all(name, queue, times)
            continue
        for time in times:
            collector.observe(name, queue, time)


def _add_end(collector: Collector, event: events.JobEvent, name: str) -> None:
    collector.increment("jobs_fetched", event.queue)
    collector.increment(name, event.queue)


def _add_failure(
    collector: Collector, event: events.JobRetried | events.JobDied, *, timed_out: bool
) -> None:
    _add_end(collector, event, "jobs_failed")
    collector.observe("job_wait_seconds", event.queue, event.waited)
    collector.observe("job_run_seconds", event.queue, event.seconds)
    if timed_out:
        collector.increment("jobs_timed_out", event.queue)


def _add_death(collector: Collector, event: events.JobDied) -> None:
    queue, reason = event.queue, event.reason
    if reason in _RAN:
        _add_failure(collector, event, timed_out=reason == "timed-out")
    else:
        collector.increment("jobs_fetched", queue)
    if reason == "crashed":
        collector.increment("jobs_crashed", queue)
    if not reason.startswith("rejected-"):
        collector.increment("jobs_failed_permanently", queue)
        return
    collector.increment("jobs_rejected", queue)
    if reason == "rejected-signature":
        collector.increment("jobs_rejected_signature", queue)


# From events to the collectors that ``METRICS`` names.

T = TypeVar("T")

gauges: Gauges | None = None
"""The gauges that collectors may watch; set by a higher layer, which can read the stores."""
_made: dict[str, Any] = {}
_current: tuple[JobsSettings | None, tuple[Any, ...]] = (None, ())


def collectors() -> tuple[Any, ...]:
    """The collectors of this process. One that cannot be made is logged once and left out."""
    global _current  # noqa: PLW0603 - one set of settings is in force at a time
    try:
        settings = get_settings()
    except SettingsError:  # the system checks report it
        return ()
    if _current[0] is not settings:
        made_collectors = tuple(
            made for path in settings.metrics if (made := _collector(path)) is not None
        )
        _current = (settings, made_collectors)
    return _current[1]


def _collector(path: str) -> Any:
    if path not in _made:
        try:
            _made[path] = import_string(path)()
        except Exception as error:  # noqa: BLE001 - logged, and the others go on
            _made[path] = None  # first, because this event is counted as well
            events.emit(events.CollectorUnused(collector=path, error=error))
        _let_watch(_made[path])
    return _made[path]


def _let_watch(collector: Any) -> None:
    """Pass the gauges to a collector that has ``watch``; it is optional."""
    watch = getattr(collector, "watch", None)
    if watch is None or gauges is None:
        return
    try:
        watch(gauges)
    except Exception as error:  # noqa: BLE001 - logged, and the others go on
        events.emit(events.GaugesWatchFailed(collector=type(collector).__qualname__, error=error))


def of_kind(kind: type[T]) -> list[T]:
    """The collectors of a class."""
    return [collector for collector in collectors() if isinstance(collector, kind)]


_WITHOUT = {events.JobSucceeded, events.JobClaimed, events.JobStarted}


def wants(kind: type[events.Event]) -> bool:
    """Whether a kind adds to a metric. Plain successes come without events, by ``succeeded``."""
    return kind not in _WITHOUT


def count(event: events.Event) -> None:
    """Add an event to the metrics of every collector."""
    _to_each(lambda collector: add(collector, event))


def succeeded(runs: Iterable[tuple[str, float, float]]) -> None:
    """Add successful runs for which no other subscriber wants events.

    Of each: its queue, how long it waited, and how long it took.
    """
    lasted: dict[str, tuple[list[float], list[float]]] = {}
    for queue, waited, seconds in runs:
        waits, times = lasted.get(queue) or lasted.setdefault(queue, ([], []))
        waits.append(waited)
        times.append(seconds)
    for queue, durations in lasted.items():
        _to_each(lambda collector: add_successes(collector, queue, *durations))  # noqa: B023 - called at once


def _to_each(add: Callable[[Collector], None]) -> None:
    for collector in collectors():
        try:
            add(collector)
        except Exception as error:  # noqa: BLE001 - logged, and the others go on
            # No metric counts this event, so it cannot fail in the same way.
            name = type(collector).__qualname__
            events.emit(events.CollectorFailed(collector=name, error=error))


class Kind(NamedTuple):
    """The description, the labels and, unless it is a plain number, the unit of a gauge."""

    description: str
    labels: tuple[str, ...]
    unit: str = ""


_QUEUE = ("backend", "queue")
GAUGES: Final[Mapping[str, Kind]] = {
    "jobs": Kind("Jobs in a state; dead ones are unresolved dead letters.", (*_QUEUE, "state")),
    "jobs_in_flight": Kind("Jobs that are leased.", _QUEUE),
    "oldest_ready_seconds": Kind("How long the oldest ready job has waited.", _QUEUE, "s"),
    "queue_paused": Kind("1 for a queue that is paused.", _QUEUE),
    "workers": Kind("Workers seen within a minute.", ("backend",)),
}


class Gauge(NamedTuple):
    """One value of a gauge: a name of ``GAUGES``, its value, and a value for each of its labels."""

    name: str
    value: float
    labels: Mapping[str, str]


class Gauges(Protocol):
    """What a collector's ``watch`` receives. Reading asks the stores at most every few seconds per
    process, however often it is called, and raises what they raise.
    """

    def read(self) -> list[Gauge]:
        """All gauges, for a collector that answers a request to this process."""

    def in_turn(self) -> list[Gauge]:
        """All gauges in one process of the installation at a time, and none in the others: for a
        collector that exports by itself, as every process may. Raises nothing.
        """

    def end(self) -> None:
        """Let another process export from now on, as this one ends. May raise database errors."""
