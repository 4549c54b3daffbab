"""Settling many: one outcome that nobody can settle hurts neither the others nor the worker."""

from django_jobs.backends.base import Settled
from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.execution.outcome import Snoozed, Succeeded
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.worker.asking import Asker
from django_jobs.worker.batch import settle_many
from django_jobs.worker.settle import Run, Settler
from django_jobs.worker.store import Outage


class Works:
    """A memory store with jobs in it, each leased."""

    def __init__(self, count, **terms):
        self.backend = MemoryBackend("default", {"CLOCK": ManualClock()})
        self.backend.enqueue([make_outgoing(**terms) for _ in range(count)])
        self.asker = Asker(Settler(self.backend, JobsSettings()), Outage("default"))
        self.runs = [self.run(lease) for lease in self.backend.fetch(["default"], count, 30.0)]

    def run(self, lease):
        envelope = make_opener().open(lease.message, "default")
        return Run(lease, envelope, 0, 0, 1, 2, "host:1")


def test_an_outcome_that_cannot_be_settled_is_a_failure_that_says_so():
    works = Works(4)
    outcomes = [Succeeded(1), Snoozed("soon"), Succeeded(2), Snoozed(3.0)]
    verdicts = settle_many(works.asker, list(zip(works.runs, outcomes, strict=True)))
    assert [verdict.status for verdict in verdicts] == [
        "acked",
        "dead-lettered",
        "acked",
        "snoozed",
    ]
    assert {verdict.answer for verdict in verdicts} == {Settled.SETTLED}
    (dead,) = works.backend.dead.values()
    assert dead.failure.error_type == "TypeError"
    assert "its Snoozed could not be settled: " in dead.failure.error_message


def test_it_is_charged_an_attempt_and_tried_again_while_it_has_any():
    works = Works(1, max_retries=1)
    (verdict,) = settle_many(works.asker, [(works.runs[0], Snoozed("soon"))])
    assert (verdict.status, verdict.answer) == ("requeued", Settled.SETTLED)
    (job,) = works.backend.jobs.values()
    assert (job.attempts, job.crashes) == (1, 0)


class BreaksEverySettle(MemoryBackend):
    """A backend of somebody else, with a mistake."""

    def ack(self, leases, results=None):
        raise KeyError("mistake")

    abandon = ack


def test_a_backend_that_raises_whatever_is_told_of_as_refusing():
    works = Works(3)
    works.backend.__class__ = BreaksEverySettle
    verdicts = settle_many(works.asker, [(run, Succeeded(1)) for run in works.runs])
    assert [verdict.status for verdict in verdicts] == ["refused"] * 3
