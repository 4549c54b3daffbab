"""A job of an idempotency key that ends without its work leaves the work to the next one."""

import pytest

from django_jobs import Cancel, job
from django_jobs.handlers.registry import registry
from django_jobs.models import Job
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db

ran = []


@job(key="undone.work", discard_on=(KeyError,))
def work(how="well"):
    ran.append(how)
    if how == "cancelled":
        raise Cancel("not now")
    if how == "discarded":
        raise KeyError("nothing to do")


def cancelled_by_an_operator():
    enqueue("well")
    Job.objects.update(cancel_requested=True)
    assert process_once().status == "cancelled"


def discarded_as_unknown(settings, monkeypatch):
    enqueue("well")
    settings.DJANGO_JOBS = {"UNKNOWN_HANDLER": "discard"}
    with monkeypatch.context() as patch:
        patch.delitem(registry._handlers, "undone.work")
        assert process_once().status == "cancelled"


def enqueue(how):
    work.using(idempotency_key="receipt-42").enqueue(how)


def next_one():
    ran.clear()
    enqueue("well")
    return process_once().status, ran


@pytest.mark.parametrize("how", ["cancelled", "discarded"])
def test_what_its_handler_gave_up_is_done_by_the_next(how):
    enqueue(how)
    assert process_once().status == "cancelled"
    assert next_one() == ("acked", ["well"])


def test_what_an_operator_stopped_before_its_run_is_done_by_the_next():
    cancelled_by_an_operator()
    assert next_one() == ("acked", ["well"])


def test_what_was_discarded_as_unknown_is_done_by_the_next(settings, monkeypatch):
    discarded_as_unknown(settings, monkeypatch)
    assert next_one() == ("acked", ["well"])


def test_what_was_done_is_done():
    enqueue("well")
    assert process_once().status == "acked"
    assert next_one() == ("skipped-idempotent", [])
