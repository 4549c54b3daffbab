"""The dead letters of a second database: listed, read, replayed and run through where they are.

Dead letters are numbered, in each database from one on. So the same numbers are in both here,
and every page has to say which it is about.
"""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_jobs.models import FailedJob, Job, OperatorEvent, ResolutionRun
from django_jobs.operations.bulk import begin
from django_jobs.operations.dead_letters import Matching
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db(databases=["default", "other"])
DATABASE = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}
LIST = "/admin/django_jobs/failedjob/"
RUNS = "/admin/django_jobs/resolutionrun/"
THERE = {"database": "other"}


@pytest.fixture(autouse=True)
def site(settings):
    second = {**DATABASE, "OPTIONS": {"DATABASE": "other"}}
    settings.DJANGO_JOBS = {"BACKENDS": {"database": DATABASE, "second": second}}


@pytest.fixture
def both():
    """One here and one there, of the same number."""
    here = die(error_message="it died here")
    there = die(doomed.using(backend="second").prepare(), "second", error_message="it died there")
    FailedJob.objects.using("other").filter(pk=there.pk).update(id=here.pk)
    return here, FailedJob.objects.using("other").get()


def links(answer):
    return [
        one.replace("&amp;", "&") for one in re.findall(r'(?:href|action)="([^"]*)"', answer.text)
    ]


def follow(client, answer, part):
    """The page behind the link of a page that has these words in it."""
    (found,) = {one for one in links(answer) if part in one}
    return client.get(found if found.startswith("/") else answer.request["PATH_INFO"] + found)


def send(client, answer, **data):
    """The form of a page, sent to where it goes."""
    (action,) = re.findall(
        r'<form method="post" action="([^"]*admin/django_jobs[^"]*)"', answer.text
    )
    return client.post(action.replace("&amp;", "&"), {"confirmed": "1", **data}, follow=True)


def test_there_is_a_choice_and_the_first_is_the_one_without_it(admin_client, both):
    page = admin_client.get(LIST)
    assert "it died here" in page.text
    assert "it died there" not in page.text
    assert "By database" in page.text
    page = admin_client.get(LIST, THERE)
    assert "it died there" in page.text
    assert "it died here" not in page.text


def test_one_is_read_where_it_is(admin_client, both):
    listed = admin_client.get(LIST, THERE)
    page = follow(admin_client, listed, f"/{both[1].pk}/change/")
    assert "it died there" in page.text
    assert "Attempts are" not in page.text
    for part in ("/replay/", "/edit/", "/discard/", "/history/", "fingerprint="):
        (found,) = [one for one in links(page) if part in one]
        assert "database=other" in found, part


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_one_is_resolved_where_it_is(admin_client, both, verb):
    here, there = both
    page = follow(admin_client, admin_client.get(LIST, THERE), f"/{there.pk}/change/")
    asked = follow(admin_client, page, f"/{verb}/")
    told = send(admin_client, asked, ids=there.pk, reason="it is over there")
    assert "it died there" in told.text, "it comes back to the same dead letter"
    for letter, expected in ((here, ""), (there, f"{verb}ed")):
        letter.refresh_from_db()
        assert letter.resolution == expected
    assert Job.objects.using("other").count() == (verb == "replay")
    assert not Job.objects.exists()
    assert OperatorEvent.objects.using("other").get().reason == "it is over there"
    entry = LogEntry.objects.get()
    assert "In the database other. Reason: it is over there" in entry.change_message


def test_several_are_chosen_in_the_list(admin_client, both):
    data = {"action": "discard_selected", "_selected_action": [both[1].pk]}
    asked = admin_client.post(f"{LIST}?database=other", data)
    told = send(admin_client, asked, ids=both[1].pk, filters="database=other")
    assert "1 dead letter discarded." in told.text
    assert FailedJob.objects.get().resolution == ""
    assert FailedJob.objects.using("other").get().resolution == "discarded"


def test_one_is_replayed_with_other_arguments(admin_client):
    die()
    there = die(send_receipt.using(backend="second", queue="far").prepare(order_id=1), "second")
    edit = reverse("admin:django_jobs_failedjob_edit", args=[there.pk]) + "?database=other"
    payload = '{"args": [], "kwargs": {"order_id": 2}}'
    answer = admin_client.post(edit, {"payload": payload, "reason": "it was 2"})
    assert answer.status_code == 302
    assert "database=other" in answer["Location"]
    assert '"order_id":2' in Job.objects.using("other").get().body.replace(" ", "")


def test_its_groups_lead_to_it(admin_client, both):
    FailedJob.objects.all().delete()
    groups = follow(admin_client, admin_client.get(LIST, THERE), "/groups/")
    found = [one for one in links(groups) if "fingerprint=" in one]
    assert len(found) == 3
    assert all("database=other" in one for one in found)
    listed = admin_client.get(next(one for one in found if "-all" not in one))
    assert "it died there" in listed.text


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_all_of_a_list_are_run_through_there(admin_client, both, verb):
    asked = follow(admin_client, admin_client.get(LIST, THERE), f"/{verb}-all/")
    assert "all 1 dead letter" in asked.text
    token = re.search('name="token" value="([^"]+)"', asked.text)[1]
    page = send(admin_client, asked, token=token, reason="all of them")
    run = ResolutionRun.objects.using("other").get()
    assert not ResolutionRun.objects.exists()
    progress = re.search('data-url="([^"]+)"', page.text)[1]
    assert admin_client.post(progress).json()["state"] == "finished"
    run.refresh_from_db()
    assert (run.done, run.dealt_with) == (1, 1)
    assert FailedJob.objects.get().resolution == ""
    assert "In the database other." in LogEntry.objects.get(object_id=str(run.pk)).change_message


def test_its_runs_are_listed_and_stopped(admin_client, both):
    begin("discard", Matching(), by="me", using="default")
    run = begin("discard", Matching(), by="me", using="other")
    listed = follow(admin_client, admin_client.get(LIST, THERE), f"{RUNS}?")
    assert [row.pk for row in listed.context["cl"].result_list] == [run.pk]
    page = follow(admin_client, listed, f"{RUNS}{run.pk}/change/")
    (stop,) = [one for one in links(page) if "/stop/" in one]
    told = admin_client.post(stop, {"reason": "wrong ones"}, follow=True)
    assert "What it did stays done" in told.text
    run.refresh_from_db()
    assert run.state == "stopped"
    assert ResolutionRun.objects.get().state == "running"


def test_the_overview_leads_to_it(admin_client, both):
    page = admin_client.get("/admin/django_jobs/overview/")
    assert f"{LIST}?queue=default&database=other" in links(page)
