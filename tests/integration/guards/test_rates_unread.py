"""A rate that this release cannot read holds up no job: that of the settings holds."""

import pytest

from django_jobs import job
from django_jobs.backends.registry import backends
from django_jobs.models import QueueControl
from django_jobs.operations.explain import explain
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
    return [one.getMessage() for one in caplog.records if one.key == "limits.rate_unreadable"]


@pytest.mark.usefixtures("unread")
def test_its_jobs_run_and_it_is_told_once(caplog):
    for _ in range(3):
        handle = noop.using(queue="odd").enqueue()
        look()
        assert process_once("odd").job_id == handle.id
    (sentence,) = told(caplog)
    assert "5/fortnight" in sentence
    assert "odd" in sentence


@pytest.mark.usefixtures("unread")
def test_the_rate_of_the_settings_holds(settings):
    settings.DJANGO_JOBS = {"QUEUES": {"odd": {"RATE_LIMIT": "1/h"}}}
    first, second = (noop.using(queue="odd").enqueue() for _ in range(2))
    look()
    assert process_once("odd").job_id == first.id
    assert process_once("odd").status == "rate-limited"
    assert "1/h" in next(x for x in explain(second.id).causes if x.kind == "rate-limited").text


@pytest.mark.usefixtures("unread")
def test_a_rate_that_can_be_read_holds_again():
    limit_queue("odd", {"rate_limit": "1/h"}, by="anna")
    noop.using(queue="odd").enqueue()
    noop.using(queue="odd").enqueue()
    look()
    assert process_once("odd").status == "acked"
    assert process_once("odd").status == "rate-limited"
