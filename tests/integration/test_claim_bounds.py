"""What a claim leaves alone, and what a claim that finds something needs for it."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs.backends.database.claim import (
    PROMOTED_PER_CLAIM,
    Claim,
    Cursors,
    promote,
)
from django_jobs.ids import new_id
from django_jobs.models import Job, JobState, QueueControl
from django_jobs.testing.factories import make_outgoing
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db


class Optimistic(Claim):
    def keeps_what_it_read(self, connection):
        return False


@pytest.fixture(params=[Claim, Optimistic])
def claimed(request, backend):
    """Claims so many, and tells the ids."""

    def ids(limit=9):
        claim = request.param(
            "default", backend.clock, backend="database", limit=limit, lease_seconds=30.0
        )
        return [lease.id for lease in claim.from_queue("default")]

    return ids


def test_jobs_of_another_backend_are_not_for_this_one(backend, claimed):
    put(backend, backend="another")
    (mine,) = put(backend)
    assert claimed() == [mine]


def test_a_given_job_of_another_backend_is_not_for_this_one(backend):
    (job_id,) = put(backend, backend="another")
    claim = Claim("default", backend.clock, backend="database", limit=1, lease_seconds=30.0)
    assert claim.only(job_id) == []


@pytest.mark.parametrize(
    ("paused", "given"),
    [
        ({}, False),
        ({"paused": False}, True),
        ({"queue": "another"}, True),
        ({"backend": "another"}, True),
    ],
    ids=["paused", "resumed", "another queue", "another backend"],
)
def test_a_queue_that_is_paused_gives_nothing_and_any_other_does(paused, given, backend, claimed):
    QueueControl.objects.create(
        **{"backend": "database", "queue": "default", "paused": True, **paused}
    )
    ids = put(backend)
    assert claimed() == (ids if given else [])


@pytest.fixture(params=[True, False], ids=["by an index", "by the table"])
def read(request):
    if not request.param:
        request.getfixturevalue("by_the_table")


@pytest.mark.usefixtures("by_the_table")
def test_of_one_moment_the_first_id_is_claimed_first_wherever_it_lies(backend, claimed):
    ids = [new_id() for _ in range(3)]
    for job_id in reversed(ids):
        put(backend, identifier=job_id)
    assert claimed(1) == ids[:1]
    assert claimed() == ids[1:]


@pytest.mark.usefixtures("read")
def test_what_is_due_is_seen_behind_what_is_not(backend, manual, claimed):
    put(backend, delay=60.0)
    (due,) = put(backend, delay=5.0)
    assert claimed() == []
    manual.advance(5)
    assert claimed() == [due]


def test_of_more_that_are_due_than_are_promoted_at_once_a_claim_gives_some(
    backend, manual, claimed
):
    ids = put(backend, PROMOTED_PER_CLAIM + 5, delay=5.0)
    manual.advance(6)
    some, rest = claimed(1000), claimed(1000)
    assert len(some) == PROMOTED_PER_CLAIM
    # All are due at the same moment: which of them come first is nobody's promise.
    assert (sorted(some), sorted(rest)) == (some, rest)
    assert sorted(some + rest) == ids


@pytest.mark.usefixtures("by_the_table")
def test_promotion_takes_the_longest_due_first_of_its_queue_alone(backend, manual):
    (later,) = put(backend, delay=5.0)
    (first,) = put(backend, delay=4.0)
    (other,) = put(backend, queue="another", delay=1.0)
    manual.advance(5)
    assert promote("default", backend.clock, "default", 1) == 1
    states = dict(Job.objects.values_list("pk", "state"))
    told = {str(pk): state for pk, state in states.items()}
    scheduled, ready = JobState.SCHEDULED, JobState.READY
    assert told == {later: scheduled, first: ready, other: scheduled}


def test_promotion_is_for_what_is_scheduled_alone(backend, manual):
    (running,) = put(backend)
    assert backend.fetch(["default"], 1, 30.0)
    (ready,) = put(backend)
    (due,) = put(backend, delay=5.0)
    manual.advance(6)
    assert promote("default", backend.clock, "default", 1) == 1
    states = {str(pk): state for pk, state in Job.objects.values_list("pk", "state")}
    assert states == {running: JobState.RUNNING, ready: JobState.READY, due: JobState.READY}


def test_a_lease_is_written_down_as_it_is_told(backend, manual, claimed):
    (job_id,) = put(backend)
    assert claimed() == [job_id]
    row = Job.objects.get()
    assert (row.state, row.deliveries) == (JobState.RUNNING, 1)
    assert row.leased_at == manual.now()
    assert row.lease_expires == manual.now() + 30_000_000
    assert row.worker
    assert row.lease_token


@pytest.mark.parametrize("kind", [Claim, Optimistic])
@pytest.mark.parametrize("only", [False, True], ids=["of a queue", "a given one"])
def test_a_lease_tells_its_end(kind, only, backend, manual):
    (job_id,) = put(backend)
    claim = kind("default", backend.clock, backend="database", limit=1, lease_seconds=30.0)
    (lease,) = claim.only(job_id) if only else claim.from_queue("default")
    assert (lease.expires_at, lease.token) == (manual.now() + 30_000_000, claim.token)


@pytest.mark.only_on("postgres")
def test_a_claim_is_one_statement_whatever_is_due_elsewhere(backend, manual):
    put(backend, queue="another", delay=5.0)
    manual.advance(6)
    claim = Claim("default", backend.clock, backend="database", limit=9, lease_seconds=30.0)

    def claimed_at_once():
        with CaptureQueriesContext(connection) as captured:
            leases = claim.from_queue("default")
        assert len(captured) == 1
        return [lease.id for lease in leases]

    assert claimed_at_once() == []
    ids = put(backend)
    assert claimed_at_once() == ids
    put(backend, delay=60.0)
    ids = put(backend)
    assert claimed_at_once() == ids
    assert claimed_at_once() == []


@pytest.mark.only_on("postgres")
def test_how_long_a_claim_took_is_told_to_the_cursors(backend):
    told = []

    class Noting(Cursors):
        def looked(self, queue, passed, seconds, last):
            told.append((queue, seconds, last and last.id))

    (job_id,) = put(backend)
    keys = {"backend": "database", "limit": 1, "lease_seconds": 30.0}
    assert Claim("default", backend.clock, cursors=Noting(), **keys).from_queue("default")
    ((queue, seconds, last),) = told
    assert (queue, last) == ("default", job_id)
    assert 0 < seconds < 60


class Meanwhile(Optimistic):
    """Somebody else changes the first of the jobs that were seen, before any is taken."""

    change = None

    def _take(self, seen, now):
        if self.change is not None:
            Job.objects.filter(pk=seen[0][0]).update(**self.change)
            self.change = None
        return super()._take(seen, now)


@pytest.mark.parametrize(
    "change",
    [
        {"state": JobState.RUNNING, "lease_token": "of another", "lease_expires": 9**15},
        {"suspect": True},
        {"state": JobState.BLOCKED},
    ],
    ids=["leased", "suspect", "blocked"],
)
def test_what_changed_since_it_was_seen_is_not_taken_along(change, backend):
    first, *others = put(backend, 3)
    keys = {"backend": "database", "limit": 9, "lease_seconds": 30.0}
    claim = Meanwhile("default", backend.clock, **keys)
    claim.change = change
    assert [lease.id for lease in claim.from_queue("default")] == others
    row = Job.objects.get(pk=first)
    assert {name: getattr(row, name) for name in change} == change
    assert row.deliveries == 0


def test_tidying_asks_no_more_where_there_are_many_queues(backend):
    def asked():
        with CaptureQueriesContext(connection) as told:
            backend.clean_up()
        return len(told)

    put(backend)
    few = asked()
    backend.enqueue([make_outgoing(f"queue-{n}", backend="database") for n in range(20)])
    assert asked() <= few
