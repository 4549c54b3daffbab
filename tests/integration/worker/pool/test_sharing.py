"""What one worker holds and cannot begin is there for another."""

import pytest

from django_jobs import enqueue_many
from django_jobs.models import Job, JobState
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


def test_short_jobs_behind_a_long_one_go_to_a_worker_that_idles(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(100)])
    busy = start(processes=1)
    until(lambda: len(diary.words) == 100)  # by now it knows that they are short
    gang.hold.enqueue(str(diary), str(diary.gate))
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(100, 140)])
    until(lambda: "hold-begins" in diary.words)
    start(processes=1)
    until(lambda: len(diary.words) == 141)
    assert "hold-ends" not in diary.words
    until(lambda: Job.objects.count() == 1)
    assert Job.objects.get().state == JobState.RUNNING
    assert busy.process.poll() is None
    diary.gate.touch()
    until(lambda: not Job.objects.exists())
    assert len(diary.words) == len(set(diary.words)) == 142
