"""Why a handler cancelled its job can be read wherever the job is looked for."""

import pytest
from asgiref.sync import async_to_sync
from django.urls import reverse

from django_jobs import Cancel, job
from django_jobs.exceptions import JobFailed
from django_jobs.models import JobResult
from django_jobs.operations.explain import explain
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db
WHY = "the order was <b>withdrawn</b>"


@job(key="cancelled-reason.cancels")
def cancels(why=WHY):
    print("it printed this")
    raise Cancel(why)


@pytest.fixture
def handle():
    handle = cancels.enqueue()
    assert process_once().status == "cancelled"
    return handle


def test_the_handle_tells_it(handle):
    assert (handle.status, handle.reason) == ("cancelled", WHY)
    with pytest.raises(JobFailed) as failed:
        handle.result()
    assert failed.value.reason == WHY


@pytest.mark.django_db(transaction=True)
def test_the_handle_tells_it_in_a_coroutine(handle):
    assert async_to_sync(handle.areason)() == WHY


def test_what_it_printed_is_kept_apart(handle):
    assert JobResult.objects.get().output == f"{WHY}\nit printed this\n"


def test_of_a_reason_of_many_lines_nothing_is_lost():
    handle = cancels.enqueue("first\nsecond")
    process_once()
    assert handle.reason == "first second"


@pytest.mark.parametrize("why", ["", "\n"])
def test_what_it_printed_is_never_taken_for_the_reason(why):
    handle = cancels.enqueue(why)
    process_once()
    assert handle.reason == ("" if why else "the handler cancelled the job")
    assert JobResult.objects.get().output == f"{handle.reason}\nit printed this\n"
    assert "it printed" not in explain(handle.id).causes[0].text


def test_a_job_that_was_not_cancelled_has_none(handle):
    assert cancels.enqueue().reason == ""


def test_jobs_explain_tells_it(handle, run):
    (cause,) = explain(handle.id).causes
    assert cause.text.endswith(f": {WHY}")
    assert WHY in run("jobs_explain", handle.id).out
    assert WHY in run("jobs_explain", handle.id, "--json").json()["causes"][0]["text"]


def test_jobs_list_tells_it(handle, run):
    (listed,) = run("jobs_list", "--state", "cancelled", "--json").json()["jobs"]
    assert (listed["reason"], listed["error"]) == (WHY, None)
    assert "the order was" in run("jobs_list", "--state", "cancelled").out


def test_the_page_of_its_result_tells_it(handle, admin_client):
    page = reverse("admin:django_jobs_jobresult_change", args=[handle.id])
    shown = admin_client.get(page).content.decode()
    assert "the order was &lt;b&gt;withdrawn&lt;/b&gt;" in shown
