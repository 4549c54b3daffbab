"""The public signals where jobs run in the process itself: process_once() and the sync backend."""

import threading
import time

import pytest
from django.db import connection, transaction

from django_jobs import enqueue_many, job, signals
from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob
from django_jobs.telemetry import events
from django_jobs.worker import process_once
from django_jobs.worker import signals as delivery
from django_jobs.worker.build import run_lease
from testproject.shop.models import Order

SYNC = "django_jobs.backends.sync.SyncBackend"


@job(key="signals.fail", max_retries=1, retry="none")
def fail():
    raise ValueError("no stamp")


@job(key="signals.succeed")
def succeed():
    return 1


class Heard(list):
    def receive(self, sender, **told):
        del told["signal"]
        self.append(told)


@pytest.fixture
def heard():
    heard = Heard()
    signals.job_dead.connect(heard.receive)
    yield heard
    signals.job_dead.disconnect(heard.receive)


@pytest.fixture
def connected():
    """Connects receivers, and lets go of them at the end."""
    receivers = []

    def connect(receiver):
        receivers.append(receiver)
        signals.job_dead.connect(receiver)

    yield connect
    for receiver in receivers:
        signals.job_dead.disconnect(receiver)


@pytest.fixture
def emitted():
    emitted = []
    events.subscribe(emitted.append)
    yield emitted
    events.unsubscribe(emitted.append)


def of_kind(emitted, kind):
    return [event for event in emitted if isinstance(event, kind)]


@pytest.mark.django_db(transaction=True)
def test_a_death_is_told_once_the_job_is_dead(heard, connected):
    found = []

    def look_it_up(sender, job_id, **told):
        found.append(FailedJob.objects.get(job_id=job_id))

    connected(look_it_up)
    handle = fail.using(trace_id="ab" * 16).enqueue()
    succeed.enqueue()
    statuses = [process_once().status for _ in range(3)]
    assert sorted(statuses) == ["acked", "dead-lettered", "requeued"]
    assert heard == [
        {
            "job_id": handle.id,
            "queue": "default",
            "handler": "signals.fail",
            "attempt": 2,
            "trace_id": "ab" * 16,
            "reason": "exhausted",
            "error_type": "ValueError",
            "error_message": "no stamp",
        }
    ]
    assert [str(failed.job_id) for failed in found] == [handle.id]


@pytest.mark.django_db
def test_a_receiver_that_breaks_the_transaction_around_it_breaks_only_its_own_part(connected):
    order = Order.objects.create(email="first@example.com", total=1)

    def clumsy(sender, **told):
        Order.objects.create(email="lost@example.com", total=1)
        Order.objects.create(pk=order.pk, email="again@example.com", total=1)

    connected(clumsy)
    fail.using(max_retries=0).enqueue()
    assert process_once().status == "dead-lettered"
    assert connection.in_atomic_block
    assert FailedJob.objects.count() == 1
    assert Order.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_raises_is_told_of_and_the_others_are_called(heard, connected, emitted):
    def stumbles(sender, **told):
        raise LookupError("nobody there")

    connected(stumbles)
    handle = fail.using(max_retries=0).enqueue()
    assert process_once().status == "dead-lettered"
    assert [told["job_id"] for told in heard] == [handle.id]
    (failed,) = of_kind(emitted, events.ReceiverFailed)
    assert (failed.signal, failed.about) == ("job_dead", handle.id)
    assert "stumbles" in failed.receiver
    assert str(failed.error) == "nobody there"


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_takes_too_long_is_interrupted(connected, emitted, monkeypatch):
    monkeypatch.setattr(delivery, "RECEIVERS_SECONDS", 0.1)

    def dawdle(sender, **told):
        time.sleep(30)

    connected(dawdle)
    handle = fail.using(max_retries=0).enqueue()
    assert process_once().status == "dead-lettered"
    (lost,) = of_kind(emitted, events.SignalLost)
    assert (lost.signal, lost.about) == ("job_dead", handle.id)
    assert "more than 0.1 seconds" in lost.why


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_leaves_a_transaction_open_leaves_none(connected):
    opened = []

    def leave_open(sender, **told):
        transaction.atomic().__enter__()
        Order.objects.create(email="open@example.com", total=1)
        opened.append(1)

    connected(leave_open)
    fail.using(max_retries=0).enqueue()
    process_once()
    assert opened
    assert not connection.in_atomic_block
    assert not Order.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_sync_backend_tells_where_the_job_was_enqueued(heard, settings):
    settings.DJANGO_JOBS = {
        "BACKENDS": {"default": {"BACKEND": SYNC}},
        "DEFAULT_BACKEND": "default",
    }
    where = []

    def note(sender, **told):
        where.append(threading.get_ident())

    signals.job_dead.connect(note)
    try:
        handle = fail.enqueue()
    finally:
        signals.job_dead.disconnect(note)
    assert [told["job_id"] for told in heard] == [handle.id]
    assert where == [threading.get_ident()]


@pytest.mark.django_db(transaction=True)
def test_a_lost_lease_is_no_death(heard):
    backend = backends["database"]
    fail.using(max_retries=0).enqueue()
    (lease,) = backend.fetch(["default"], 1, 0.0)
    assert backend.reap_expired() == 1
    assert run_lease(backend, lease, 30.0).status == "lease-lost"
    assert not heard


@pytest.mark.django_db(transaction=True)
def test_without_receivers_nothing_is_sent(emitted):
    sent = []
    fail.using(max_retries=0).enqueue()
    with delivery.sending_through(lambda *told: sent.append(told)):
        process_once()
    assert of_kind(emitted, events.JobDied)
    assert not sent


@pytest.mark.django_db(transaction=True)
def test_who_sends_instead_gets_plain_facts(heard):
    sent = []
    enqueue_many([fail.using(max_retries=0).prepare() for _ in range(2)])
    with delivery.sending_through(lambda *told: sent.append(told)):
        process_once()
    process_once()
    ((name, facts),) = sent
    assert name == "job_dead"
    assert all(isinstance(value, int | str) for value in facts.values())
    assert len(heard) == 1
