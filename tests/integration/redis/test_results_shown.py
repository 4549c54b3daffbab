"""How a job on Redis ended, in the admin: Redis keeps it, and no table does."""

import json
import uuid

import pytest
from django.core.management import call_command
from django.urls import reverse

from django_jobs import Cancel, job
from django_jobs.models import FailedJob
from django_jobs.operations.cancel import cancel
from django_jobs.operations.explain import explain
from django_jobs.worker.build import process_once
from testproject.shop.jobs import doomed

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db]
RESULTS = "/admin/django_jobs/jobresult/"


@job(key="shown.add")
def add(one, other):
    return one + other


@job(key="shown.cancelling")
def cancelling(why):
    print("printed")
    raise Cancel(why)


def page_of(job_id, table="jobresult"):
    return reverse(f"admin:django_jobs_{table}_change", args=[job_id])


def test_it_is_shown_as_a_result(jobs, admin_client):
    handle = add.enqueue(20, 22)
    assert process_once().status == "acked"
    shown = admin_client.get(page_of(handle.id))
    assert shown.status_code == 200
    for wanted in ("succeeded", "redis", "shown.add", "42", handle.id):
        assert wanted in shown.text, wanted


@pytest.mark.parametrize("way", ["the page of the job", "the search"])
def test_it_is_found_where_somebody_looks_for_it(jobs, admin_client, way):
    handle = add.enqueue(20, 22)
    live = page_of(handle.id, "job")
    assert "Why is it not running?" in admin_client.get(live).text
    process_once()
    url = live if way == "the page of the job" else f"{RESULTS}?q={handle.id}"
    answer = admin_client.get(url)
    assert (answer.status_code, answer["Location"]) == (302, page_of(handle.id))


def test_who_cancelled_it_stands_beside_it(jobs, admin_client):
    handle = add.using(delay=60).enqueue(1, 1)
    cancel(handle.id, by="ada", reason="of no use")
    shown = admin_client.get(page_of(handle.id)).text
    assert "cancelled" in shown
    assert "of no use" in shown


def test_why_its_handler_cancelled_it_is_told(jobs, admin_client, capsys):
    handle = cancelling.enqueue("nothing left to do")
    assert process_once().status == "cancelled"
    assert handle.reason == "nothing left to do"
    assert admin_client.get(page_of(handle.id)).text.count("nothing left to do") >= 1
    assert explain(handle.id).causes[0].text == "It was cancelled: nothing left to do"
    call_command("jobs_list", "--state", "cancelled", "--json")
    (listed,) = json.loads(capsys.readouterr().out)["jobs"]
    assert listed["reason"] == "nothing left to do"


def test_what_it_printed_is_never_taken_for_the_reason(jobs, admin_client):
    handle = cancelling.enqueue("")
    assert process_once().status == "cancelled"
    assert handle.reason == "the handler cancelled the job"
    assert "printed" not in explain(handle.id).causes[0].text


def test_what_it_was_given_is_for_those_who_may_see_it(jobs, someone):
    handle = add.enqueue(170417, 1)
    process_once()
    hidden = someone("view_jobresult").get(page_of(handle.id)).text
    assert "succeeded" in hidden
    assert "170417" not in hidden
    assert "170417" in someone("view_jobresult", "view_payload").get(page_of(handle.id)).text


def test_who_may_not_see_results_is_not_led_to_one(jobs, someone):
    handle = add.enqueue(1, 1)
    process_once()
    answer = someone("view_job").get(page_of(handle.id, "job"))
    assert answer["Location"] == "/admin/"
    assert someone("view_job").get(page_of(handle.id)).status_code == 403


def test_what_is_unknown_dead_or_away_is_shown_by_nobody(jobs, admin_client, settings):
    handle = doomed.enqueue()
    assert process_once().status == "dead-lettered"
    for job_id in (handle.id, str(uuid.uuid4())):
        for url in (page_of(job_id), page_of(job_id, "job")):
            assert admin_client.get(url)["Location"] == "/admin/"
        assert admin_client.get(RESULTS, {"q": job_id}).status_code == 200
    assert FailedJob.objects.count() <= 1
    nowhere = {"BACKEND": "django_jobs.backends.redis.RedisBackend"}
    nowhere["OPTIONS"] = {"URL": "redis://127.0.0.1:1/0"}
    settings.DJANGO_JOBS = {"BACKENDS": {"redis": nowhere}, "DEFAULT_BACKEND": "redis"}
    assert admin_client.get(page_of(handle.id))["Location"] == "/admin/"
