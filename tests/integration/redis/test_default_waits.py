"""How long a job on Redis waits for its next run when it says nothing of it."""

import time

import pytest

from django_jobs import Snooze, job
from django_jobs.clock import SECOND
from django_jobs.worker import process_once

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db]


@job(key="default-waits.fails", max_retries=2)
def fails():
    raise ConnectionError("not yet")


@job(key="default-waits.snoozes")
def snoozes():
    raise Snooze(0)


def waits(backend, status):
    """How long the only job waits after it was run."""
    before = time.time()
    assert process_once().status == status
    (waiting,) = backend.peek("default", 2)
    assert waiting.state == "scheduled"
    return waiting.due / SECOND - before


def test_the_first_retry_waits_about_five_seconds(backend):
    fails.enqueue()
    assert 4.2 < waits(backend, "requeued") < 8.5


def test_a_snooze_waits_for_a_second_at_least(backend):
    snoozes.enqueue()
    assert 1 <= waits(backend, "snoozed") < 4
