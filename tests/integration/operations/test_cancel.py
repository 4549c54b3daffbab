"""Cancelling jobs, whatever they do, and draining workers."""

import pytest

from django_jobs.backends.registry import backends
from django_jobs.models import Job, JobResult, OperatorEvent, Worker
from django_jobs.operations.cancel import cancel_or_ask_to_stop
from django_jobs.operations.workers import drain
from django_jobs.worker.build import process_once
from django_jobs.worker.duties import Presence
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db


def lease():
    (mine,) = backends["database"].fetch(["default"], 1, 30)
    return mine


def test_what_waits_is_cancelled_once():
    handle = doomed.enqueue()
    assert cancel_or_ask_to_stop(handle.id, by="ada").status == "cancelled"
    assert cancel_or_ask_to_stop(handle.id, by="bob").status == "gone"
    assert JobResult.objects.get().status == "cancelled"
    assert [event.action for event in OperatorEvent.objects.all()] == ["cancel"]


def test_what_runs_is_asked_once():
    handle = doomed.enqueue()
    mine = lease()
    backend = backends["database"]
    assert backend.asked_to_stop([mine]) == set()
    assert cancel_or_ask_to_stop(handle.id, by="ada", reason="wrong order").status == "asked"
    assert cancel_or_ask_to_stop(handle.id, by="bob").status == "already-asked"
    assert backend.asked_to_stop([mine]) == {handle.id}
    event = OperatorEvent.objects.get()
    assert (event.action, event.actor, event.reason) == ("stop", "ada", "wrong order")


def test_what_comes_back_after_it_was_asked_is_not_run_again():
    handle = doomed.using(max_retries=5).enqueue()
    mine = lease()
    cancel_or_ask_to_stop(handle.id, by="ada")
    backends["database"].nack(mine)
    assert process_once().status == "cancelled"
    assert handle.status == "cancelled"
    assert not Job.objects.exists()


@pytest.mark.parametrize("unknown", ["elephant", "00000000-0000-7000-8000-000000000000"])
def test_nothing_is_gone(unknown):
    assert cancel_or_ask_to_stop(unknown, by="ada").status == "gone"
    assert drain(unknown, by="ada").status == "gone"
    assert not OperatorEvent.objects.exists()


def test_a_witness_that_fails_undoes_it():
    handle = doomed.enqueue()

    def witness(_):
        raise RuntimeError("no log")

    with pytest.raises(RuntimeError):
        cancel_or_ask_to_stop(handle.id, by="ada", witness=witness)
    assert handle.status == "ready"
    assert not OperatorEvent.objects.exists()


def test_a_worker_is_asked_to_drain_once(monkeypatch):
    monkeypatch.setattr("django_jobs.worker.duties.SEEN_EVERY_SECONDS", 0.0)
    presence = Presence(backends["database"], "mail", running=lambda: 3)
    presence.write()
    row = Worker.objects.get()
    assert row.running == 3
    assert drain(str(row.pk), by="ada", reason="moves").status == "asked"
    assert drain(str(row.pk), by="bob").status == "already-asked"
    presence.write()
    assert presence.draining
    event = OperatorEvent.objects.get()
    assert (event.action, event.actor, event.subject) == ("drain", "ada", str(row))
