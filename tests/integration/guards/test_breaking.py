"""Breakers with fifty processes that contend for the one probe."""

from collections import Counter

import pytest

from django_jobs import enqueue_many
from django_jobs.models import Breaker, FailedJob, Job, JobResult
from tests.integration.guards.crowd import jobs as crowd_jobs

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = 60
COOLDOWN = 3


def test_after_ten_rejections_one_of_fifty_lets_one_job_try_and_all_finish(crowd, diary):
    """The probe takes a while, and is counted by what the handlers wrote."""
    forged = [crowd_jobs.work.using(priority=9).prepare(str(diary), "forged") for _ in range(10)]
    enqueue_many(forged)
    Job.objects.update(signature="0" * 64)
    crowd(count=1, CIRCUIT_BREAKER={"COOLDOWN": COOLDOWN})
    assert Breaker.objects.get().opened_at is not None
    assert FailedJob.objects.filter(reason="rejected-signature").count() == 10
    enqueue_many([crowd_jobs.work.prepare(str(diary), f"n{n}", 0.5) for n in range(JOBS)])
    crowd(CIRCUIT_BREAKER={"COOLDOWN": COOLDOWN})
    ended = Counter(name for name, _ in diary.of("end"))
    assert ended == {f"n{n}": 1 for n in range(JOBS)}
    # Nothing else began before the first one had ended.
    assert [word for _, word, *_ in diary.lines][:2] == ["begin", "end"]
    assert set(JobResult.objects.values_list("attempts", flat=True)) == {0}
    assert Breaker.objects.get().failures == 0


def test_a_handler_that_is_down_is_tried_by_one_job_at_a_time_and_all_finish(crowd, diary):
    breaker = {"COOLDOWN": COOLDOWN, "HANDLERS": {"crowd.broken": {"THRESHOLD": 3}}}
    limits = {"CIRCUIT_BREAKER": breaker, "SNOOZE_DELAY": 0.5}
    fails = 4  # three that open the breaker, and the first probe
    enqueue_many([crowd_jobs.broken.prepare(str(diary), f"f{n}", fails) for n in range(3)])
    crowd(count=1, **limits)
    assert FailedJob.objects.count() == 3
    assert Breaker.objects.get().opened_at is not None
    job = crowd_jobs.broken.using(max_retries=20, retry=[1])
    enqueue_many([job.prepare(str(diary), f"n{n}", fails) for n in range(JOBS)])
    crowd(**limits)
    assert Counter(name for name, _ in diary.of("done")) == {f"n{n}": 1 for n in range(JOBS)}
    probes = [line for line in diary.lines if line[1] in {"begin", "end"}][6:10]
    assert [word for _, word, *_ in probes] == ["begin", "end", "begin", "end"]
    failed_at, tried_at = float(probes[1][4]), float(probes[2][4])
    assert tried_at - failed_at >= COOLDOWN
    attempts = Counter(JobResult.objects.values_list("attempts", flat=True))
    assert attempts == {0: JOBS - 1, 1: 1}
