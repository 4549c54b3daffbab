"""A rolling deploy: workers of the old settings and of the new ones, one after the other."""

import pytest

from django_jobs.models import FailedJob, Job, JobState
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
OLD = {"SIGNING_KEYS": [("old", "o" * 32)], "SNOOZE_DELAY": 0.2}
NEW = {"SIGNING_KEYS": [("new", "n" * 32), ("old", "o" * 32)], "SNOOZE_DELAY": 0.2}


@pytest.mark.parametrize(
    ("told", "deployed"),
    [
        ("unknown-key", NEW),
        ("other-site", {**OLD, "SITE": "renamed"}),
    ],
    ids=["key", "site"],
)
def test_what_an_old_worker_cannot_judge_is_told_and_run_by_a_new_one(
    start, diary, settings, told, deployed
):
    settings.DJANGO_JOBS = deployed
    handle = gang.note.enqueue(str(diary))
    gang.note.using(delay=3600).enqueue(str(diary))  # waits whenever the worker looks
    mine = Job.objects.filter(pk=handle.id)
    old = start(processes=1, **OLD)
    until(lambda: mine.get().put_off_since is not None)
    until(lambda: f"would not be run here ({told}, in default)" in old.said)
    old.stop_at_once()
    assert (diary.words, FailedJob.objects.exists()) == ([], False)
    assert mine.get().state != JobState.RUNNING  # by now it may be due again
    assert start("--max-jobs", "1", processes=1, **deployed).ended() == 0
    assert len(diary.words) == 1
    assert handle.status == "succeeded"
