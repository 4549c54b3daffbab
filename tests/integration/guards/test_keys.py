"""Keys that jobs share, with fifty processes that contend for them."""

from collections import Counter

import pytest

from django_jobs import enqueue_many
from django_jobs.models import Job, JobResult
from tests.integration.guards.crowd import jobs as crowd_jobs

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = 100


def counters():
    return set(JobResult.objects.values_list("attempts", flat=True))


@pytest.mark.parametrize("places", [1, 3])
def test_no_more_than_the_places_of_a_key_at_a_time(crowd, diary, places):
    limited = crowd_jobs.work.using(concurrency_key="disk", concurrency=places)
    seconds = 0.02 * places**2  # enough for others to come beside
    enqueue_many([limited.prepare(str(diary), f"n{n}", seconds) for n in range(JOBS)])
    crowd()
    assert diary.most_at_once() == places
    assert Counter(name for name, _ in diary.of("end")) == {f"n{n}": 1 for n in range(JOBS)}
    assert JobResult.objects.filter(status="succeeded").count() == JOBS
    assert counters() == {0}
    fences = [int(fence) for _, fence in diary.of("begin")]
    assert len(set(fences)) == JOBS
    if places == 1:
        assert fences == sorted(fences)


def test_single_instances_of_one_name_and_others_beside_them(crowd, diary):
    single = crowd_jobs.work.using(single_instance=True, name="report")
    enqueue_many([single.prepare(str(diary), f"s{n}") for n in range(60)])
    other = diary.path.with_name("others")
    enqueue_many([crowd_jobs.work.prepare(str(other), f"o{n}") for n in range(60)])
    crowd()
    assert diary.most_at_once() == 1
    assert len(diary.of("end")) == 60
    assert len(other.read_text().splitlines()) == 120


def test_the_work_of_a_key_is_done_once_whoever_contends(crowd, diary):
    keys = [f"k{n % 20}" for n in range(JOBS)]
    enqueue_many(
        [crowd_jobs.work.using(idempotency_key=key).prepare(str(diary), key) for key in keys]
    )
    crowd()
    assert Counter(name for name, _ in diary.of("end")) == dict.fromkeys(keys, 1)
    ended = Counter(JobResult.objects.values_list("status", flat=True))
    assert ended == {"succeeded": 20, "skipped": JOBS - 20}
    assert counters() == {0}


def test_a_failed_run_leaves_the_work_to_be_done_and_it_is_done_once(crowd, diary):
    keys = [f"k{n % 8}" for n in range(64)]
    enqueue_many(
        [crowd_jobs.moody.using(idempotency_key=key).prepare(str(diary), key) for key in keys]
    )
    crowd()
    assert Counter(name for name, _ in diary.of("done")) == dict.fromkeys(keys, 1)
    assert Counter(JobResult.objects.values_list("status", flat=True)) == {
        "succeeded": 8,
        "skipped": 56,
    }
    assert not Job.objects.exists()
