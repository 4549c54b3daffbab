"""What is collected from which event, and how metrics are kept."""

import pytest

from django_jobs.telemetry import collectors, events, metrics
from django_jobs.telemetry.collectors import InMemory

ABOUT = {"job_id": "0190", "queue": "mail", "handler": "a.b"}
FAILED = {"error_type": "ValueError", "error_message": "no"}


def counted(*told):
    kept = InMemory()
    for event in told:
        metrics.add(kept, event)
    return kept.snapshot()


def counters(event):
    return {name: count for (name, queue), count in counted(event).counters.items()}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.JobSucceeded(**ABOUT), "jobs_fetched jobs_succeeded"),
        (events.JobRetried(**ABOUT, delay=1, **FAILED), "jobs_fetched jobs_failed jobs_requeued"),
        (
            events.JobRetried(
                **ABOUT, delay=1, error_type="django_jobs.JobTimeout", error_message=""
            ),
            "jobs_fetched jobs_failed jobs_requeued jobs_timed_out",
        ),
        (
            events.JobDied(**ABOUT, reason="exhausted", **FAILED),
            "jobs_failed jobs_failed_permanently jobs_fetched",
        ),
        (
            events.JobDied(**ABOUT, reason="timed-out"),
            "jobs_failed jobs_failed_permanently jobs_fetched jobs_timed_out",
        ),
        (
            events.JobDied(**ABOUT, reason="crashed"),
            "jobs_crashed jobs_failed_permanently jobs_fetched",
        ),
        (events.JobDied(**ABOUT, reason="other-site"), "jobs_failed_permanently jobs_fetched"),
        (events.JobDied(**ABOUT, reason="expired"), "jobs_failed_permanently jobs_fetched"),
        (
            events.JobDied(**ABOUT, reason="rejected-signature"),
            "jobs_fetched jobs_rejected jobs_rejected_signature",
        ),
        (events.JobDied(**ABOUT, reason="rejected-queue"), "jobs_fetched jobs_rejected"),
        (
            events.JobEnded(**ABOUT, status="skipped-idempotent"),
            "jobs_fetched jobs_skipped_idempotent",
        ),
        (events.JobEnded(**ABOUT, status="cancelled"), "jobs_cancelled jobs_fetched"),
        (events.JobReturned(**ABOUT, status="snoozed"), "jobs_fetched jobs_snoozed"),
        (events.JobReturned(**ABOUT, status="requeued"), "jobs_fetched jobs_interrupted"),
        (
            events.JobCrashed(**ABOUT, crashes=1, reason="killed", delay=1.0),
            "jobs_crashed jobs_fetched",
        ),
        (events.LeaseLost(**ABOUT), "jobs_fetched leases_lost"),
        (events.SettleUnknown(**ABOUT), "jobs_fetched settles_unknown"),
        (events.StoreLost(backend="database", error=OSError(), problem="no"), "store_outages"),
        (events.WorkerStarted(backend="database", queues=""), ""),
    ],
)
def test_what_an_event_counts(event, expected):
    found = counters(event)
    assert sorted(found) == sorted(expected.split())
    assert set(found.values()) <= {1}
    assert found.keys() <= metrics.COUNTERS.keys()


def test_reaped_leases_are_counted_by_their_number():
    assert counters(events.Reaped(backend="database", count=7)) == {"leases_reaped": 7}


def test_runs_are_spread_by_how_long_they_took_and_waited():
    kept = counted(
        events.JobSucceeded(**ABOUT, seconds=0.005, waited=301),
        events.JobRetried(**ABOUT, delay=1, **FAILED, seconds=0.006, waited=0),
        events.JobDied(**ABOUT, reason="exhausted", seconds=2, waited=0),
        events.JobDied(**ABOUT, reason="rejected-queue", seconds=2, waited=2),
    ).histograms
    runs, waits = kept["job_run_seconds", "mail"], kept["job_wait_seconds", "mail"]
    ends = [*metrics.BUCKETS, "more"]
    assert {end: n for end, n in zip(ends, runs.counts, strict=True) if n} == {
        0.005: 1, 0.01: 1, 2.5: 1,
    }  # fmt: skip
    assert {end: n for end, n in zip(ends, waits.counts, strict=True) if n} == {0.005: 2, "more": 1}
    assert (runs.count, runs.microseconds) == (3, 2_011_000)


class OfAnotherProject:
    """A collector with no more than the protocol asks for."""

    def __init__(self):
        self.kept = InMemory()

    def increment(self, name, queue, by=1):
        self.kept.increment(name, queue, by)

    def observe(self, name, queue, seconds):
        self.kept.observe(name, queue, seconds)


def test_many_successes_are_taken_down_as_each_of_them_would_be():
    waited, seconds = [0.0, 0.2, 301.0], [0.004, 0.006, 2.0]
    together, plain, one_by_one = InMemory(), OfAnotherProject(), InMemory()
    for collector in (together, plain):
        metrics.add_successes(collector, "mail", waited, seconds)
    for wait, ran in zip(waited, seconds, strict=True):
        metrics.add(one_by_one, events.JobSucceeded(**ABOUT, seconds=ran, waited=wait))
    assert together.snapshot() == plain.kept.snapshot() == one_by_one.snapshot()


def test_what_was_taken_can_be_given_back():
    kept = InMemory()
    metrics.add_successes(kept, "mail", [0.0], [1.0])
    taken = kept.take()
    assert not kept.snapshot()
    metrics.add_successes(kept, "mail", [0.0], [1.0])
    kept.give_back(taken)
    assert kept.snapshot().counters["jobs_succeeded", "mail"] == 2
    assert kept.snapshot().histograms["job_run_seconds", "mail"].count == 2


def test_a_snapshot_is_a_copy():
    kept = InMemory()
    metrics.add_successes(kept, "mail", [0.0], [1.0])
    shown = kept.snapshot()
    metrics.add_successes(kept, "mail", [0.0], [1.0])
    assert shown.counters["jobs_succeeded", "mail"] == 1
    assert shown.histograms["job_run_seconds", "mail"].count == 1


def test_ever_new_names_of_queues_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(collectors, "MOST_KEYS", 10)
    kept = InMemory()
    for n in range(100):
        kept.increment("jobs_succeeded", f"q{n}")
        kept.observe("job_run_seconds", f"q{n}", 1.0)
    shown = kept.snapshot()
    assert len(shown.counters) == len(shown.histograms) == 11
    assert shown.counters["jobs_succeeded", "…"] == 90
    assert shown.histograms["job_run_seconds", "…"].count == 90
