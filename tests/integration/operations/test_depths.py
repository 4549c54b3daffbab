"""How deep queues are said to be."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobs.ids import new_id
from django_jobs.models import FailedJob
from django_jobs.operations import depths as overseeing
from django_jobs.operations.depths import depths

pytestmark = pytest.mark.django_db


def letter(queue, *, resolution="", age=0):
    return FailedJob(
        backend="database",
        job_id=new_id(),
        queue=queue,
        handler="shop.jobs.doomed",
        body="{}",
        signature="",
        key_id="",
        rank=0,
        reason="exhausted",
        failed_at=timezone.now() - timedelta(minutes=age),
        resolution=resolution,
    )


def dead_letters():
    return {depth.queue: depth.dead for depth in depths() if depth.dead}


def test_an_open_dead_letter_is_counted_behind_any_number_of_resolved_ones(monkeypatch):
    monkeypatch.setattr(overseeing, "COUNTED_AT_MOST", 3)
    FailedJob.objects.bulk_create(
        [letter("mail", resolution="discarded") for _ in range(20)]
        + [letter("mail", age=60) for _ in range(2)]
        + [letter("reports", age=90)]
    )
    assert dead_letters() == {"mail": 2, "reports": 1}


def test_a_queue_all_of_whose_dead_letters_are_resolved_is_no_queue_any_more():
    FailedJob.objects.bulk_create([letter("gone", resolution="replayed")])
    assert "gone" not in {depth.queue for depth in depths()}
