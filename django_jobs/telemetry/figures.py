"""The figures that are collected: their names, what they mean, and what an event adds to them.

Alerts and dashboards rely on the names. All have the label ``queue``, which is empty where a
figure belongs to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    "settles_unknown": "Settles of which nobody could say whether they counted.",
    "store_outages": "Times that a backend did not answer, or only with errors.",
}
HISTOGRAMS: Final = {
    "job_wait_seconds": "From the moment a job was due to the start of its run.",
    "job_run_seconds": "How long runs took.",
}
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper ends, in seconds; what is longer is in the total alone."""

_SUCCESS = ("jobs_fetched", "jobs_succeeded")
_RAN = frozenset({"exhausted", "not-retryable", "timed-out"})


def add(collector: Collector, event: events.Event) -> None:
    """What an event adds to the figures."""
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
"""Kind of event and its status → the counter of a delivery that ended so."""


def add_successes(
    collector: Collector, queue: str, waited: Sequence[float], seconds: Sequence[float]
) -> None:
    """The most frequent of them, for who has no events at hand: those of one queue."""
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
