"""What is told of jobs on their way, and that nothing is made for nobody."""

import pytest
from django.db.models import F

from django_jobs import job
from django_jobs.backends.registry import backends
from django_jobs.models import Job
from django_jobs.signals import job_crashed
from django_jobs.telemetry import events
from django_jobs.worker import duties, process_once

pytestmark = pytest.mark.django_db


@job(key="telling.note")
def note():
    return 1


@pytest.fixture
def told():
    told = []
    events.subscribe(told.append)
    yield told
    events.unsubscribe(told.append)


def test_a_job_is_claimed_then_started_then_settled(told):
    handle = note.enqueue()
    assert process_once()
    kinds = (events.JobClaimed, events.JobStarted, events.JobSucceeded)
    assert [type(event) for event in told] == list(kinds)
    assert {(one.job_id, one.queue, one.handler, one.attempt) for one in told} == {
        (handle.id, "default", "telling.note", 1)
    }
    assert len({one.trace_id for one in told}) == 1


def test_what_nobody_wants_is_not_made():
    """The log takes no DEBUG by default, and metrics do not count these."""
    assert not events.is_wanted(events.JobClaimed)
    assert not events.is_wanted(events.JobStarted)


def test_whoever_reaps_tells_which_jobs_it_charged(told):
    handles = [note.enqueue() for _ in range(2)]
    backend = backends["database"]
    Job.objects.filter(pk=handles[1].id).update(suspect=True, crashes=1)
    leases = backend.fetch(["default"], 1, 30.0) + backend.fetch(["default"], 1, 30.0)
    assert [lease.suspect for lease in leases] == [False, True]
    Job.objects.update(lease_expires=F("leased_at"))
    heard = []

    def receive(sender, **facts):
        heard.append((facts["job_id"], facts["crashes"]))

    job_crashed.connect(receive)
    try:
        assert duties.Housekeeping(backend, 30.0).step()
    finally:
        job_crashed.disconnect(receive)
    (crash,) = [event for event in told if isinstance(event, events.JobCrashed)]
    assert (crash.job_id, crash.handler, crash.crashes) == (handles[1].id, "telling.note", 2)
    assert [event.count for event in told if isinstance(event, events.Reaped)] == [2]
    assert heard == [(handles[1].id, 2)]
    assert sorted(Job.objects.values_list("crashes", flat=True)) == [0, 2]
