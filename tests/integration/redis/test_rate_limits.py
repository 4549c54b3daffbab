"""The starts of a limited queue, as handlers on Redis saw them."""

import pytest

from django_jobs.backends.registry import backends
from tests.integration.worker.pool.test_rate_limits import (
    MODES,
    QUEUES,
    check_most_of_it_is_used,
    check_no_window_holds_more,
    check_what_a_freeze_made_late_starts_anew,
)

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("mode", MODES)
def test_no_window_holds_more_starts_than_the_limit_beside_long_jobs(jobs, start, diary, mode):
    check_no_window_holds_more(start, diary, mode, QUEUES=QUEUES, **jobs)


def test_at_least_95_percent_of_a_rate_limit_are_used_while_a_long_job_runs(jobs, start, diary):
    check_most_of_it_is_used(start, diary, QUEUES=QUEUES, **jobs)


def test_jobs_that_a_freeze_made_late_do_not_start_beside_those_of_the_next_window(
    jobs, start, diary
):
    backend = backends["redis"]
    check_what_a_freeze_made_late_starts_anew(start, diary, backend, QUEUES=QUEUES, **jobs)
