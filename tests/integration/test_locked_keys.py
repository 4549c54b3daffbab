"""A key's row that another transaction holds for long keeps nobody from other queues."""

import threading

import pytest
from django.db import Error, connection, connections
from django.test import override_settings

from django_jobs import job
from django_jobs.conf import get_settings
from django_jobs.db.timeouts import StatementLimits, limit_connection
from django_jobs.models import Job, JobState
from django_jobs.worker.build import build_cycle
from django_jobs.worker.pool.get_thread import Fetcher
from django_jobs.worker.queues import Strict
from tests.integration.by_hand import put
from tests.integration.worker.pool.conftest import until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.only_on("postgres", "mariadb", "mysql"),
]


@pytest.fixture
def limited():
    """A worker's connection, which waits for no lock for long, in the place of this thread's."""
    mine, before = connection.copy(), connections["default"]
    limit_connection(mine, StatementLimits(lock=1.0, statement=3.0, idle=30.0), lambda: None)
    connections["default"] = mine
    yield mine
    connections["default"] = before
    mine.close()


@pytest.fixture
def holder(backend):
    """Another transaction that has locked the rows of all keys, until it is closed."""
    put(backend, concurrency_key="api", concurrency=50)
    (lease,) = backend.fetch(["default"], 1, 30.0)
    backend.ack([lease])
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT 1 FROM django_jobs_jobkey FOR UPDATE")
        assert cursor.fetchall()
    yield other
    other.close()


def test_jobs_of_other_queues_run_meanwhile_and_nobody_is_charged(backend, holder, limited):
    keyed = put(backend, 3, concurrency_key="api", concurrency=50)
    plain = put(backend, 2, queue="plain")
    queues = ["default", "plain"]
    taken = [lease.id for _ in plain for lease in backend.fetch(queues, 1, 30.0)]
    assert taken == plain
    with pytest.raises(Error):  # not an empty queue
        backend.fetch(queues, 1, 30.0)
    holder.close()
    ran = until(lambda: fetched(backend, queues))
    assert set(ran) == {(job_id, 1, 0, 0, False) for job_id in keyed}


def fetched(backend, queues):
    """What a fetch that gets something gets, with its charges."""
    try:
        leases = backend.fetch(queues, 9, 30.0)
    except Error:
        return []
    headers = [(lease.id, lease.message.header, lease.suspect) for lease in leases]
    return [(one, h.deliveries, h.attempts, h.crashes, suspect) for one, h, suspect in headers]


def test_however_long_it_lasts_no_job_of_that_key_becomes_a_suspect(
    backend, manual, holder, limited
):
    keyed = put(backend, 2, concurrency_key="api", concurrency=50)
    plain = put(backend, 2, queue="plain")
    for _ in plain:
        assert [lease.queue for lease in backend.fetch(["default", "plain"], 1, 30.0)] == ["plain"]
    left = Job.objects.filter(queue="default").values_list("state", "deliveries")
    assert list(left) == [(JobState.READY, 0)] * 2
    manual.advance(31.0)
    assert backend.reap_expired() == 2  # those that run
    holder.close()
    ran = until(lambda: fetched(backend, ["default"]))
    assert set(ran) == {(job_id, 1, 0, 0, False) for job_id in keyed}


def test_what_was_claimed_there_is_not_asked_for_by_every_claim(backend, holder, limited):
    put(backend, concurrency_key="api", concurrency=50)
    plain = put(backend, 5, queue="plain")
    failures = []

    def noted(execute, sql, *rest):
        try:
            return execute(sql, *rest)
        except Error:
            failures.append(sql)
            raise

    with limited.execute_wrapper(noted):
        taken = [lease.id for _ in plain for lease in backend.fetch(["default", "plain"], 1, 30.0)]
    assert taken == plain
    # The claim's, and that which would have given it back; each has waited for a second.
    assert len(failures) <= 4


QUEUES = {"default": {}, "plain": {"LEASE_SECONDS": 60}, "last": {}}


@job(key="locked.nothing", queue="plain")
def nothing():
    pass


def test_nor_does_it_keep_a_worker_from_queues_whose_leases_are_of_another_length(
    backend, holder, limited
):
    keyed = put(backend, 9, concurrency_key="api", concurrency=50)
    with override_settings(DJANGO_JOBS={"QUEUES": QUEUES}):
        plain = put(backend, 2, queue="plain")
        order = Strict(["default", "plain", "last"])
        fetcher = Fetcher(backend, get_settings(), order, 1.0, threading.Condition())
        fetcher.request(0, 2)
        assert [lease.id for lease in fetcher.look().leases] == plain
        fetcher.request(2, 2)
        with pytest.raises(Error):  # not an empty queue
            fetcher.look()
        assert not fetcher.empty
        holder.close()
        assert set(until(lambda: looked(fetcher))) < set(keyed)


def looked(fetcher):
    try:
        found = fetcher.look()
    except Error:
        return []
    return [lease.id for lease in found.leases] if found else []


def test_nor_from_other_queues_where_one_process_does_everything(backend, holder, limited):
    put(backend, 3, concurrency_key="api", concurrency=50)
    nothing.enqueue()
    cycle = build_cycle(backend, get_settings())
    assert cycle.once(["default", "plain"]).status == "acked"
    with pytest.raises(Error):  # not an empty queue
        cycle.once(["default", "plain"])
