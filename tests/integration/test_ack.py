"""An ack takes what its leases hold and keeps their results, by whichever statement it is sent."""

import pytest

from django_jobs.backends.base import ResultRecord, Settled
from django_jobs.clock import SECOND
from django_jobs.db.clock import for_people
from django_jobs.models import Job, JobResult
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.django_db
FULL = ResultRecord(
    status="succeeded",
    value_json='{"a": "\\"b, c\\\\"}',
    output="said, {so}",
    started_at=1_700_000_000_000_001,
    finished_at=1_700_000_001_500_000,
    worker="worker, 1",
    ttl_seconds=90.5,
)
BARE = ResultRecord(status="cancelled", ttl_seconds=7)


@pytest.fixture(params=[None, "disk"], ids=["without a key", "with a key"])
def claimed(request, backend):
    """Leases of one claim; with a key, PostgreSQL takes the way of the other databases."""

    def leases(count):
        terms = {"concurrency_key": request.param, "concurrency": 9} if request.param else {}
        backend.enqueue([make_outgoing(backend="database", **terms) for _ in range(count)])
        return backend.fetch(["default"], count, 30.0)

    return leases


def living():
    return {str(pk) for pk in Job.objects.values_list("pk", flat=True)}


@pytest.mark.parametrize("handle", ["its own", "none", "a neighbour's"])
def test_of_one_claim_only_what_is_acked_goes(handle, backend, claimed):
    first, second, third = claimed(3)
    handles = {"its own": second.handle, "none": None, "a neighbour's": third.handle}
    assert backend.ack([second._replace(handle=handles[handle])]) == [Settled.SETTLED]
    assert living() == {first.id, third.id}


def test_a_lost_lease_takes_nothing_even_where_the_row_lies_in_its_place(backend, claimed):
    (stale,) = claimed(1)
    backend.nack(stale, 0)
    (current,) = backend.fetch(["default"], 1, 30.0)
    assert backend.ack([stale._replace(handle=current.handle)], {stale.id: FULL}) == [Settled.LOST]
    assert living() == {current.id}
    assert not JobResult.objects.exists()


def test_each_is_answered_for_itself_and_results_of_others_are_not_kept(backend, claimed):
    first, second, third = claimed(3)
    backend.nack(second, 0)
    results = {first.id: FULL, second.id: FULL, "00000000-0000-7000-8000-000000000000": FULL}
    answers = backend.ack([third, second, first], results)
    assert answers == [Settled.SETTLED, Settled.LOST, Settled.SETTLED]
    assert [str(row.job_id) for row in JobResult.objects.all()] == [first.id]


@pytest.mark.parametrize("record", [FULL, BARE], ids=["full", "bare"])
def test_a_result_is_kept_whole(record, backend, claimed, manual):
    claimed(1)
    Job.objects.update(attempts=3, lease_expires=1, created_at=for_people(1_600_000_000_000_000))
    row = Job.objects.get()
    backend.reap_expired()
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert backend.ack([lease], {lease.id: record}) == [Settled.SETTLED]
    kept = JobResult.objects.get()
    assert (kept.job_id, kept.backend, kept.queue) == (row.pk, "database", "default")
    assert (kept.handler, kept.name, kept.body) == (row.handler, row.name, row.body)
    assert (kept.trace_id, kept.tenant) == (row.trace_id, row.tenant)
    assert (kept.attempts, kept.enqueued_at) == (3, row.created_at)
    assert (kept.status, kept.value, kept.output, kept.worker) == (
        record.status,
        record.value_json,
        record.output,
        record.worker,
    )
    assert kept.started_at == (record.started_at and for_people(record.started_at))
    assert kept.finished_at == (record.finished_at and for_people(record.finished_at))
    assert kept.expires == manual.now() + int(record.ttl_seconds * SECOND)


def test_a_result_that_is_there_already_stays_and_is_in_nobodys_way(backend, claimed):
    (first,) = claimed(1)
    assert backend.ack([first], {first.id: FULL}) == [Settled.SETTLED]
    (again,) = claimed(1)
    Job.objects.update(id=first.id)
    same = again._replace(id=first.id)
    assert backend.ack([same], {first.id: BARE}) == [Settled.SETTLED]
    assert living() == set()
    assert JobResult.objects.get().status == "succeeded"
