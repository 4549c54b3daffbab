"""Two connections at once: what one has locked, the other passes over, waits for, or may have.

Both are of this thread, so nothing depends on who is faster; who would wait, fails at once.
"""

import threading
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs.backends.base import OnConflict, ResultRecord, Settled
from django_jobs.backends.database import (
    DatabaseBackend,
    cancel,
    keys,
    settle,
)
from django_jobs.backends.database.claim import Claim, promote
from django_jobs.clock import ManualClock
from django_jobs.db.clock import StoreClock
from django_jobs.ids import new_id
from django_jobs.models import Job, JobKey, JobState
from django_jobs.testing.factories import make_outgoing

pytestmark = [
    pytest.mark.only_on("postgres", "mariadb", "mysql"),
    pytest.mark.django_db(transaction=True),
]
IMPATIENT = {
    "postgresql": "SET lock_timeout = '1s'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}


@pytest.fixture
def manual():
    return ManualClock()


@pytest.fixture
def backend(manual):
    backend = DatabaseBackend("database", {"NOTIFY": False})
    backend.clock = StoreClock(manual)
    return backend


@pytest.fixture
def beside():
    """Lets what is done inside be done by another process's connection."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute(IMPATIENT[other.vendor])

    @contextmanager
    def switched():
        mine = connections["default"]
        connections["default"] = other
        try:
            yield
        finally:
            connections["default"] = mine

    yield switched
    other.close()


@pytest.fixture
def is_locked(beside):
    """Whether somebody else has the rows of a queryset."""

    def ask(rows):
        with beside(), transaction.atomic():
            try:
                assert list(rows.all().select_for_update(nowait=True))
            except OperationalError:
                transaction.set_rollback(True)
                return True
        return False

    return ask


def put(backend, count=1, **terms):
    jobs = [make_outgoing(backend="database", **terms) for _ in range(count)]
    return [stored.id for stored in backend.enqueue(jobs)]


def fetch(backend, limit):
    return backend.fetch(["default"], limit, 30.0)


def row(job_id):
    return Job.objects.filter(pk=job_id)


def test_claims_neither_wait_for_each_other_nor_hide_what_is_left(backend, beside):
    ids = put(backend, 3)
    with transaction.atomic():
        assert [lease.id for lease in fetch(backend, 1)] == ids[:1]
        with beside():
            assert [lease.id for lease in fetch(backend, 1)] == ids[1:2]
            assert [lease.id for lease in fetch(backend, 9)] == ids[2:]


def test_a_given_job_is_not_claimed_beside_who_has_it(backend, beside):
    (job_id,) = put(backend)
    claim = {"backend": "database", "limit": 1, "lease_seconds": 30.0}
    with transaction.atomic():
        assert list(row(job_id).select_for_update())
        with beside():
            assert Claim("default", backend.clock, **claim).only(job_id) == []


def test_what_a_claim_has_read_is_its_own_until_it_is_leased(backend, is_locked):
    put(backend)
    seen = []

    class Asking(Claim):
        def _claimed(self, now):
            seen.append(is_locked(Job.objects.filter(state=JobState.READY)))
            return super()._claimed(now)

    claim = Asking("default", backend.clock, backend="database", limit=1, lease_seconds=30.0)
    with transaction.atomic():
        assert claim._locking("default")
    assert seen == [True]


def test_promotions_do_not_wait_for_each_other(backend, manual, beside):
    first, second = put(backend, 2, delay=5.0)
    manual.advance(6)
    with transaction.atomic():
        assert list(row(first).select_for_update())
        with beside():
            assert promote("default", backend.clock, "default", 9) == 1
    assert row(second).get().state == JobState.READY


def test_where_nothing_can_be_skipped_what_was_promoted_and_claimed_meanwhile_stays_so(
    backend, manual, beside, monkeypatch
):
    (job_id,) = put(backend, delay=5.0)
    manual.advance(6)
    leases = []

    def meanwhile(execute, sql, *rest):
        if sql.startswith("UPDATE") and not leases:
            leases.append(None)
            with beside():
                leases[:] = fetch(backend, 1)
        return execute(sql, *rest)

    monkeypatch.setattr(connection.features, "has_select_for_update_skip_locked", False)
    with connection.execute_wrapper(meanwhile):
        assert promote("default", backend.clock, "default", 9) == 0
    assert row(job_id).get().state == JobState.RUNNING
    assert backend.ack(leases) == [Settled.SETTLED]


def test_reaping_leaves_alone_what_is_being_renewed_or_settled(backend, manual, beside):
    put(backend, 2)
    first, second = fetch(backend, 2)
    manual.advance(31)
    with transaction.atomic():
        assert backend.renew([first], 30.0) == [Settled.SETTLED]
        with beside():
            assert backend.reap_expired() == 1
    assert row(first.id).get().state == JobState.RUNNING
    assert row(second.id).get().state == JobState.READY


def test_a_lease_that_is_being_settled_is_not_renewed_and_holds_up_no_other(backend, beside):
    put(backend, 2)
    first, second = fetch(backend, 2)
    with transaction.atomic():
        assert list(row(first.id).select_for_update())
        with beside():
            told = backend.renew([first, second], 30.0)
    assert told == [Settled.UNKNOWN, Settled.SETTLED]


SETTLES = {
    "ack": lambda store, leases: store.ack(leases),
    "ack with results": lambda store, leases: store.ack(
        leases, {lease.id: ResultRecord("succeeded") for lease in leases}
    ),
    "ack with keys": lambda store, leases: store.ack(leases),
    "give back": lambda store, leases: store.nack_all(leases),
}


@pytest.mark.parametrize("how", SETTLES)
def test_one_settle_that_cannot_be_done_now_holds_up_no_other(backend, beside, how):
    terms = {"concurrency_key": "disk", "concurrency": 9} if how == "ack with keys" else {}
    put(backend, 3, **terms)
    leases = fetch(backend, 3)
    with transaction.atomic():
        assert list(row(leases[1].id).select_for_update())
        with beside():
            answers = SETTLES[how](backend, leases)
            assert backend.is_connected()
    assert answers == [Settled.SETTLED, Settled.UNKNOWN, Settled.SETTLED]
    assert SETTLES[how](backend, leases) == [Settled.LOST, Settled.SETTLED, Settled.LOST]


def test_inside_a_transaction_that_ends_as_a_whole_a_settle_waits_for_its_row(backend, beside):
    put(backend)
    leases = fetch(backend, 1)
    with transaction.atomic():
        assert list(row(leases[0].id).select_for_update())
        with beside(), pytest.raises(OperationalError), transaction.atomic():
            backend.ack(leases)


def test_a_lease_that_is_being_renewed_is_nobody_elses(backend, is_locked):
    put(backend)
    (lease,) = fetch(backend, 1)
    asked = []

    class Asking(StoreClock):
        def now(self):
            asked.append(is_locked(row(lease.id)))
            return super().now()

    backend.clock = Asking(backend.clock._clock)
    assert backend.renew([lease], 30.0) == [Settled.SETTLED]
    assert asked == [True]


def test_leases_that_are_to_be_settled_are_locked_first_and_no_others(backend, is_locked):
    put(backend, 2)
    first, second = fetch(backend, 2)
    with transaction.atomic():
        assert settle.lock_held("default", [first], waits=False) == {first.id}
        assert is_locked(row(first.id))
        assert not is_locked(row(second.id))


def test_rows_are_locked_in_the_order_of_their_keys_however_they_lie(backend):
    ids = [new_id() for _ in range(3)]
    for job_id in reversed(ids):
        put(backend, identifier=job_id)
    leases = fetch(backend, 3)
    found = settle.candidates("default", leases[::-1]).values_list("pk", flat=True)
    assert [str(pk) for pk in found] == ids


def test_what_is_cancelled_is_claimed_by_nobody_meanwhile(backend, is_locked):
    (job_id,) = put(backend)
    asked = []

    class Asking(StoreClock):
        def read(self, connection):
            asked.append(is_locked(row(job_id)))
            return super().read(connection)

    assert cancel.remove_waiting("default", Asking(backend.clock._clock), job_id, "no")
    assert asked == [True]
    assert not row(job_id).exists()


def test_who_judges_keys_has_them_alone(backend, is_locked):
    for key in ("second", "other", "first"):
        JobKey.objects.create(key=key, keep_until=0)
    with transaction.atomic():
        found = keys._locked("default", backend.clock, ["second", "first"])
        assert list(found) == ["first", "second"]
        assert is_locked(JobKey.objects.filter(key="first"))
        assert is_locked(JobKey.objects.filter(key="second"))
        assert not is_locked(JobKey.objects.filter(key="other"))


def test_a_key_that_somebody_else_made_meanwhile_is_locked_as_well(beside, is_locked):
    class Meanwhile(StoreClock):
        """The time, which is asked for between the look for a key and its making."""

        def read(self, connection):
            with beside():
                JobKey.objects.get_or_create(key="mine", keep_until=7)
            return super().read(connection)

    with transaction.atomic():
        keys.Keys("default", Meanwhile(ManualClock()), ["mine"])
        assert JobKey.objects.get().keep_until == 7
        assert is_locked(JobKey.objects.filter(key="mine"))


@pytest.mark.parametrize("terms", [{"concurrency_key": "disk"}, {"idempotency_key": "once"}])
def test_of_two_who_make_a_key_at_a_time_the_later_one_judges_again(backend, beside, terms):
    """Each has seen the other's lease and thinks that there is no place; one of them gets it."""
    put(backend, 2, **terms)
    mine, theirs = (fetch_unjudged(backend) for _ in range(2))
    write = keys._write
    met = []

    def meet(*args, **options):
        if not met:
            met.append(args)
            with beside():
                assert keys.admit("default", backend.clock, theirs, 30.0) == []
        return write(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_write", meet)
        (lease,) = keys.admit("default", backend.clock, mine, 30.0)
    assert lease.id == mine[0].id
    assert fetch(backend, 2) == []
    backend.ack([lease])
    assert [lease.id for lease in fetch(backend, 2)] == [theirs[0].id]


def test_who_comes_while_the_work_of_a_key_is_noted_as_done_is_woken_and_skipped(backend, beside):
    """A key that nobody else wanted has no row until then; who wants it now makes it first."""
    put(backend, 2, idempotency_key="once")
    mine = fetch(backend, 1)
    theirs = fetch_unjudged(backend)
    assert not JobKey.objects.exists()
    write = keys._write
    met = []

    def meet(*args, **options):
        if not met:
            met.append(args)
            with beside():
                assert keys.admit("default", backend.clock, theirs, 30.0) == []
        return write(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_write", meet)
        assert backend.ack(mine) == [Settled.SETTLED]
    (skipped,) = fetch(backend, 2)
    assert (skipped.id, skipped.done_by) == (theirs[0].id, mine[0].id)


def test_work_that_is_done_between_the_look_for_its_key_and_the_count_is_not_done_again(
    backend, beside
):
    put(backend, 2, idempotency_key="once")
    mine = fetch(backend, 1)
    theirs = fetch_unjudged(backend)
    taken = keys._taken
    met = []

    def meet(*args, **options):
        if not met:
            met.append(args)
            with beside():
                assert backend.ack(mine) == [Settled.SETTLED]
        return taken(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_taken", meet)
        (skipped,) = keys.admit("default", backend.clock, theirs, 30.0)
    assert (skipped.id, skipped.done_by) == (theirs[0].id, mine[0].id)


def test_keys_that_nobody_else_wants_cost_a_claim_one_look_and_no_row(backend):
    put(backend, idempotency_key="once")
    put(backend)
    with CaptureQueriesContext(connection) as queries:
        first, second = fetch(backend, 2)
    assert sum("django_jobs_jobkey" in query["sql"] for query in queries) == 1
    assert first.fence == backend.clock.read(connection)
    assert second.fence is None
    assert not JobKey.objects.exists()
    put(backend, idempotency_key="once")
    assert fetch(backend, 2) == []


def fetch_unjudged(backend):
    claim = {"backend": "database", "limit": 1, "lease_seconds": 30.0}
    return Claim("default", backend.clock, **claim).from_queue("default")


def test_who_replaces_a_job_in_a_transaction_holds_up_nobody_until_it_is_committed(
    backend, is_locked
):
    put(backend, concurrency_key="disk")
    put(backend, concurrency_key="disk", unique_key="digest")
    (third,) = put(backend, concurrency_key="disk")
    (holder,) = fetch(backend, 1)
    assert fetch(backend, 2) == []
    backend.ack([holder])
    with transaction.atomic():
        new = make_outgoing("another", backend="database", unique_key="digest")
        backend.enqueue([new], on_conflict=OnConflict.REPLACE)
        assert not is_locked(JobKey.objects.all())
        assert row(third).get().state == JobState.BLOCKED
    assert [lease.id for lease in fetch(backend, 2)] == [third]


def test_a_key_that_is_locked_holds_up_no_reap_of_jobs_without_one(backend, beside, manual):
    (with_key,) = put(backend, concurrency_key="disk")
    (without,) = put(backend)
    assert len(fetch(backend, 2)) == 2
    manual.advance(31)
    with transaction.atomic():
        assert list(JobKey.objects.select_for_update())
        with beside(), pytest.raises(OperationalError):
            backend.reap_expired()
    assert row(without).get().state == JobState.READY
    assert row(with_key).get().state == JobState.RUNNING
    assert backend.reap_expired() == 1


def test_a_settle_waits_for_no_transaction_in_which_a_waiting_job_is_replaced(backend, beside):
    (first,) = put(backend, concurrency_key="disk")
    (second,) = put(backend, concurrency_key="disk", unique_key="digest")
    (third,) = put(backend, concurrency_key="disk")
    (holder,) = fetch(backend, 1)
    assert holder.id == first
    assert fetch(backend, 2) == []
    with transaction.atomic():
        new = make_outgoing("another", backend="database", unique_key="digest")
        backend.enqueue([new], on_conflict=OnConflict.REPLACE)
        with beside():
            assert backend.ack([holder]) == [Settled.SETTLED]
            (holder,) = fetch(backend, 2)
        assert holder.id == third
        transaction.set_rollback(True)
    assert backend.ack([holder]) == [Settled.SETTLED]
    assert [lease.id for lease in fetch(backend, 2)] == [second]


def test_a_settle_locks_keys_of_both_kinds_in_their_order(backend):
    """As claims do: with one kind before the other they would wait for each other in a ring."""
    put(backend, 2, concurrency_key="disk")
    put(backend, 2, idempotency_key="once")
    leases = fetch(backend, 4)
    assert fetch(backend, 4) == []
    assert JobKey.objects.filter(places=1).count() == 2
    with CaptureQueriesContext(connection) as queries:
        backend.ack(leases)
    about = [query["sql"] for query in queries if "django_jobs_jobkey" in query["sql"]]
    assert "FOR UPDATE" in about[0]
    assert all(key in about[0] for key in JobKey.objects.values_list("key", flat=True))


def test_work_is_noted_as_done_though_its_key_is_swept_meanwhile(backend, beside):
    """The key was in the way of a new row, and gone before it could be locked."""
    put(backend, idempotency_key="once")
    mine = fetch(backend, 1)
    (key,) = keys.keys_of(mine)
    JobKey.objects.create(key=key, keep_until=0)
    locked = keys._locked
    met = []

    def meet(*args):
        if not met:
            met.append(args)
            with beside():
                keys.sweep("default", backend.clock, 10)
        return locked(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_locked", meet)
        assert backend.ack(mine) == [Settled.SETTLED]
    put(backend, idempotency_key="once")
    assert [lease.done_by for lease in fetch(backend, 2)] == [mine[0].id]


def test_who_parks_others_locks_no_job_that_has_not_their_key(backend):
    """MariaDB locks what it reads of an index, and then claims of other jobs would deadlock."""
    put(backend, 3, concurrency_key="disk")
    put(backend, 3)
    assert len(fetch(backend, 1)) == 1
    with CaptureQueriesContext(connection) as queries:
        backend._admit(fetch_unjudged(backend), 30.0)
    assert Job.objects.filter(state=JobState.BLOCKED).count() == 2
    locking = [query["sql"].split("WHERE", 1)[1] for query in queries if "SKIP" in query["sql"]]
    parking = [told for told in locking if "rank" not in told]
    assert parking
    assert not any("_key" in told for told in parking)


def test_a_waiter_whom_nobody_else_would_wake_is_waited_for_while_it_is_locked(backend):
    """As a claim locks it on MariaDB, for a moment and only to pass it over."""
    _, second = put(backend, 2, concurrency_key="disk")
    (holder,) = fetch(backend, 1)
    assert fetch(backend, 1) == []
    answers = []

    def settle():
        answers.extend(backend.ack([holder]))
        connection.close()

    settling = threading.Thread(target=settle)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=second)
        settling.start()
        settling.join(0.5)
        assert settling.is_alive()
    settling.join()
    assert answers == [Settled.SETTLED]
    assert [lease.id for lease in fetch(backend, 1)] == [second]
