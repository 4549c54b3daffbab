"""Time limits that the database keeps: a statement gives up by itself, and is heard of."""

import time

import pytest
from django.db import Error, connection, connections, transaction
from django.db.models import F

from django_jobs.backends.base import Settled
from django_jobs.backends.database import DatabaseBackend
from django_jobs.conf import JobsSettings
from django_jobs.db.timeouts import StatementLimits, is_limited, limit_connection
from django_jobs.db.transactions import (
    gave_up,
    in_statement,
    in_transition,
    is_refusal,
    is_schema_missing,
    is_unavailable,
)
from django_jobs.models import Breaker, Job, JobResult, QueueControl
from django_jobs.outcome import Succeeded
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.worker.settle import Run, Settler, SettleTerms
from django_jobs.worker.settle_many import settle_many
from django_jobs.worker.store import Asker, ErrorKind, Outage, kind_of_error
from testproject.shop.models import Order

pytestmark = pytest.mark.django_db(transaction=True)
LIMITS = StatementLimits(lock=1.0, statement=1.5, idle=2.0)
SLEEP = {
    "postgresql": "SELECT pg_sleep(20)",
    "mysql": "SELECT SLEEP(20) FROM django_jobs_queuecontrol",
}
ON_SERVERS = pytest.mark.only_on("postgres", "mariadb", "mysql")


@pytest.fixture
def limited():
    """A connection with limits, in the place of this thread's own."""
    mine, before = connection.copy(), connections["default"]
    mine.seen = []
    limit_connection(mine, LIMITS, lambda: mine.seen.append(time.monotonic()))
    connections["default"] = mine
    yield mine
    connections["default"] = before
    mine.close()


def execute(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else None


@ON_SERVERS
def test_a_statement_that_takes_too_long_fails_and_its_connection_stays(limited):
    QueueControl.objects.create(backend="database", queue="one row")
    began = time.monotonic()
    with pytest.raises(Error) as failed:
        in_statement("default", lambda _: execute(SLEEP[limited.vendor]))
    assert 1.0 < time.monotonic() - began < 15.0
    assert gave_up(failed.value)
    assert kind_of_error(failed.value) is ErrorKind.LATER
    assert limited.connection is not None
    assert QueueControl.objects.count() == 1


@ON_SERVERS
def test_what_a_transaction_did_before_it_gave_up_is_undone(limited):
    QueueControl.objects.create(backend="database", queue="one row")

    def work(_connection):
        QueueControl.objects.update(queue="renamed")
        execute(SLEEP[limited.vendor])

    with pytest.raises(Error):
        in_transition("default", work)
    assert QueueControl.objects.get().queue == "one row"


@ON_SERVERS
@pytest.mark.parametrize("way", [in_statement, in_transition], ids=["alone", "in a transaction"])
def test_a_lock_is_waited_for_only_so_long_and_once(limited, way):
    row = QueueControl.objects.create(backend="database", queue="one row")
    holder = connection.copy()
    with holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT 1 FROM django_jobs_queuecontrol FOR UPDATE")
    waits = []

    def work(_connection):
        waits.append(row.pk)
        return QueueControl.objects.filter(pk=row.pk).update(queue="mine")

    try:
        with pytest.raises(Error) as failed:
            way("default", work)
    finally:
        holder.close()
    assert gave_up(failed.value)
    assert waits == [row.pk], "it was waited for again and again"


def test_statements_return_what_they_returned_before(limited):
    QueueControl.objects.create(backend="database", queue="a")
    rows = QueueControl.objects.bulk_create(
        [QueueControl(backend="database", queue=name) for name in "bcd"]
    )
    assert len(rows) == 3
    assert QueueControl.objects.filter(queue__in="bc").update(reason="why") == 2
    assert sorted(QueueControl.objects.values_list("queue", "reason")) == [
        ("a", ""),
        ("b", "why"),
        ("c", "why"),
        ("d", ""),
    ]
    with transaction.atomic():
        assert QueueControl.objects.filter(queue="d").delete()[0] == 1
        assert QueueControl.objects.count() == 3
    assert next(QueueControl.objects.order_by("queue").iterator(chunk_size=1)).queue == "a"
    with limited.cursor() as cursor:
        cursor.executemany(
            "UPDATE django_jobs_queuecontrol SET reason = %s WHERE queue = %s",
            [("x", "a"), ("y", "b")],
        )
    assert QueueControl.objects.filter(reason__in="xy").count() == 2
    assert limited.seen


def test_a_whole_job_goes_over_a_limited_connection(limited):
    backend = DatabaseBackend("database", {})
    backend.enqueue([make_outgoing(backend="database") for _ in range(3)])
    leases = backend.fetch(["default"], 3, 30.0)
    assert len(leases) == 3
    assert backend.renew(leases, 30.0)
    assert len(set(backend.ack(leases[:2]))) == 1
    assert backend.nack(leases[2])
    assert Job.objects.get().attempts == 1
    assert is_limited(limited)


@ON_SERVERS
def test_what_was_settled_is_not_lost_because_a_breaker_is_locked(limited):
    Breaker.objects.create(backend="database", kind="queue", name="default", failures=1)
    backend = DatabaseBackend("database", {"NOTIFY": False})
    backend.enqueue([make_outgoing(backend="database") for _ in range(4)])
    leases = backend.fetch(["default"], 4, 30.0)
    opener = make_opener(backend="database")
    runs = [
        Run(lease, SettleTerms.of(opener.open(lease.message, "default")), 0, 0, 1, 2)
        for lease in leases
    ]
    holder = connection.copy()
    with holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT 1 FROM django_jobs_breaker FOR UPDATE")
    asker = Asker(Settler(backend, JobsSettings()), Outage("database"))
    try:
        verdicts = settle_many(asker, [(run, Succeeded(1)) for run in runs])
    finally:
        holder.close()
    assert {verdict.answer for verdict in verdicts} == {Settled.SETTLED}
    assert JobResult.objects.count() == 4


@pytest.mark.only_on("postgres")
def test_nothing_is_left_of_them_in_a_session_that_a_pooler_may_lend_to_another(limited):
    def settings():
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        with limited.connection.cursor() as cursor:  # past the limits, as another client
            return [cursor.execute(f"SHOW {name}").fetchone()[0] for name in names]

    limited.ensure_connection()
    before = settings()
    QueueControl.objects.create(backend="database", queue="a")
    in_transition("default", lambda _: QueueControl.objects.update(queue="b"))
    assert settings() == before
    inside = in_transition("default", lambda _: execute("SHOW statement_timeout"))
    assert inside == [("1500ms",)]


@pytest.mark.only_on("postgres")
def test_where_the_server_binds_parameters_transactions_are_limited_all_the_same(limited):
    limited.close()
    limited.settings_dict = {
        **limited.settings_dict,
        "OPTIONS": {**limited.settings_dict.get("OPTIONS", {}), "server_side_binding": True},
    }
    QueueControl.objects.create(backend="database", queue="a")
    told = in_transition("default", lambda _: execute("SHOW lock_timeout"))
    assert told == [("1s",)]
    assert QueueControl.objects.filter(queue="a").update(reason=F("queue")) == 1


@pytest.mark.only_on("postgres", "mariadb")  # MySQL has no limit for what is idle
def test_a_transaction_whose_process_is_frozen_keeps_its_locks_for_a_lease_at_most(limited):
    QueueControl.objects.create(backend="database", queue="a")
    other = connection.copy()

    def freeze_and_go_on():
        with transaction.atomic():
            QueueControl.objects.update(queue="b")  # and now nothing comes any more
            with other.cursor() as cursor:  # waits for the end of the frozen one
                cursor.execute("UPDATE django_jobs_queuecontrol SET queue = 'c'")
            QueueControl.objects.update(queue="d")

    with pytest.raises(Error):
        freeze_and_go_on()
    other.close()
    assert QueueControl.objects.get().queue == "c"


def test_a_table_that_is_missing_is_an_error_of_the_store_and_no_verdict():
    with pytest.raises(Error) as failed, transaction.atomic():
        execute("SELECT * FROM django_jobs_nowhere")
    assert is_schema_missing(failed.value)
    assert is_unavailable(failed.value)
    assert kind_of_error(failed.value) is ErrorKind.STORE


def test_what_a_constraint_refuses_is_refused_for_good():
    Order.objects.create(pk=1, email="a@example.com", total=1)
    with pytest.raises(Error) as failed, transaction.atomic():
        Order.objects.create(pk=1, email="b@example.com", total=1)
    assert is_refusal(failed.value)
    assert kind_of_error(failed.value) is ErrorKind.REFUSED


@pytest.fixture
def guest():
    """Connects as a user of its own, who may have one connection."""
    mine = connection.copy()
    name = f"'guest_{mine.settings_dict['NAME'][-20:]}'@'%'"
    execute(f"CREATE USER {name} IDENTIFIED BY 'right' WITH MAX_USER_CONNECTIONS 1")
    execute(f"GRANT ALL ON {mine.settings_dict['NAME']}.* TO {name}")
    opened = []

    def connect(word):
        other = connection.copy()
        user = name.partition("@")[0].strip("'")
        other.settings_dict = {**other.settings_dict, "USER": user, "PASSWORD": word}
        opened.append(other)
        other.ensure_connection()

    yield connect
    for other in opened:
        other.close()
    execute(f"DROP USER {name}")


@pytest.mark.only_on("mariadb", "mysql")
@pytest.mark.parametrize("password", ["right", "wrong"], ids=["too many", "not let in"])
def test_a_server_that_lets_nobody_in_has_refused_no_settle(guest, password):
    guest("right")
    with pytest.raises(Error) as failed:
        guest(password)
    assert kind_of_error(failed.value) is ErrorKind.STORE
    assert kind_of_error(failed.value, twice=True) is ErrorKind.STORE
