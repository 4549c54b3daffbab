"""One duty of a worker that fails: the others are done, and the worker goes on."""

import pytest
from django.db import DataError

from django_jobs.backends.base import Chores, KeepsHouse
from django_jobs.backends.memory import MemoryBackend
from django_jobs.worker import duties as housekeeping
from django_jobs.worker.duties import Duties, Housekeeping

pytestmark = pytest.mark.usefixtures("heard")


@pytest.fixture
def heard(caplog):
    def said():
        return [record.getMessage() for record in caplog.records if record.key == "duty.failed"]

    return said


class Broken(MemoryBackend, KeepsHouse):
    """Cannot reap, for a reason that is no error of a database."""

    tidied = 0

    def chores(self):
        return Chores(reap=True, tidy=True)

    def reap_expired(self, queue=None, limit=1000):
        raise ValueError("a row that nobody can read")

    def tidy(self, limit=1000):
        self.tidied += 1
        return 0


def test_a_duty_that_fails_is_told_of_once_and_keeps_no_other_from_being_done(heard, monkeypatch):
    monkeypatch.setattr(housekeeping, "AGAIN_SECONDS", 0.0)
    backend = Broken("database", {})
    house = Housekeeping(backend, 30.0)
    for _ in range(3):
        house.hurry()
        assert house.step() is False
    assert backend.tidied == 3
    (sentence,) = heard()
    assert "failed to return lost jobs: ValueError: a row that nobody can read" in sentence


class Blind(MemoryBackend, KeepsHouse):
    """Cannot tell what there is to do."""

    def chores(self):
        raise ValueError("a moment that nobody can read")


def test_a_look_that_fails_is_told_of_and_leaves_the_worker_time_to_rest(heard):
    house = Housekeeping(Blind("database", {}), 30.0)
    assert house.step() is False
    house.hurry()  # as with a store that fails otherwise too
    assert house.seconds_left() > housekeeping.AGAIN_SECONDS / 2
    (sentence,) = heard()
    assert "failed to keep house: ValueError: a moment that nobody can read" in sentence


def test_a_duty_is_tried_again_after_a_while_and_told_of_anew_when_it_had_gone_well(
    heard, monkeypatch
):
    duties, fails = Duties(MemoryBackend("database", {})), True

    def work():
        if fails:
            raise DataError("refused")
        return 7

    assert duties.do("add", work) is None
    fails = False
    assert duties.do("add", work) is None  # not yet
    monkeypatch.setattr(housekeeping, "AGAIN_SECONDS", 0.0)
    assert duties.do("add", work) == 7
    fails = True
    assert duties.do("add", work) is None
    assert len(heard()) == 2


def test_a_store_that_serves_nobody_is_everybodys_trouble(heard):
    def work():
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        Duties(MemoryBackend("database", {})).do("add", work)
    assert heard() == []
