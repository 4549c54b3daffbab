"""Claims beside somebody who is faster, each time, and what they promote."""

import pytest
from django.db import connection, connections

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database.claim import Claim, promote
from django_jobs.clock import ManualClock
from django_jobs.db.clock import StoreClock
from django_jobs.models import Job, JobState
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.django_db


@pytest.fixture
def backend():
    backend = DatabaseBackend("database", {})
    backend.clock = StoreClock(ManualClock())
    return backend


def put(backend, count, queue="default", **terms):
    jobs = [make_outgoing(queue, backend="database", **terms) for _ in range(count)]
    return [stored.id for stored in backend.enqueue(jobs)]


class Late(Claim):
    """Has seen jobs that somebody else takes before it can, so many times."""

    rival = None
    times = 0

    def keeps_what_it_read(self, connection):
        return False

    def _take(self, seen, now):
        if self.times:
            self.times -= 1
            assert self.rival.from_queue("default")
        return super()._take(seen, now)


def claim(kind, backend, limit=1):
    return kind("default", backend.clock, backend="database", limit=limit, lease_seconds=30.0)


@pytest.mark.parametrize("times", [0, 1, 3])
def test_who_is_late_takes_what_is_left(backend, times):
    ids = put(backend, 4)
    late = claim(Late, backend)
    late.rival, late.times = claim(Claim, backend), times
    assert [lease.id for lease in late.from_queue("default")] == [ids[times]]


@pytest.mark.parametrize("count", [3, 30])
def test_who_is_always_late_gives_up_after_a_while(backend, count):
    put(backend, count)
    late = claim(Late, backend)
    late.rival, late.times = claim(Claim, backend), 99
    assert late.from_queue("default") == []
    assert Job.objects.filter(state=JobState.RUNNING).count() == min(count, 10)


def test_promotion_counts_what_is_due_over_all_queues_and_stops_at_the_limit(backend):
    for queue in ("first", "second", "third"):
        put(backend, 2, queue, delay=5.0)
    assert promote("default", backend.clock, None, 3) == 0
    backend.clock._clock.advance(6)
    assert promote("default", backend.clock, None, 4) == 4
    assert Job.objects.filter(state=JobState.READY).count() == 4
    assert promote("default", backend.clock, None, 4) == 2


def test_one_given_job_is_leased_whether_it_is_due_or_not_and_once(backend):
    put(backend, 1)
    (later,) = put(backend, 1, delay=60.0)
    (lease,) = claim(Claim, backend).only(later)
    assert (lease.id, lease.message.header.deliveries) == (later, 1)
    assert claim(Claim, backend).only(later) == []
    assert claim(Claim, backend).only("00000000-0000-7000-8000-000000000000") == []


class Changing(StoreClock):
    """While a statement asks it for the time, somebody else changes each job, so many times.

    PostgreSQL looks at rows as they were when the statement began, and finds them changed.
    """

    def __init__(self, times):
        super().__init__()
        self.times = times

    def sql(self, vendor):
        now = super().sql(vendor)
        if not self.times:
            return now
        self.times -= 1
        return f"(SELECT {now} FROM tests_change())"  # noqa: S608 - a function of ours


CHANGE = """
    CREATE EXTENSION IF NOT EXISTS dblink;
    CREATE FUNCTION tests_change() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        PERFORM dblink_exec('{place}', 'UPDATE django_jobs_job SET cancel_requested = false '
            'WHERE id IN (SELECT id FROM django_jobs_job FOR UPDATE SKIP LOCKED)');
    END $$
"""


@pytest.mark.timeout(30)
@pytest.mark.only_on("postgres")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("times", "found"), [(0, 1), (1, 1), (9, 1), (10, 0)])
def test_a_job_that_changed_during_the_statement_is_asked_for_a_few_times(times, found):
    backend = DatabaseBackend("database", {})  # by the server's clock
    put(backend, 1, delay=60.0)
    put(backend, 1)
    settings = connections["default"].settings_dict
    words = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    known = {word: settings[key] for word, key in words.items() if settings[key]}
    place = " ".join(f"{k}={v}" for k, v in {**known, "dbname": settings["NAME"]}.items())
    with connection.cursor() as cursor:
        cursor.execute(CHANGE.format(place=place))
    try:
        late = Claim("default", Changing(times), backend="database", limit=1, lease_seconds=30.0)
        assert len(late.from_queue("default")) == found
        assert late.clock.times == 0
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION tests_change()")
