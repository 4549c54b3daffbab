"""Who enqueues, or asks, where ``migrate`` was not run hears so from an exception of ours."""

import pytest
from django.db import (
    DatabaseError,
    Error,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)

from django_jobs import Handle, enqueue_many, job
from django_jobs.db.transactions import is_schema_missing
from django_jobs.exceptions import JobsError, TablesMissing
from django_jobs.ids import new_id
from django_jobs.models import Job, JobResult
from django_jobs.worker import process_once
from testproject.shop.models import Order
from tests.integration.missing import without_column, without_table

pytestmark = pytest.mark.django_db(transaction=True)
TOLD = "run manage.py migrate --database default"


@job(key="tests.missing.noop")
def noop():
    pass


def ask_of(work):
    return lambda: work(Handle(new_id(), "database"))


VERBS = {
    "enqueue": noop.enqueue,
    "enqueue many": lambda: enqueue_many([noop.prepare(), noop.prepare()]),
    "with a key": noop.using(unique_key="k").enqueue,
    "process_once": process_once,
    "process_once of a queue": lambda: process_once("default"),
    "status": ask_of(lambda handle: handle.status),
    "result": ask_of(lambda handle: handle.result()),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_verb_on_a_database_without_tables_says_what_to_run(verb):
    with without_table(Job), without_table(JobResult), pytest.raises(TablesMissing) as raised:
        verb()
    error = raised.value
    assert error.database == "default"
    assert str(error).endswith(TOLD)
    assert isinstance(error, JobsError)
    assert isinstance(error, DatabaseError)
    assert isinstance(error.__cause__, OperationalError | ProgrammingError)
    assert str(error.__cause__).strip() in str(error)


def test_an_enqueue_into_an_older_table_says_so_too():
    with without_column(Job, "body"), pytest.raises(TablesMissing, match=TOLD):
        noop.enqueue()


def test_a_job_that_was_prepared_and_tried_says_so_again():
    prepared = noop.prepare()
    with without_table(Job), without_table(JobResult):
        for _ in range(2):
            with pytest.raises(TablesMissing, match=TOLD):
                prepared.enqueue()
    assert prepared.enqueue().created


def test_inside_the_callers_transaction_it_is_said_and_the_transaction_undone():
    with without_table(Job):
        with pytest.raises(TablesMissing, match=TOLD), transaction.atomic():  # noqa: PT012 - both
            Order.objects.create(email="a@example.com", total=1)
            noop.enqueue()
        assert not Order.objects.exists()
        Order.objects.create(email="b@example.com", total=1)


def test_an_error_about_the_callers_own_tables_stays_what_it_is():
    """Those of the package are there; nothing of ours is asked."""
    with without_table(Order), pytest.raises(DatabaseError) as raised:
        Order.objects.count()
    assert not isinstance(raised.value, TablesMissing)
    with without_table(Order):
        assert noop.enqueue().created


# -- the codes -------------------------------------------------------------------------------


def error_of(sql):
    with pytest.raises(Error) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    return raised.value


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM django_jobs_nothing",
        "SELECT nothing FROM django_jobs_job",
        "INSERT INTO django_jobs_job (nothing) VALUES (1)",
        "UPDATE django_jobs_job SET nothing = 1",
        "DELETE FROM django_jobs_nothing",
    ],
)
def test_a_table_or_column_that_is_missing_is_told_by_its_code(sql):
    assert is_schema_missing(error_of(sql))


def test_a_row_that_is_refused_says_nothing_of_the_tables():
    noop.enqueue()
    sql = "INSERT INTO django_jobs_job SELECT * FROM django_jobs_job"
    assert not is_schema_missing(error_of(sql))
