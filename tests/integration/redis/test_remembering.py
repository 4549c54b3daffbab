"""An id that has ended, and comes again."""

import pytest
from django.test import override_settings

from django_jobs import job
from django_jobs.backends.base import OnConflict
from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import process_once
from tests.integration.redis.conftest import jobs_in

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
calls = []


@job(key="remembering.work")
def work(how="succeed"):
    calls.append(how)
    if how == "fail":
        raise RuntimeError("no")


@pytest.fixture(autouse=True)
def fresh(jobs):
    calls.clear()


class Copy:
    """The raw entry of a waiting job, and somebody who writes to Redis."""

    def __init__(self, server, handle):
        self.client, self.id = server.client, handle.id
        self.base = backends["redis"].store.layout.base("default")
        self.raw = self.client.hget(self.base + "jobs", self.id)

    def put_back(self):
        self.client.hset(self.base + "jobs", self.id, self.raw)
        self.client.zadd(self.base + "ready", {self.raw[1:20] + self.id.encode(): 0})


@pytest.mark.parametrize(
    "options", [{}, {"idempotency_key": "once"}, {"single_instance": True}], ids=str
)
def test_a_copy_of_what_ran_is_refused(server, options):
    copy = Copy(server, work.using(**options).enqueue())
    assert process_once().status == "acked"
    copy.put_back()
    assert process_once().status == "rejected"
    assert calls == ["succeed"]
    dead = FailedJob.objects.get()
    assert (str(dead.job_id), dead.reason) == (copy.id, "rejected-replayed")
    assert work.using(**{**options, "idempotency_key": "other"}).enqueue()
    assert process_once().status == "acked"  # the copy holds no place


def test_a_copy_of_what_died_is_refused_and_its_letter_stays(server):
    copy = Copy(server, work.enqueue("fail"))
    assert process_once().status == "dead-lettered"
    copy.put_back()
    assert process_once().status == "rejected"
    assert calls == ["fail"]
    assert FailedJob.objects.get().reason == "exhausted"
    assert process_once().status == "empty"


def test_a_copy_of_what_was_cancelled_is_refused(server):
    copy = Copy(server, work.enqueue())
    assert backends["redis"].cancel(copy.id)
    copy.put_back()
    assert process_once().status == "rejected"
    assert calls == []


def test_a_forged_copy_is_told_from_a_true_one(server):
    copy = Copy(server, work.enqueue())
    assert process_once().status == "acked"
    copy.raw = copy.raw.replace(b'"default"', b'"another"')
    copy.put_back()
    assert process_once().status == "rejected"
    assert FailedJob.objects.get().reason == "rejected-signature"


@pytest.mark.parametrize("on_conflict", OnConflict)
def test_enqueueing_what_ended_does_nothing(backend, on_conflict):
    outgoing = make_outgoing(backend="redis", unique_key="one")
    backend.enqueue([outgoing])
    backend.ack(backend.fetch(["default"], 1, 30))
    (again,) = backend.enqueue([outgoing], on_conflict=on_conflict)
    assert again == (outgoing.id, False)
    assert backend.fetch(["default"], 1, 30) == []


def test_a_retry_is_no_copy(backend):
    backend.enqueue([make_outgoing(backend="redis")])
    for _ in range(3):
        (lease,) = backend.fetch(["default"], 1, 30)
        assert not lease.replayed
        backend.nack(lease, 0)


def test_it_is_remembered_for_as_long_as_is_said(server):
    settings = jobs_in(server, REMEMBER_SECONDS=100)
    with override_settings(DJANGO_JOBS=settings):
        copy = Copy(server, work.enqueue())
        assert process_once().status == "acked"
        (key,) = server.client.scan_iter("*:ended:*")
        assert 90_000 < server.client.pttl(key) <= 100_000
        server.client.delete(key)  # as when the time is over
        copy.put_back()
        assert process_once().status == "acked"
    assert len(calls) == 2


def test_it_may_be_told_to_remember_nothing(server):
    with override_settings(DJANGO_JOBS=jobs_in(server, REMEMBER_SECONDS=0)):
        work.enqueue()
        assert process_once().status == "acked"
        assert list(server.client.scan_iter("*:ended:*")) == []
