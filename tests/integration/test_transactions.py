"""An enqueue belongs to the caller's transaction; nothing else of the session is ours."""

from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobs import enqueue_many, job
from django_jobs.backends.base import Failure, ResultRecord
from django_jobs.backends.database import DatabaseBackend
from django_jobs.clock import SECOND
from django_jobs.db.transactions import in_transition
from django_jobs.exceptions import DuplicateJob
from django_jobs.models import FailedJob, Job, JobResult
from django_jobs.testing.factories import make_outgoing
from testproject.shop.models import Order

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
MANY = 2500


class Undone(Exception):
    """What the tests roll back with."""


@job(key="tests.transactions.noop")
def noop(number=0):
    return number


@pytest.fixture
def backend():
    return DatabaseBackend("database", {})


@pytest.fixture
def elsewhere():
    return DatabaseBackend("elsewhere", {"DATABASE": "other"})


def outgoing(**terms):
    return make_outgoing(**{"backend": "database", **terms})


@contextmanager
def undone(**options):
    """A transaction that ends in an exception."""
    with pytest.raises(Undone), transaction.atomic(**options):  # noqa: PT012 - it is the block's
        yield
        raise Undone


# -- joining ------------------------------------------------------------------------------


def test_a_job_is_there_once_the_callers_transaction_committed():
    with transaction.atomic():
        order = Order.objects.create(email="a@example.com", total=1)
        handle = noop.enqueue(order.pk)
    assert str(Job.objects.get().pk) == handle.id


@pytest.mark.parametrize("count", [1, 3, 1001])
def test_a_rolled_back_job_never_existed(count):
    with undone():
        Order.objects.create(email="a@example.com", total=1)
        enqueue_many(noop.prepare(number) for number in range(count))
        assert Job.objects.count() == count
    assert not Job.objects.exists()
    assert not Order.objects.exists()


@pytest.mark.parametrize("count", [1, 3])
def test_a_rolled_back_savepoint_takes_its_jobs_along_and_no_others(count):
    with transaction.atomic():
        before = noop.enqueue()
        with undone():
            enqueue_many(noop.prepare() for _ in range(count))
        after = noop.enqueue()
    assert {str(pk) for pk in Job.objects.values_list("pk", flat=True)} == {before.id, after.id}


def test_a_committed_savepoint_inside_a_rolled_back_transaction_is_gone_too():
    with undone():
        with transaction.atomic():
            noop.enqueue()
        with transaction.atomic(savepoint=False):
            enqueue_many([noop.prepare(), noop.prepare()])
    assert not Job.objects.exists()


def test_a_prepared_job_can_be_enqueued_again_after_a_rollback():
    prepared = noop.prepare()
    with undone():
        assert prepared.enqueue().created
    assert prepared.enqueue().created
    assert not prepared.enqueue().created
    assert Job.objects.count() == 1


def test_a_job_on_another_alias_does_not_join(elsewhere):
    with undone():
        elsewhere.enqueue([outgoing(backend="elsewhere")])
    assert Job.objects.using("other").count() == 1
    with undone(using="other"):
        elsewhere.enqueue([outgoing(backend="elsewhere"), outgoing(backend="elsewhere")])
    assert Job.objects.using("other").count() == 1
    assert not Job.objects.exists()


def test_a_unique_key_that_is_held_leaves_the_callers_transaction_usable(backend):
    backend.enqueue([outgoing(unique_key="k")])
    with transaction.atomic():
        order = Order.objects.create(email="a@example.com", total=1)
        with pytest.raises(DuplicateJob):
            noop.using(unique_key="k", on_conflict="raise").enqueue(order.pk)
        noop.enqueue(order.pk)
    assert Order.objects.count() == 1
    assert Job.objects.count() == 2


def test_a_known_id_leaves_the_callers_transaction_usable():
    prepared = [noop.prepare() for _ in range(3)]
    first = prepared[0].enqueue()
    with transaction.atomic():
        handles = enqueue_many(prepared)
        assert not prepared[1].enqueue().created
    assert [handle.created for handle in handles] == [False, True, True]
    assert handles[0].id == first.id
    assert Job.objects.count() == 3


# -- all or none --------------------------------------------------------------------------


@pytest.mark.parametrize("around", [nullcontext, transaction.atomic])
def test_of_many_jobs_all_are_stored_or_none(around):
    """The last of 2,500 finds its unique key held by another job."""
    noop.using(unique_key="taken").enqueue()
    jobs = [noop.prepare(number) for number in range(MANY - 1)]
    jobs.append(noop.using(unique_key="taken", on_conflict="return").prepare())
    assert len(enqueue_many(jobs)) == MANY
    assert Job.objects.count() == MANY
    Job.objects.filter(unique_key=None).delete()

    raising = noop.using(unique_key="taken", on_conflict="raise")
    jobs = [raising.using(unique_key=f"u{number}").prepare() for number in range(MANY - 1)]
    jobs.append(raising.prepare())
    with pytest.raises(DuplicateJob), around():
        enqueue_many(jobs)
    assert Job.objects.count() == 1


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_of_many_jobs_none_is_stored_when_one_statement_fails(backend, nth):
    """Whatever goes wrong at the nth of three statements."""
    seen = []

    def fail(execute, sql, params, many, context):
        seen.append(sql.startswith("INSERT"))
        if sum(seen) == nth:
            raise Undone
        return execute(sql, params, many, context)

    message = outgoing()
    batch = [message, *(message._replace(id=outgoing().id) for _ in range(MANY - 1))]
    with connection.execute_wrapper(fail), pytest.raises(Undone):
        backend.enqueue(batch)
    assert not Job.objects.exists()
    assert len(backend.enqueue(batch)) == MANY
    assert Job.objects.count() == MANY


# -- statements ---------------------------------------------------------------------------


def test_one_enqueue_is_one_statement():
    noop.enqueue()
    with CaptureQueriesContext(connection) as queries:
        noop.enqueue()
    assert [query["sql"][:6] for query in queries] == ["INSERT"]


def test_one_enqueue_inside_a_transaction_is_one_statement():
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        noop.enqueue()
    assert [query["sql"][:6] for query in queries] == ["INSERT"]


@pytest.mark.parametrize(
    ("count", "statements"), [(2, 1), (1000, 1), (1001, 2), (2000, 2), (MANY, 3)]
)
def test_many_jobs_take_one_statement_per_thousand(count, statements):
    jobs = [noop.prepare(number) for number in range(count)]
    with CaptureQueriesContext(connection) as queries:
        enqueue_many(jobs)
    asked = [query["sql"] for query in queries]
    hints = [sql for sql in asked if "pg_notify" in sql]
    verbs = [sql.split()[0] for sql in asked if sql not in hints]
    assert verbs.count("INSERT") == statements
    assert len(hints) <= 1
    several = {"SAVEPOINT", "RELEASE"} if statements > 1 else set()
    assert set(verbs) <= {"INSERT", "BEGIN", "COMMIT"} | several
    assert verbs.count("SAVEPOINT") <= statements
    assert Job.objects.count() == count


def test_large_bodies_are_spread_over_statements_that_every_server_takes(backend):
    large = {"args": ['"' * 120_000], "kwargs": {}}
    first = make_outgoing("default", large, backend="database")
    batch = [first, *(first._replace(id=outgoing().id) for _ in range(79))]
    assert len(backend.enqueue(batch)) == 80
    assert Job.objects.filter(body=first.body).count() == 80


# -- time ---------------------------------------------------------------------------------

ZONES = ["UTC", "Europe/Vienna", "Australia/Lord_Howe", "America/New_York"]
OFFSETS = ["+00:00", "+02:00", "-09:30"]


def raw(column, job_id):
    """A number as the database has it, past every converter of Django's."""
    with connection.cursor() as cursor:
        compact = job_id if connection.features.has_native_uuid_field else job_id.replace("-", "")
        cursor.execute(f"SELECT {column} FROM django_jobs_job WHERE id = %s", [compact])  # noqa: S608 - our own names
        return cursor.fetchone()[0]


def shift_session(zone):
    """Another time zone for the session, where the database has such a thing."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"SET TIME ZONE '{zone}'")
        elif connection.vendor == "mysql":
            cursor.execute(f"SET time_zone = '{OFFSETS[ZONES.index(zone) % len(OFFSETS)]}'")


@pytest.fixture(params=ZONES)
def zone(request, settings):
    settings.TIME_ZONE = request.param
    shift_session(request.param)
    yield request.param
    connection.close()


@pytest.mark.parametrize("use_tz", [True, False])
def test_no_time_zone_moves_a_due_date_or_the_end_of_a_lease(backend, settings, zone, use_tz):
    settings.USE_TZ = use_tz
    shift_session(zone)
    before = int(datetime.now(UTC).timestamp() * SECOND)
    at = before + 3600 * SECOND
    now_id, later_id, at_id = (
        stored.id
        for stored in backend.enqueue([outgoing(), outgoing(delay=90.0), outgoing(schedule=at)])
    )
    (lease,) = backend.fetch(["default"], 1, 30.0)
    after = int(datetime.now(UTC).timestamp() * SECOND)
    slack = after - before + 2 * SECOND  # the clocks of two processes, and no hour of either
    assert abs(raw("due", now_id) - before) < slack
    assert abs(raw("due", later_id) - before - 90 * SECOND) < slack
    assert raw("due", at_id) == at
    assert abs(raw("lease_expires", now_id) - before - 30 * SECOND) < slack
    assert lease.expires_at == raw("lease_expires", now_id)
    assert backend.reap_expired() == 0

    connection.close()  # Django reads the dates of a session whose zone it set itself
    created = Job.objects.get(pk=now_id).created_at
    assert timezone.is_aware(created) is use_tz
    assert abs(created - timezone.now()).total_seconds() < slack / SECOND


def test_people_read_the_same_moment_as_the_queue(backend):
    (stored,) = backend.enqueue([outgoing()])
    created = Job.objects.get(pk=stored.id).created_at.timestamp() * SECOND
    assert abs(created - raw("due", stored.id)) < SECOND


# -- aliases and sessions -----------------------------------------------------------------


class NoRoute:
    """A router that lets no query of ours ask it for the way."""

    def db_for_read(self, model, **hints):
        raise AssertionError(f"{model.__name__} was read without an alias")

    def db_for_write(self, model, **hints):
        raise AssertionError(f"{model.__name__} was written without an alias")

    def allow_relation(self, *args, **hints):
        raise AssertionError("a relation was asked about")


def every_verb(backend):
    """One of everything; the alias it runs on has nothing left but results and dead letters."""
    name = backend.alias
    backend.enqueue([outgoing(backend=name) for _ in range(4)])
    known = outgoing(backend=name, unique_key="k")
    backend.enqueue([known])
    backend.enqueue([known, outgoing(backend=name, unique_key="k")])
    delayed = backend.enqueue([outgoing(backend=name, delay=60.0)])[0].id
    leases = backend.fetch(["default"], 3, 30.0)
    backend.renew(leases, 60.0)
    backend.ack(leases[:1], {leases[0].id: ResultRecord(status="succeeded")})
    backend.nack(leases[1], 0.0)
    backend.abandon(leases[2], Failure(reason="exhausted"))
    backend.fetch(["default"], 1, 0.0)
    backend.reap_expired()
    backend.stats("default")
    backend.peek("default")
    backend.find(delayed)
    backend.cancel(delayed)
    backend.wait(["default"], 0.0)
    backend.queues()
    backend.clean_up()
    while rest := backend.fetch(["default"], 10, 30.0):
        backend.ack(rest)


def test_every_query_names_its_alias(elsewhere, settings):
    settings.DATABASE_ROUTERS = [NoRoute()]
    with CaptureQueriesContext(connections["default"]) as queries:
        every_verb(elsewhere)
    assert not queries.captured_queries
    settings.DATABASE_ROUTERS = []
    assert not Job.objects.using("other").exists()
    assert FailedJob.objects.using("other").count() == 1
    assert JobResult.objects.using("other").count() == 2
    assert not FailedJob.objects.exists()


SESSION = {
    "postgresql": "SELECT current_setting('transaction_isolation'), current_setting('timezone'), "
    "current_setting('lock_timeout'), current_setting('statement_timeout'), "
    "(SELECT count(*) FROM pg_prepared_statements), "
    "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')",
    "mariadb": "SELECT @@tx_isolation, @@time_zone, @@autocommit, @@sql_mode, "
    "@@innodb_lock_wait_timeout, @@in_transaction",
    "mysql": "SELECT @@transaction_isolation, @@time_zone, @@autocommit, @@sql_mode, "
    "@@innodb_lock_wait_timeout, (SELECT count(*) FROM information_schema.innodb_trx "
    "WHERE trx_mysql_thread_id = connection_id())",
    "sqlite": "SELECT foreign_keys, journal_mode, timeout, synchronous FROM pragma_foreign_keys, "
    "pragma_journal_mode, pragma_busy_timeout, pragma_synchronous",
}


def session():
    with connection.cursor() as cursor:
        cursor.execute(SESSION[connection.display_name.lower()])
        of_server = cursor.fetchone()
    ours = [getattr(connection, name, None) for name in ("transaction_mode", "isolation_level")]
    return of_server, ours, connection.get_autocommit(), connection.in_atomic_block


@pytest.fixture
def own_mode():
    """On SQLite, a mode that is not the one our transactions have."""
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        connection.transaction_mode = "DEFERRED"
    yield
    connection.close()


def test_nothing_of_ours_remains_in_the_session(own_mode, backend):
    before = session()
    every_verb(backend)
    assert session() == before


@pytest.mark.parametrize("error", [Undone, IntegrityError])
def test_nothing_remains_in_the_session_after_an_exception(own_mode, backend, error):
    def fail(execute, sql, params, many, context):
        if "django_jobs_job" in sql:
            raise error
        return execute(sql, params, many, context)

    before = session()
    with connection.execute_wrapper(fail):
        for call in (lambda: backend.fetch(["default"], 1, 30.0), backend.reap_expired):
            with pytest.raises(error):
                call()
    assert session() == before
    assert backend.fetch(["default"], 1, 30.0) == []


@pytest.mark.only_on("mariadb", "mysql")
def test_a_stricter_isolation_level_is_the_sites_again_after_each_transition(backend):
    connection.close()
    connection.settings_dict["OPTIONS"]["isolation_level"] = "repeatable read"
    try:
        before = session()
        assert before[0][0] == "REPEATABLE-READ"
        every_verb(backend)
        assert session() == before
    finally:
        del connection.settings_dict["OPTIONS"]["isolation_level"]
        connection.close()


@pytest.mark.only_on("postgres")
@pytest.mark.parametrize("work_fails", [False, True])
def test_what_has_to_see_commits_sees_them_whatever_the_sites_level_is(work_fails):
    from django.db.backends.postgresql.psycopg_any import IsolationLevel  # noqa: PLC0415 - only there

    connection.ensure_connection()
    driver = connection.connection
    driver.isolation_level = IsolationLevel.REPEATABLE_READ
    seen = []

    def work(_):
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            seen.extend(cursor.fetchone())
        if work_fails:
            raise Undone

    try:
        with pytest.raises(Undone) if work_fails else nullcontext():
            in_transition("default", work, sees_commits=True)
        assert seen == ["read committed"]
        assert driver.isolation_level == IsolationLevel.REPEATABLE_READ
    finally:
        driver.isolation_level = None
