"""Cancelling one job touches that job, keeps what it came to, and no other."""

import pytest

from django_jobs.backends.base import Settled
from django_jobs.backends.database.cancel import remove_waiting
from django_jobs.db.clock import for_people
from django_jobs.models import Job, JobResult, JobState
from django_jobs.testing.factories import make_outgoing
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db


def living():
    return {str(pk) for pk in Job.objects.values_list("pk", flat=True)}


def asked():
    return {
        str(pk) for pk in Job.objects.filter(cancel_requested=True).values_list("pk", flat=True)
    }


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_of_several_is_cancelled_and_the_fact_is_kept(which, backend, manual):
    ids = put(backend, 3)
    assert remove_waiting("default", backend.clock, ids[which], "wrong order") is True
    assert living() == set(ids) - {ids[which]}
    result = JobResult.objects.get()
    assert (str(result.job_id), result.status, result.output, result.attempts) == (
        ids[which],
        "cancelled",
        "wrong order",
        0,
    )
    assert result.finished_at == for_people(manual.now())
    assert result.expires > manual.now()


def test_what_is_not_there_any_more_was_not_cancelled(backend):
    (job_id,) = put(backend)
    assert remove_waiting("default", backend.clock, job_id, "once") is True
    assert remove_waiting("default", backend.clock, job_id, "twice") is False


def test_a_result_of_an_earlier_job_of_that_id_is_in_nobodys_way(backend):
    (job_id,) = put(backend)
    assert backend.cancel(job_id)
    first = JobResult.objects.get()
    backend.enqueue([make_outgoing(backend="database", identifier=job_id)])
    assert backend.cancel(job_id)
    assert living() == set()
    assert JobResult.objects.get() == first


def test_the_one_that_runs_is_asked_once_and_no_other(backend):
    put(backend, 2)
    first, second = backend.fetch(["default"], 2, 30.0)
    (waiting,) = put(backend)
    assert backend.ask_to_stop(waiting) is False
    assert backend.ask_to_stop(first.id) is True
    assert backend.ask_to_stop(first.id) is False
    assert asked() == {first.id}
    assert backend.asked_to_stop([first, second]) == {first.id}
    assert backend.asked_to_stop([second]) == set()


def test_a_job_of_another_backend_is_not_asked(backend):
    (job_id,) = put(backend, backend="another")
    Job.objects.update(state=JobState.RUNNING)
    assert backend.ask_to_stop(job_id) is False
    assert asked() == set()


def test_asking_leaves_the_lease_as_it_is(backend):
    put(backend)
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert backend.ask_to_stop(lease.id)
    assert backend.renew([lease], 30.0) == [Settled.SETTLED]
    assert backend.ack([lease]) == [Settled.SETTLED]
