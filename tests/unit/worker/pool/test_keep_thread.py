"""A failure of one settle stops neither the others nor the renewals; and it ends."""

import threading
from types import SimpleNamespace

import pytest

from django_jobs.backends.base import Reconnects, Settled
from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.outcome import ErrorText, Failed, Succeeded
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.worker.duties import Tally
from django_jobs.worker.pool import keep_thread, store_threads
from django_jobs.worker.pool.keep_thread import Holdings, Keep
from django_jobs.worker.pool.thread_messages import (
    AllDone,
    Finished,
    Renewed,
    Shared,
)
from django_jobs.worker.settle import Run, Settler, SettleTerms
from django_jobs.worker.store import Asker, Outage

LEASE = 30.0


class LockedRows(MemoryBackend, Reconnects):
    """A memory store in which somebody has rows locked: the others are settled."""

    def __init__(self):
        super().__init__("default", {"CLOCK": ManualClock()})
        self.locked, self.asked, self.down = set(), [], False
        self.breaks = set()

    def is_connected(self):
        return not self.down

    def ack(self, leases, results=None, **how):
        if self.down or self.breaks & {lease.id for lease in leases}:
            raise OSError("gone")
        self.asked.append([lease.id for lease in leases])
        free = [lease for lease in leases if lease.id not in self.locked]
        answers = dict(zip([x.id for x in free], super().ack(free, results, **how), strict=True))
        return [answers.get(lease.id, Settled.UNKNOWN) for lease in leases]

    def abandon(self, lease, failure):
        self.asked.append([lease.id])
        if lease.id in self.locked:
            return Settled.UNKNOWN
        return super().abandon(lease, failure)


class Keeping:
    """A ``Keep`` over such a store, with a clock that is set by hand."""

    def __init__(self, monkeypatch, jobs):
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in (keep_thread, keep_thread):
            monkeypatch.setattr(module, "time", clock)
        self.backend = LockedRows()
        self.backend.enqueue([make_outgoing() for _ in range(jobs)])
        self.leases = self.backend.fetch(["default"], jobs, LEASE)
        self.outage = Outage("default")
        asker = Asker(Settler(self.backend, JobsSettings()), self.outage)
        self.facts = []
        self.holdings = Holdings(LEASE)
        self.holdings.add(self.leases, LEASE, self.now)
        shared = Shared(
            backend=self.backend,
            settings=JobsSettings(),
            asker=asker,
            holdings=self.holdings,
            tally=Tally(self.backend),
            lease=LEASE,
            report=self.facts.append,
            wake=lambda: None,
            stopped=lambda: True,  # so that an outage is not waited out
        )
        self.keep = Keep(shared, threading.Condition(), lambda: None)
        self.holdings.due = dict  # renewals are of another test

    def finish(self, lease, outcome=None):
        envelope = make_opener().open(lease.message, "default")
        run = Run(lease, SettleTerms.of(envelope), 0, 0, 1, 2, "host:1")
        self.keep.finished.append(Finished(run, outcome or Succeeded(1)))

    def turns(self):
        for _ in range(50):
            if not self.keep.turn():
                return

    @property
    def settled(self):
        done = [fact for fact in self.facts if isinstance(fact, AllDone)]
        return {one.run.lease.id: one.verdict for fact in done for one in fact.settled}


@pytest.fixture
def keeping(monkeypatch):
    return lambda jobs: Keeping(monkeypatch, jobs)


def test_one_settle_that_cannot_be_done_now_stops_nothing_else(keeping):
    works = keeping(4)
    locked, *others = works.leases
    works.backend.locked.add(locked.id)
    for lease in works.leases:
        works.finish(lease)
    works.turns()
    assert set(works.settled) == {lease.id for lease in others}
    assert not works.keep.is_over
    assert not works.keep.is_stuck
    assert locked.id in [lease.id for lease in works.holdings.long_held(0)]


def test_it_is_tried_again_after_pauses_that_grow_and_settled_when_it_can_be(keeping):
    works = keeping(1)
    (lease,) = works.leases
    works.backend.locked.add(lease.id)
    works.finish(lease)
    asked_at = []
    for _ in range(200):
        before = len(works.backend.asked)
        works.turns()
        if len(works.backend.asked) > before:
            asked_at.append(works.now - 1000.0)
        if works.now >= 1016.0:
            works.backend.locked.clear()
        works.now += 0.25
    assert asked_at == [0.0, 1.0, 3.0, 7.0, 12.0, 17.0]
    assert works.settled[lease.id].answer is Settled.SETTLED
    assert works.keep.is_over


def test_what_just_ended_is_not_passed_over_for_what_waits(keeping):
    works = keeping(4)
    locked, *others = works.leases
    works.backend.locked.add(locked.id)
    works.finish(locked)
    works.turns()
    for lease in others:
        works.now += 60.0  # what waits is due each time
        works.finish(lease)
        works.keep.turn()
        works.keep.turn()
        assert lease.id in works.settled


def test_after_three_leases_a_settle_is_given_up_and_said_to_be_unknown(keeping):
    works = keeping(1)
    (lease,) = works.leases
    works.backend.locked.add(lease.id)
    works.finish(lease)
    for _ in range(1000):
        works.turns()
        works.now += 0.25
    assert works.settled[lease.id].answer is Settled.UNKNOWN
    assert works.keep.is_over
    assert len(works.holdings) == 0


def test_a_store_that_answers_nobody_loses_no_outcome(keeping):
    works = keeping(3)
    works.backend.down = True
    for lease in works.leases:
        works.finish(lease)
    assert works.keep.turn()
    assert works.keep.is_stuck
    assert not works.settled
    works.backend.down = False
    works.turns()
    assert {verdict.answer for verdict in works.settled.values()} == {Settled.SETTLED}
    assert not works.keep.is_stuck


def test_with_nothing_left_to_keep_it_hears_that_the_store_is_back(keeping):
    works = keeping(1)
    works.backend.renew = lambda *_: (_ for _ in ()).throw(OSError("gone"))
    due = [{LEASE: list(works.leases)}]
    works.holdings.due = lambda: due.pop() if due else {}
    assert works.keep.turn()
    works.holdings.drop(works.leases)  # a child has settled it
    works.turns()
    assert not works.keep.store.fails
    assert works.outage.seconds == 0.0


def test_a_settle_that_breaks_its_connection_each_time_stops_no_other_and_is_given_up(keeping):
    works = keeping(9)
    works.backend.breaks.add(works.leases[4].id)
    for lease in works.leases:
        works.finish(lease)
    for _ in range(30):
        works.turns()
    assert len(works.settled) == 8
    assert not works.keep.is_stuck
    for _ in range(1000):
        works.turns()
        if works.now % 1 == 0:  # others end meanwhile, and are answered
            works.finish(works.leases[0])
        works.now += 0.25
    assert works.settled[works.leases[4].id].answer is Settled.UNKNOWN
    assert works.keep.is_over


def test_an_outage_however_long_gives_up_no_settle(keeping):
    works = keeping(3)
    works.backend.down = True
    for lease in works.leases:
        works.finish(lease)
    for _ in range(1000):
        works.turns()
        works.now += 0.5
    assert not works.settled
    works.backend.down = False
    for _ in range(100):
        works.turns()
        works.now += 0.5
    assert {verdict.answer for verdict in works.settled.values()} == {Settled.SETTLED}
    assert len(works.settled) == 3


def test_a_dead_letter_that_cannot_be_written_now_waits_by_itself(keeping):
    works = keeping(2)
    locked, other = works.leases
    works.backend.locked.add(locked.id)
    failed = Failed(ErrorText("ValueError", "no"))
    works.finish(locked, failed)
    works.finish(other, failed)
    works.turns()
    assert set(works.settled) == {other.id}
    works.backend.locked.clear()
    works.now += 1.0
    works.turns()
    assert set(works.settled) == {other.id, locked.id}
    assert len(works.backend.dead) == 2


def test_renewals_come_before_any_settle(monkeypatch, keeping):
    works = keeping(2)
    for lease in works.leases:
        works.finish(lease)
    due = [{LEASE: list(works.leases)}]
    works.holdings.due = lambda: due.pop() if due else {}
    works.keep.turn()
    assert isinstance(works.facts[0], Renewed)
    assert not works.settled


def test_the_database_gives_up_before_a_call_is_cut():
    shares = (store_threads.KEEP_STATEMENT_SHARE, store_threads.GET_STATEMENT_SHARE)
    assert all(share > store_threads.HANG_SHARE for share in shares)
    assert store_threads.LONGEST_LOCK_SECONDS <= 1.0


def test_what_fails_as_nobody_foresaw_is_not_renewed_for_ever(monkeypatch, keeping):
    kept = keeping(2)

    def breaks(*_, **__):
        raise RuntimeError("of ours")

    monkeypatch.setattr(keep_thread, "settle_many", breaks)
    kept.finish(kept.leases[0])
    kept.turns()
    (told,) = [fact for fact in kept.facts if isinstance(fact, AllDone)]
    assert [done.run.lease.id for done in told.settled] == [kept.leases[0].id]
    assert len(kept.holdings) == 1
    assert kept.keep.is_over
