"""A prepared job that is enqueued once more, after all that may have happened to it."""

from __future__ import annotations

import pytest

from django_jobs import enqueue_many, job
from django_jobs.models import Job
from django_jobs.worker import process_once


@pytest.mark.django_db
def test_a_prepared_job_that_has_been_run_is_not_enqueued_again():
    ran = []

    @job(key="tests.enqueue.once")
    def once(n):
        ran.append(n)

    first, second = once.prepare(1), once.prepare(2)
    assert first.enqueue().created
    while process_once("default"):
        pass
    again, new = enqueue_many([first, second])
    assert (again.id, again.created) == (first.id, False)
    assert (new.id, new.created) == (second.id, True)
    while process_once("default"):
        pass
    assert ran == [1, 2]


@pytest.mark.django_db
def test_a_prepared_job_that_died_is_not_enqueued_again():
    @job(key="tests.enqueue.dies")
    def dies():
        raise ValueError("no")

    prepared = dies.prepare()
    assert prepared.enqueue().created
    assert process_once("default").status == "dead-lettered"
    again = prepared.enqueue()
    assert (again.created, again.status) == (False, "dead")
    assert not Job.objects.exists()
