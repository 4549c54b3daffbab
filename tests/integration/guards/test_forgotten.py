"""Who waits for a job that was removed from the table is found, whoever waits before them."""

import pytest

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database.keys import Forgotten
from django_jobs.db.clock import StoreClock
from django_jobs.ids import new_id
from django_jobs.models import Job, JobState
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.django_db


@pytest.fixture
def backend():
    return DatabaseBackend("database", {})


def put(backend, count, key, **terms):
    message = {"backend": "database", "concurrency_key": key, **terms}
    backend.enqueue([make_outgoing(**message) for _ in range(count)])


def hold(backend, key, waiting, **terms):
    """Let one job of a key run, and others wait for it."""
    put(backend, 1 + waiting, key, **terms)
    (lease,) = backend.fetch(["default"], 1, 30.0)
    backend.fetch(["default"], waiting, 30.0)
    assert Job.objects.filter(state=JobState.BLOCKED).count() >= waiting
    return lease


def ready():
    return set(Job.objects.filter(state=JobState.READY).values_list("rank", flat=True))


@pytest.mark.parametrize("before", [7, 8, 9], ids=lambda count: f"{count} before")
@pytest.mark.parametrize("priority", [5, -5], ids=["of one rank", "of another rank"])
def test_those_who_wait_for_good_reasons_hide_nobody(backend, before, priority):
    hold(backend, "sound", before, priority=5)
    gone = hold(backend, "gone", 2, priority=priority)
    Job.objects.filter(pk=gone.id).delete()
    for _ in range(before // 4 + 1):
        backend.clean_up(4)
    assert ready() == {-priority}
    assert Job.objects.filter(state=JobState.READY).count() == 1


def test_after_the_last_one_it_begins_anew(backend):
    sound = hold(backend, "sound", 6)
    for _ in range(2):
        backend.clean_up(4)
    Job.objects.filter(pk=sound.id).delete()
    backend.clean_up(4)
    assert Job.objects.filter(state=JobState.READY).count() == 1


def test_it_begins_with_those_it_saw_first(backend):
    gone = hold(backend, "gone", 2)
    hold(backend, "sound", 4)
    for _ in range(2):
        backend.clean_up(4)
    Job.objects.filter(pk=gone.id).delete()
    backend.clean_up(4)
    assert Job.objects.filter(state=JobState.READY).count() == 1


def test_jobs_of_one_moment_are_all_looked_at(backend):
    hold(backend, "sound", 9)
    gone = hold(backend, "gone", 3)
    Job.objects.update(due=gone.expires_at)
    Job.objects.filter(pk=gone.id).delete()
    for _ in range(4):
        backend.clean_up(4)
    assert Job.objects.filter(state=JobState.READY).count() == 1


@pytest.mark.usefixtures("by_the_table")
def test_those_of_a_queue_are_looked_at_in_their_order_wherever_they_lie(backend):
    ids = [new_id() for _ in range(12)]
    places = [(rank, due) for rank in (2, 1, 0) for due in (7 + rank, 5) for _ in range(2)]
    put(backend, 1, "another", queue="another", identifier="00000000-0000-7000-8000-000000000000")
    Job.objects.update(state=JobState.BLOCKED, rank=-1, due=0)
    for job_id, (rank, due) in reversed(list(zip(ids, places, strict=True))):
        put(backend, 1, job_id, identifier=job_id)
        Job.objects.filter(pk=job_id).update(state=JobState.BLOCKED, rank=rank, due=due)
    forgotten = Forgotten("default", StoreClock())
    woken = []
    for _ in ids:
        forgotten.wake(["default"], 1)
        found = Job.objects.get(state=JobState.READY)
        woken.append(str(found.pk))
        found.delete()
    in_order = sorted(zip(places, ids, strict=True))
    assert woken == [job_id for _, job_id in in_order]
