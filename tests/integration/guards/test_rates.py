"""A rate limit with fifty processes, judged by when the handlers began, on the store's clock."""

import pytest

from django_jobs import enqueue_many
from django_jobs.clock import SECOND
from django_jobs.models import Job, JobResult
from tests.integration.guards.crowd import jobs as crowd_jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    # On SQLite as many processes wait for its one lock for longer than they may.
    pytest.mark.only_on("postgres", "mariadb", "mysql"),
]
LIMIT = 30
WINDOW = 60 * SECOND


def most_in_a_window(starts, window=WINDOW):
    """By brute force: the most starts in a window that begins with one of them."""
    return max(sum(first <= start < first + window for start in starts) for first in starts)


def test_no_window_holds_more_than_the_limit_and_most_of_it_is_used(crowd, diary):
    jobs = 2 * LIMIT
    enqueue_many([crowd_jobs.stamp.prepare(str(diary), f"n{n}") for n in range(jobs)])
    crowd(QUEUES={"default": {"RATE_LIMIT": f"{LIMIT}/m"}})
    began = {name: int(stamp) for name, stamp in diary.of("began")}
    claimed = {name: int(stamp) for name, stamp in diary.of("claimed")}
    assert (len(began), len(diary.of("began"))) == (jobs, jobs)
    assert not Job.objects.exists()
    assert set(JobResult.objects.values_list("attempts", flat=True)) == {0}
    assert most_in_a_window(claimed.values()) <= LIMIT
    # Fifty processes on a few cores: a handler may begin a while after its job was claimed.
    late = max(began[name] - claimed[name] for name in began)
    assert most_in_a_window(began.values(), WINDOW - late) <= LIMIT
    # All of the second half may begin a window after all of the first half did.
    in_order = sorted(claimed.values())
    used = WINDOW / (in_order[-1] - in_order[LIMIT - 1])
    print(f"{jobs} jobs at {LIMIT}/m by 50 processes: {used:.1%} of the limit is used, ", end="")
    print(
        f"most begun in a minute {most_in_a_window(began.values())}, latest {late / SECOND:.2f} s"
    )
    assert used >= 0.95


PER_SECOND = 20
SECONDS = 10
# A window of a second has slots of 5 ms. Beside it the one that has just begun and 40 ms for
# jobs that start late are kept free, so that no more than this can be used.
MOST_OF_A_SECOND = 1 / 1.045


def test_a_rate_per_second_holds_and_most_of_it_is_used(crowd, diary):
    jobs = PER_SECOND * SECONDS
    enqueue_many([crowd_jobs.stamp.prepare(str(diary), f"n{n}") for n in range(jobs)])
    crowd(QUEUES={"default": {"RATE_LIMIT": f"{PER_SECOND}/s"}})
    claimed = sorted(int(stamp) for name, stamp in diary.of("claimed"))
    assert len(claimed) == jobs
    assert most_in_a_window(claimed, SECOND) <= PER_SECOND
    assert set(JobResult.objects.values_list("attempts", flat=True)) == {0}
    # The first window's worth may begin at once: what follows takes the time.
    used = (jobs - PER_SECOND) / PER_SECOND / ((claimed[-1] - claimed[0]) / SECOND)
    print(f"{jobs} jobs at {PER_SECOND}/s by 50 processes: {used:.1%} of the limit is used")
    # Fifty processes that look when they like, on two cores with other work, unlike a worker.
    assert used >= 0.4 * MOST_OF_A_SECOND
