"""Settling many: one outcome that nobody can settle hurts neither the others nor the worker."""

from collections import deque

from django_jobs.backends.base import Reconnects, Settled
from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.outcome import Interrupted, Snoozed, Succeeded
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.worker.pool.keep_thread import next_batch
from django_jobs.worker.pool.thread_messages import Finished
from django_jobs.worker.settle import Run, Settler, SettleTerms
from django_jobs.worker.settle_many import settle_many
from django_jobs.worker.store import Asker, Outage


class Works:
    """A memory store with jobs in it, each leased."""

    def __init__(self, count, **terms):
        self.backend = MemoryBackend("default", {"CLOCK": ManualClock()})
        self.backend.enqueue([make_outgoing(**terms) for _ in range(count)])
        self.asker = Asker(Settler(self.backend, JobsSettings()), Outage("default"))
        self.runs = [self.run(lease) for lease in self.backend.fetch(["default"], count, 30.0)]

    def run(self, lease):
        envelope = make_opener().open(lease.message, "default")
        return Run(lease, SettleTerms.of(envelope), 0, 0, 1, 2, "host:1")


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


class CountsSteps(MemoryBackend):
    def nack_all(self, leases):
        self.steps = [*getattr(self, "steps", []), len(leases)]
        return super().nack_all(leases)


def test_what_goes_back_to_its_place_goes_back_in_one_step():
    works = Works(6)
    works.backend.__class__ = CountsSteps
    outcomes = [Interrupted("stop"), Succeeded(1), Interrupted("its fault?", suspect=True)]
    items = list(zip(works.runs, [*outcomes, *[Interrupted("stop")] * 3], strict=True))
    verdicts = settle_many(works.asker, items)
    assert [verdict.status for verdict in verdicts] == ["requeued", "acked", *["requeued"] * 4]
    assert {verdict.answer for verdict in verdicts} == {Settled.SETTLED}
    assert works.backend.steps == [4]
    assert sorted(job.suspect for job in works.backend.jobs.values()) == [False] * 4 + [True]


def test_a_batch_takes_as_many_of_them_as_of_what_ended():
    (run,) = Works(1).runs
    finished = deque([Finished(run, Interrupted("stop"))] * 300)
    assert len(next_batch(finished)) == 300


class HangsUp(MemoryBackend, Reconnects):
    """Its connection breaks while it settles: whether it did is not known."""

    def ack(self, leases, results=None, **how):
        return [Settled.UNKNOWN for _ in leases]

    def is_connected(self):
        return False


def test_settles_whose_answers_never_came_end_no_outage():
    works = Works(2)
    works.backend.__class__ = HangsUp
    outage = works.asker.outage
    outage.begins(ConnectionError("gone"))
    items = [(run, Succeeded(1)) for run in works.runs]
    verdicts = settle_many(works.asker, items)
    assert {verdict.answer for verdict in verdicts} == {Settled.UNKNOWN}
    assert outage.seconds > 0
