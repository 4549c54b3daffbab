"""A forged message in Redis, of a site that has switched verification off."""

import pytest
from django.test import override_settings

from django_jobs import job
from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob, OutboxJob
from django_jobs.worker import process_once
from tests.integration.redis.conftest import WORKER
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
UNVERIFIED = {"VERIFY_SIGNATURES": False}
calls = []


@job(key="tests.forged.work")
def work(how):
    calls.append(how)


@pytest.fixture(autouse=True)
def unverified(jobs):
    calls.clear()
    with override_settings(DJANGO_JOBS={**WORKER, **jobs, **UNVERIFIED}):
        yield


def forge(server, handle, true, forged):
    base = backends["redis"].store.layout.base("default")
    raw = server.client.hget(base + "jobs", handle.id)
    assert true in raw
    server.client.hset(base + "jobs", handle.id, raw.replace(true, forged))


def test_what_was_forged_is_rejected_without_any_system_check(server):
    forge(server, work.enqueue("signed"), b'"signed"', b'"forged"')
    assert process_once().status == "rejected"
    assert calls == []
    assert FailedJob.objects.get().reason == "rejected-signature"


@pytest.mark.parametrize("processes", [0, 1])
def test_a_worker_that_skips_the_checks_rejects_it_too(server, start, jobs, diary, processes):
    forge(server, gang.note.enqueue(str(diary.path), "signed"), b'"signed"', b'"forged"')
    options = ("--until-empty", "--skip-checks")
    assert start(*options, processes=processes, **jobs, **UNVERIFIED).ended() == 0
    assert diary.words == []
    assert FailedJob.objects.get().reason == "rejected-signature"


def test_what_was_forged_in_the_outbox_is_not_moved_on(server, jobs):
    carried = {"redis": {**jobs["BACKENDS"]["redis"], "OUTBOX": "default"}}
    with override_settings(DJANGO_JOBS={**WORKER, **jobs, **UNVERIFIED, "BACKENDS": carried}):
        work.enqueue("signed")
        row = OutboxJob.objects.get()
        OutboxJob.objects.update(body=row.body.replace('"signed"', '"forged"'))
        assert process_once().status == "empty"
    assert calls == []
    assert not OutboxJob.objects.exists()
    assert FailedJob.objects.get().reason == "rejected-signature"
