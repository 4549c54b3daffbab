"""One duty of a worker that fails: the others are done, and the worker goes on."""

from types import SimpleNamespace

import pytest
from django.db import DataError

from django_jobs.backends.base import HasHousekeeping, HousekeepingDue
from django_jobs.backends.memory import MemoryBackend
from django_jobs.outbox.relay import Moved
from django_jobs.worker import duties
from django_jobs.worker.duties import Duties, DutyRunner, Housekeeping
from django_jobs.worker.store import Outage

pytestmark = pytest.mark.usefixtures("heard")


@pytest.fixture
def heard(caplog):
    def said():
        return [record.getMessage() for record in caplog.records if record.key == "duty.failed"]

    return said


class Broken(MemoryBackend, HasHousekeeping):
    """Cannot reap, for a reason that is no error of a database."""

    cleaned = 0

    def housekeeping_due(self):
        return HousekeepingDue(reap=True, clean_up=True)

    def reap_expired(self, queue=None, limit=1000):
        raise ValueError("a row that nobody can read")

    def clean_up(self, limit=1000):
        self.cleaned += 1
        return 0


def test_a_duty_that_fails_is_told_of_once_and_keeps_no_other_from_being_done(heard, monkeypatch):
    monkeypatch.setattr(duties, "AGAIN_SECONDS", 0.0)
    backend = Broken("database", {})
    house = Housekeeping(backend, 30.0)
    for _ in range(3):
        house.hurry()
        assert house.step() is False
    assert backend.cleaned == 3
    (sentence,) = heard()
    assert "failed to return lost jobs: ValueError: a row that nobody can read" in sentence


class Blind(MemoryBackend, HasHousekeeping):
    """Cannot tell what there is to do."""

    def housekeeping_due(self):
        raise ValueError("a moment that nobody can read")


def test_a_look_that_fails_is_told_of_and_leaves_the_worker_time_to_rest(heard):
    house = Housekeeping(Blind("database", {}), 30.0)
    assert house.step() is False
    house.hurry()  # as with a store that fails otherwise too
    assert house.seconds_left() > duties.AGAIN_SECONDS / 2
    (sentence,) = heard()
    assert "failed to look for housekeeping: ValueError: a moment that nobody can read" in sentence


def test_a_duty_is_tried_again_after_a_while_and_told_of_anew_when_it_had_gone_well(
    heard, monkeypatch
):
    runner, fails = DutyRunner(MemoryBackend("database", {})), True

    def work():
        if fails:
            raise DataError("refused")
        return 7

    assert runner.do("add", work) is None
    fails = False
    assert runner.do("add", work) is None  # not yet
    monkeypatch.setattr(duties, "AGAIN_SECONDS", 0.0)
    assert runner.do("add", work) == 7
    fails = True
    assert runner.do("add", work) is None
    assert len(heard()) == 2


class Bench:
    """Takes down which duties were done, in their order; ``fails``: which of them fails."""

    def __init__(self, fails=""):
        self.done = []
        self.fails = fails

    def note(self, name, answer=None):
        def work():
            self.done.append(name)
            if name == self.fails:
                raise ValueError(name)
            return answer

        return work


@pytest.fixture
def made(monkeypatch):
    """Duties that only take down that they are done."""

    def make(*, fails="", ready=False, moved=0):
        bench = Bench(fails)
        presence = SimpleNamespace(
            write=bench.note("presence"), end=bench.note("leave"), draining=False
        )
        backend = MemoryBackend("database", {})
        duties = Duties(backend, 30.0, Outage("database"), presence)
        duties.relay = SimpleNamespace(
            step=bench.note("relay", Moved(moved, left=False)), seconds_left=lambda: 7.0
        )
        monkeypatch.setattr(duties.tally, "write_if_due", bench.note("tally"))
        monkeypatch.setattr(duties.tally, "end", bench.note("last tally"))
        monkeypatch.setattr(duties._ledger, "write", bench.note("ledger"))
        monkeypatch.setattr(duties.housekeeping, "step", bench.note("house", ready))
        return duties, bench

    return make


@pytest.mark.parametrize(("ready", "moved"), [(False, 0), (True, 0), (False, 2), (True, 2)])
def test_a_step_does_every_duty_and_tells_whether_a_job_may_be_ready(made, ready, moved):
    duties, bench = made(ready=ready, moved=moved)
    assert duties.step() is (ready or moved > 0)
    assert bench.done == ["presence", "tally", "ledger", "relay", "house"]


@pytest.mark.parametrize("fails", ["presence", "tally", "ledger"])
def test_a_duty_of_a_step_that_fails_keeps_no_other_from_being_done(made, fails, heard):
    duties, bench = made(fails=fails, ready=True)
    assert duties.step() is True
    assert bench.done == ["presence", "tally", "ledger", "relay", "house"]
    assert len(heard()) == 1


def test_duties_are_due_when_the_first_of_them_is(made):
    duties, _ = made()
    duties.housekeeping.hurry()
    assert duties.seconds_left() == 0.0
    duties.housekeeping._due_at = float("inf")
    assert duties.seconds_left() == 7.0


def test_a_worker_leaves_though_its_last_counts_cannot_be_told(made):
    duties, bench = made(fails="last tally")
    with pytest.raises(ValueError, match="last tally"):
        duties.end()
    assert bench.done == ["last tally", "leave"]


def test_a_store_that_cannot_be_reached_stops_the_duties(heard):
    def work():
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        DutyRunner(MemoryBackend("database", {})).do("add", work)
    assert heard() == []
