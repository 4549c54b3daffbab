"""Groups of dead letters: counted as they die, are resolved and purged."""

from datetime import timedelta

import pytest

from django_jobs.models import FailedJob, FailureGroup
from django_jobs.operations.dead_letters import discard, groups, recount_groups
from django_jobs.operations.purge import purge
from django_jobs.operations.replay import replay
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
ONE, OTHER = "0" * 32, "1" * 32


def counts():
    return {group.fingerprint: (group.open, group.seen) for group in groups(resolved=True)}


def from_another_process(monkeypatch):
    monkeypatch.setattr("django_jobs.db.dead_letters._slot", lambda: 77)


def test_count_open_and_all_with_first_and_last():
    first = die(fingerprint=ONE)
    last = die(fingerprint=ONE)
    die(send_receipt.prepare(1), fingerprint=OTHER, error_type="ValueError")
    (group, other) = groups()
    assert (group.fingerprint, group.open, group.seen) == (ONE, 2, 2)
    assert (group.first_seen, group.last_seen) == (first.failed_at, last.failed_at)
    assert (other.handler, other.error_type) == ("testproject.shop.jobs.send_receipt", "ValueError")


def test_follow_what_is_done(monkeypatch):
    letters = [die(fingerprint=ONE) for _ in range(4)]
    replay(letters[0].pk, by="me")
    replay(letters[0].pk, by="me")
    from_another_process(monkeypatch)
    discard(letters[1].pk, by="me")
    assert counts() == {ONE: (2, 4)}
    discard(letters[2].pk, by="me")
    discard(letters[3].pk, by="me")
    assert groups() == []
    assert counts() == {ONE: (0, 4)}


def test_follow_a_purge(monkeypatch):
    letters = [die(fingerprint=ONE) for _ in range(3)] + [die(fingerprint=OTHER)]
    discard(letters[0].pk, by="me")
    kept = die(fingerprint=OTHER)
    old = FailedJob.objects.exclude(pk=kept.pk)
    old.update(failed_at=letters[0].failed_at - timedelta(days=9))
    from_another_process(monkeypatch)
    purge(state="dead", older_than=timedelta(days=1), batch=2)
    assert counts() == {OTHER: (1, 1)}


def test_without_an_error_are_those_of_one_handler_and_reason():
    for prepared in (doomed.prepare(), doomed.prepare(), send_receipt.prepare(1)):
        die(prepared, reason="expired", fingerprint="", error_type="", error_message="")
    assert sorted(group.open for group in groups()) == [1, 2]
    assert FailedJob.objects.filter(fingerprint="").count() == 0


def test_counting_anew_comes_to_the_same(monkeypatch):
    letters = [die(fingerprint=ONE) for _ in range(3)] + [die(fingerprint=OTHER)]
    from_another_process(monkeypatch)
    discard(letters[0].pk, by="me")
    before = groups(resolved=True)
    FailureGroup.objects.update(open=1000, seen=0)
    assert recount_groups() == 2
    assert groups(resolved=True) == before
