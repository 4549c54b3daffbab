"""What Redis keeps of a job goes when the job has ended, or by itself after a while."""

import pytest
from django.db import OperationalError, connection

from django_jobs.backends.base import AttemptRecord, Charge, Failure, ResultRecord
from django_jobs.models import FailedJob, JobAttempt
from django_jobs.testing.factories import make_outgoing

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
KEY_NAMES = ("unique_key", "concurrency_key", "idempotency_key")
FAILED_RUN = AttemptRecord(number=1, outcome="failed", started_at=1, finished_at=2)


@pytest.fixture
def client(backend):
    return backend.store.connection.client


def take(backend):
    (lease,) = backend.fetch(["default"], 1, 30.0)
    return lease


def kept_for_ever(client, job_id):
    """The keys without an expiry that name a job or hold something of it."""
    endless = [key for key in client.scan_iter() if client.ttl(key) == -1]
    return [key for key in endless if job_id in key + inside(client, key)]


def inside(client, key):
    match client.type(key):
        case b"hash":
            return b" ".join(part for pair in client.hgetall(key).items() for part in pair)
        case b"zset":
            return b" ".join(client.zrange(key, 0, -1))
        case b"set":
            return b" ".join(client.smembers(key))
        case b"list":
            return b" ".join(client.lrange(key, 0, -1))
    return client.get(key)


def ack(backend, lease):
    backend.ack([lease])


def ack_with_a_result(backend, lease):
    backend.ack([lease], {lease.id: ResultRecord(status="succeeded", ttl_seconds=60.0)})


def abandon(backend, lease):
    backend.abandon(lease, Failure(reason="exhausted"))
    assert (FailedJob.objects.count(), JobAttempt.objects.count()) == (1, 1)


def cancel(backend, lease):
    backend.nack(lease, charge=Charge.NOTHING)
    assert backend.cancel(lease.id)


@pytest.mark.parametrize("end", [ack, ack_with_a_result, abandon, cancel])
@pytest.mark.parametrize("way_in", ["enqueue", "push"])
@pytest.mark.parametrize("names", [(), KEY_NAMES], ids=["without keys", "with keys"])
def test_nothing_is_kept_for_ever_of_a_job_that_failed_once_and_has_ended(
    backend, client, names, way_in, end
):
    job_id = make(backend, way_in, dict.fromkeys(names, "left-behind"))
    backend.nack(take(backend), charge=Charge.ATTEMPT, attempt=FAILED_RUN)
    assert len(kept_for_ever(client, job_id)) > 1  # the job, and its run that failed
    end(backend, take(backend))
    kept = kept_for_ever(client, job_id)
    assert {key.rpartition(b":")[2] for key in kept} <= {
        b"res",
        b"kept",
    }  # with moments of their own


def make(backend, way_in, terms):
    message = make_outgoing(backend="redis", **terms)
    getattr(backend, way_in)([message])
    return message.id.encode()


def test_a_dead_letter_stays_in_redis_until_the_database_has_it(backend, client):
    job_id = make(backend, "enqueue", {})

    def dies(execute, sql, params, many, context):
        if sql.startswith("INSERT"):
            raise OperationalError("the server has gone away")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(dies):
        backend.abandon(take(backend), Failure(reason="exhausted", attempt=FAILED_RUN))
    assert not FailedJob.objects.exists()
    assert any(key.endswith(b":dead") for key in kept_for_ever(client, job_id))
