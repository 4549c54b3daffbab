"""A claim whose answer never came: what it took goes back by its token, charged nothing."""

import sqlite3

import pytest
from django.db import OperationalError

from django_jobs.backends import unanswered
from django_jobs.backends.base import Settled
from django_jobs.backends.database.claim import Claim
from django_jobs.exceptions import StoreUnavailable
from django_jobs.models import Job, JobState
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db


class Unanswered(Claim):
    """Its connection breaks when the claim is done, before anybody hears of it."""

    def from_queue(self, queue):
        super().from_queue(queue)
        raise OperationalError("the connection broke")


@pytest.fixture
def lose_the_answer(backend, monkeypatch):
    """Let a claim happen without an answer."""

    def lose():
        monkeypatch.setattr(backend, "claim_class", Unanswered)
        with pytest.raises(OperationalError):
            backend.fetch(["default"], 9, 30.0)
        monkeypatch.setattr(backend, "claim_class", Claim)
        assert set(Job.objects.values_list("state", flat=True)) == {JobState.RUNNING}

    return lose


def test_the_next_claim_gets_what_an_unanswered_one_took(backend, lose_the_answer):
    ids = put(backend, 3)
    lose_the_answer()
    assert [lease.id for lease in backend.fetch(["default"], 9, 30.0)] == ids
    assert set(Job.objects.values_list("deliveries", "attempts", "crashes", "suspect")) == {
        (1, 0, 0, False)
    }


def test_it_goes_back_without_a_claim_too(backend, lose_the_answer):
    put(backend, 2)
    lose_the_answer()
    backend.return_unanswered()
    rows = Job.objects.values_list("state", "lease_token", "lease_expires", "worker", "deliveries")
    assert set(rows) == {(JobState.READY, None, None, None, 0)}


def test_a_suspect_stays_one(backend, manual, lose_the_answer):
    put(backend)
    backend.fetch(["default"], 1, 30.0)
    manual.advance(30)
    assert backend.reap_expired() == 1
    lose_the_answer()
    backend.return_unanswered()
    assert Job.objects.values_list("state", "suspect", "crashes").get() == (JobState.READY, True, 0)


def test_places_of_a_key_that_were_taken_are_free_again(backend):
    first, _second = put(backend, 2, concurrency_key="disk")
    lose_the_answer_of_admission(backend)
    backend.return_unanswered()
    assert [lease.id for lease in backend.fetch(["default"], 9, 30.0)] == [first]


def lose_the_answer_of_admission(backend):
    """What was claimed has been admitted too when the connection breaks."""
    admitted = backend._meters.admitted

    def breaks(*_args, **_options):
        backend._meters.admitted = admitted
        raise OperationalError("the connection broke")

    backend._meters.admitted = breaks
    with pytest.raises(OperationalError):
        backend.fetch(["default"], 9, 30.0)


def test_what_others_have_leased_meanwhile_is_theirs(backend, manual, lose_the_answer):
    put(backend)
    lose_the_answer()
    manual.advance(30)
    assert backend.reap_expired() == 1
    token = "b" * 32
    Job.objects.update(state=JobState.RUNNING, lease_token=token, lease_expires=1, worker="other")
    backend.return_unanswered()
    assert Job.objects.get().lease_token == token


def test_a_claim_that_never_happened_is_asked_for_ever_less_and_then_forgotten(monkeypatch):
    asked, now = [], [100.0]
    monkeypatch.setattr(unanswered.time, "monotonic", lambda: now[0])
    claims = unanswered.UnansweredClaims[str](lambda token: asked.append((token, now[0])) or 0)
    claims.add(["t"], 10.0)
    while now[0] < 130.0:
        claims.give_back()
        now[0] += 0.5
    assert asked == [("t", 100.0), ("t", 101.0), ("t", 103.0), ("t", 107.0), ("t", 115.0)]


def broken(cause):
    error = OperationalError(str(cause))
    error.__cause__ = cause
    return error


def away(*, spares_others):
    error = StoreUnavailable("it is away")
    error.spares_others = spares_others
    return error


@pytest.mark.parametrize(
    "error",
    [broken(sqlite3.OperationalError("disk I/O error")), away(spares_others=False)],
    ids=["database", "broker"],
)
def test_a_store_that_is_away_does_not_seem_to_work_for_what_is_to_go_back(error):
    answers = [error, error, 1]

    def give_back(_token):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    claims = unanswered.UnansweredClaims[str](give_back)
    claims.add(["t"], 10.0)
    for _ in range(2):
        with pytest.raises(type(error)):
            claims.give_back()
    claims.give_back()
    assert not answers


def test_a_server_of_a_cluster_that_is_away_keeps_no_other_claim_from_going_back():
    asked = []

    def give_back(token):
        asked.append(token)
        if token == "there":
            raise away(spares_others=True)
        return 1

    claims = unanswered.UnansweredClaims[str](give_back)
    claims.add(["there", "here"], 10.0)
    claims.give_back()
    assert asked == ["there", "here"]


def test_a_lease_that_was_given_back_so_settles_no_more(backend):
    put(backend)
    (lease,) = backend.fetch(["default"], 1, 30.0)
    backend._unanswered.add([lease.token], 30.0)
    backend.return_unanswered()
    assert backend.ack([lease]) == [Settled.LOST]
