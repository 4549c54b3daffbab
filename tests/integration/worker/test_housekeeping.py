"""What one look does not tell is tidied all the same, now and then."""

import pytest

from django_jobs.backends.database import DatabaseBackend
from django_jobs.models import Job, JobKey, JobState
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import housekeeping


@pytest.mark.django_db
def test_a_job_whose_holder_was_removed_by_hand_is_woken_in_a_quiet_store(monkeypatch):
    backend = DatabaseBackend("database", {})
    for _ in range(2):
        backend.enqueue([make_outgoing(backend="database", concurrency_key="disk")])
    (holder,) = backend.fetch(["default"], 2, 30.0)
    waiting = Job.objects.exclude(pk=holder.id)
    assert waiting.get().state == JobState.BLOCKED
    Job.objects.filter(pk=holder.id).delete()
    JobKey.objects.update(keep_until=0)
    quiet = housekeeping.Housekeeping(backend, 30.0)
    quiet.step()
    assert waiting.get().state == JobState.BLOCKED
    monkeypatch.setattr(housekeeping, "TIDY_SECONDS", 0.0)
    housekeeping.Housekeeping(backend, 30.0).step()
    assert waiting.get().state == JobState.READY
    assert not JobKey.objects.exists()
