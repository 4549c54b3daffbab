"""Why a job is not running: breakers that really opened, and the outbox."""

import pytest

from django_jobs import job
from django_jobs.backends.registry import backends
from django_jobs.models import Job
from django_jobs.operations.explain import explain
from django_jobs.operations.queues import reset_breaker
from django_jobs.worker import process_once
from django_jobs.worker.duties import Presence

pytestmark = pytest.mark.django_db
OVERVIEW = "/admin/django_jobs/overview/"


@job(key="explained.breaks", max_retries=9, retry=[0])
def breaks():
    raise RuntimeError("the other side is down")


@pytest.fixture(autouse=True)
def site(settings):
    handlers = {"explained.breaks": {}}
    rule = {"THRESHOLD": 3, "COOLDOWN": 60, "HANDLERS": handlers}
    settings.DJANGO_JOBS = {"CIRCUIT_BREAKER": rule}
    Presence(backends["database"], "every queue").write()


def look():
    """As half a second later."""
    backends["database"]._breakers._looked_at = float("-inf")
    backends["database"]._closed._until.clear()


def work():
    look()
    return process_once().status


def open_that_of_the_queue():
    ids = [breaks.enqueue().id for _ in range(10)]
    Job.objects.filter(pk__in=ids).update(signature="0" * 64)
    assert {work() for _ in range(10)} == {"rejected"}


def cause(handle):
    (found,) = explain(handle.id).causes
    return found


def test_the_breaker_of_its_queue_is_open():
    open_that_of_the_queue()
    found = cause(breaks.enqueue())
    assert found.kind == "breaker-open"
    assert found.text.startswith("The circuit breaker of the queue default is open until 20")
    assert found.text.endswith("after 10 rejected jobs in a row.")
    assert "jobs_queue reset-breaker default." in found.way_out
    elsewhere = breaks.using(queue="mail").enqueue()
    assert cause(elsewhere).kind == "its-turn"


def test_it_says_so_until_somebody_closes_it():
    open_that_of_the_queue()
    handle = breaks.enqueue()
    reset_breaker("default", by="ada")
    assert cause(handle).kind == "its-turn"


def test_the_breaker_of_its_handler_is_open():
    handle = breaks.enqueue()
    assert [work() for _ in range(3)] == ["requeued"] * 3
    Job.objects.update(due=0)
    found = cause(handle)
    assert found.kind == "breaker-open"
    assert "of the handler explained.breaks is open until" in found.text
    assert found.text.endswith("after 3 failures in a row.")
    assert "--handler explained.breaks" in found.way_out


def test_the_overview_shows_open_breakers(admin_client):
    open_that_of_the_queue()
    breaks.enqueue()
    page = admin_client.get(OVERVIEW).content.decode()
    assert "breaker open until" in page


def test_the_overview_shows_the_open_breaker_of_a_handler(admin_client):
    breaks.enqueue()
    assert [work() for _ in range(3)] == ["requeued"] * 3
    page = admin_client.get(OVERVIEW).content.decode()
    assert "breaker of explained.breaks open until" in page
