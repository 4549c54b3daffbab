"""A rate that this release cannot read closes its own queue, and nothing else."""

import pytest

from django_jobs import job
from django_jobs.backends.registry import backends
from django_jobs.models import QueueControl
from django_jobs.operations import explain
from django_jobs.operations.queues import limit_queue
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db


@job(key="rates.noop")
def noop():
    pass


def look():
    backends["database"]._meters._looked_at = float("-inf")
    backends["database"]._closed._until.clear()


@pytest.fixture
def unread():
    look()
    QueueControl.objects.create(backend="database", queue="odd", rate_limit="5/fortnight")
    yield
    backends["database"]._meters._set = {}
    look()


def told(caplog):
    return [one.getMessage() for one in caplog.records if one.key == "limits.rate_unread"]


@pytest.mark.usefixtures("unread")
def test_only_its_queue_is_closed_and_it_is_told_once(caplog):
    odd, other = noop.using(queue="odd").enqueue(), noop.using(queue="other").enqueue()
    for _ in range(3):
        look()
        assert process_once("odd").status == "rate-limited"
    look()
    assert process_once(["odd", "other"]).job_id == other.id
    (sentence,) = told(caplog)
    assert "5/fortnight" in sentence
    assert "odd" in sentence
    (cause,) = [one for one in explain(odd.id).causes if one.kind == "rate-limited"]
    assert "cannot be read" in cause.told


@pytest.mark.usefixtures("unread")
def test_with_a_rate_that_can_be_read_it_goes_on():
    handle = noop.using(queue="odd").enqueue()
    look()
    assert process_once("odd").status == "rate-limited"
    limit_queue("odd", {"rate_limit": "5/m"}, by="anna")
    look()
    assert process_once("odd").job_id == handle.id
