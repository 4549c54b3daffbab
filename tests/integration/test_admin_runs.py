"""The admin's pages for many dead letters: groups, runs, and what they ask before."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob, Job, OperatorEvent, ResolutionRun
from django_jobs.operations.bulk import advance, begin
from django_jobs.operations.cancel import cancel
from django_jobs.operations.dead_letters import Matching
from django_jobs.operations.queues import pause_queue
from testproject.shop.jobs import send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
LIST = "/admin/django_jobs/failedjob/"


def page_of(run):
    return reverse("admin:django_jobs_resolutionrun_change", args=[run.pk])


def act(client, run, name, **data):
    url = reverse(f"admin:django_jobs_resolutionrun_{name}", args=[run.pk])
    return client.post(url, data)


def token_in(page):
    return re.search(r'name="token" value="(\w+)"', page.text)[1]


class TestGroups:
    def test_show_counts_and_lead_to_their_dead_letters(self, admin_client):
        for _ in range(3):
            die(fingerprint="1" * 32)
        die(send_receipt.prepare(1), fingerprint="2" * 32, error_type="ValueError")
        page = admin_client.get(f"{LIST}groups/").text
        assert page.index("<strong>3</strong> open") < page.index("<strong>1</strong> open")
        assert f'?fingerprint={"1" * 32}"' in page
        listed = admin_client.get(LIST, {"fingerprint": "2" * 32})
        assert [row.queue for row in listed.context["cl"].result_list] == ["mail"]
        assert "ValueError in send_receipt (1)" in listed.text

    def test_without_open_ones_are_shown_on_demand(self, admin_client):
        failed = die()
        page = admin_client.get(f"{LIST}groups/")
        assert failed.fingerprint in page.text
        admin_client.post(f"{LIST}discard/", {"ids": failed.pk, "confirmed": "1"})
        assert "There are no open dead letters" in admin_client.get(f"{LIST}groups/").text
        everything = admin_client.get(f"{LIST}groups/", {"resolution": "all"}).text
        assert failed.fingerprint in everything

    def test_need_the_permission_to_look(self, someone):
        assert someone().get(f"{LIST}groups/").status_code == 403
        assert someone("view_failedjob").get(f"{LIST}groups/").status_code == 200


class TestSearch:
    def test_says_what_it_looked_at(self, admin_client, someone):
        failed = die(error_message="the gateway is away")
        found = admin_client.get(LIST, {"q": "gateway"})
        assert [row.pk for row in found.context["cl"].result_list] == [failed.pk]
        assert "errors, handlers and payloads as they are shown of all of this list" in found.text
        assert "Found by name" in admin_client.get(LIST, {"q": str(failed.job_id)}).text
        other = someone("view_failedjob").get(LIST, {"q": "gateway"}).text
        assert "errors and handlers of all of this list" in other

    def test_takes_few_queries(self, admin_client, someone, django_assert_max_num_queries):
        for _ in range(30):
            die()
        client = someone("view_failedjob", "replay_failedjob", "discard_failedjob")
        for query in (
            {}, {"q": "12345678 12345678 abc def"}, {"q": "not there at all"},
            {"queue": "default", "reason": "exhausted", "resolution": "all"}, {"p": "1"},
        ):  # fmt: skip
            with django_assert_max_num_queries(15):
                assert client.get(LIST, query).status_code == 200


@pytest.mark.parametrize("verb", ["replay", "discard"])
class TestBeginning:
    def test_asks_with_counts_and_conditions(self, admin_client, verb):
        die()
        die(send_receipt.prepare(1))
        page = admin_client.get(f"{LIST}{verb}-all/?queue=mail")
        assert f"{verb.capitalize()} all 1 dead letter?" in page.text
        assert ">mail</dd>" in page.text
        assert "Nothing narrows the list" in admin_client.get(f"{LIST}{verb}-all/").text
        assert not ResolutionRun.objects.exists()

    def test_begins_once_and_says_so_in_both_logs(self, admin_client, verb):
        letters = [die(), die()]
        url = f"{LIST}{verb}-all/?queue=default"
        data = {"reason": "<b>fixed</b>", "rate": "", "token": token_in(admin_client.get(url))}
        first, second = admin_client.post(url, data), admin_client.post(url, data)
        run = ResolutionRun.objects.get()
        assert first.url == second.url == page_of(run)
        entry = LogEntry.objects.get()
        assert entry.object_id == str(run.pk)
        assert "2 dead letters (queue default). Reason: <b>fixed</b>" in entry.change_message
        assert OperatorEvent.objects.get(action=f"{verb}-run").reason == "<b>fixed</b>"
        assert not FailedJob.objects.exclude(resolution="").exists()
        advance(run.pk)
        assert FailedJob.objects.exclude(resolution="").count() == len(letters)
        shown = admin_client.get(page_of(run)).text
        assert "&lt;b&gt;fixed&lt;/b&gt;" in shown

    def test_can_be_tried_out(self, admin_client, verb):
        forged = [die(), die(), die()][0]
        FailedJob.objects.filter(pk=forged.pk).update(name="another")
        url = f"{LIST}{verb}-all/"
        token = token_in(admin_client.get(url))
        page = admin_client.post(url, {"dry_run": "1", "rate": "5", "token": token}).text
        refused = 1 if verb == "replay" else 0
        assert f"{3 - refused} would be {verb}ed, {refused} would be refused" in page
        assert ("rejected-mismatch" in page) is (verb == "replay")
        assert 'value="5"' in page
        assert not ResolutionRun.objects.exists()
        assert not FailedJob.objects.exclude(resolution="").exists()

    def test_needs_its_own_permission(self, someone, verb):
        die()
        other = {"replay": "discard", "discard": "replay"}[verb]
        client = someone("view_failedjob", f"{other}_failedjob")
        url = f"{LIST}{verb}-all/"
        assert client.get(url).status_code == 403
        assert client.post(url, {"token": "t"}).status_code == 403
        assert f"{verb}-all" not in client.get(LIST).text
        assert not ResolutionRun.objects.exists()

    @pytest.mark.parametrize(
        "query",
        [
            "q=gateway",
            "reason=timed-out",
            "fingerprint=" + "3" * 32,
            "failed_at__gte=2001-01-01+00:00:00Z",
            "failed_at__lt=2001-01-01+00:00:00Z",
            "resolution=replayed",
            "p=1&o=2",
        ],
    )
    def test_means_what_the_list_shows(self, admin_client, verb, query):
        die(error_message="the gateway is away", reason="timed-out", fingerprint="3" * 32)
        die()
        matches = len(admin_client.get(f"{LIST}?{query}").context["cl"].result_list)
        page = admin_client.get(f"{LIST}{verb}-all/?{query}").text
        assert f"all {matches} dead letter" in page

    @pytest.mark.parametrize(
        "query", ["queue__startswith=m", "failed_at__gte=x", "failed_at__lt=2001-13-13", "x=1"]
    )
    def test_is_never_about_more_than_was_asked_for(self, admin_client, verb, query):
        die()
        answer = admin_client.post(f"{LIST}{verb}-all/?{query}", {"token": "t"})
        assert answer.url == LIST
        assert not ResolutionRun.objects.exists()


class TestRun:
    @pytest.fixture
    def run(self):
        for _ in range(3):
            die()
        return begin("replay", Matching(), by="me", reason="why not", rate=1000.0)

    def test_shows_how_far_it_is(self, admin_client, run):
        page = admin_client.get(page_of(run)).text
        assert 'max="3" value="0"' in page
        assert "The job that carries it on does not run just now" in page
        assert "no worker" in page.lower()
        assert "Replay 3 dead letters" in page
        advance(run.pk)
        page = admin_client.get(page_of(run)).text
        assert 'max="3" value="3"' in page
        assert "finished" in page
        assert "Replay 3" in admin_client.get("/admin/django_jobs/resolutionrun/").text

    def test_is_helped_along_by_its_page(self, admin_client, run):
        url = reverse("admin:django_jobs_resolutionrun_progress", args=[run.pk])
        assert admin_client.get(url).json()["dealt_with"] == 0
        told = admin_client.post(url).json()
        assert (told["dealt_with"], told["percent"]) == (3, 100)
        assert admin_client.get(url).json()["state"] == "finished"
        assert Job.objects.exclude(replay_of=None).count() == 3

    def test_can_be_stopped_with_a_reason(self, admin_client, run):
        act(admin_client, run, "stop", reason="enough")
        act(admin_client, run, "stop", reason="enough")
        run.refresh_from_db()
        assert run.state == "stopped"
        assert "Reason: enough" in LogEntry.objects.get().change_message
        assert "stopped by admin" in admin_client.get(page_of(run)).text

    def test_gets_a_job_again(self, admin_client, run):
        Job.objects.all().delete()
        act(admin_client, run, "carry")
        assert Job.objects.count() == 1

    def test_is_for_those_who_may(self, someone, run):
        looker = someone("view_failedjob")
        assert looker.get(page_of(run)).status_code == 200
        assert ">Stop<" not in looker.get(page_of(run)).text
        for name in ("progress", "stop", "carry"):
            assert act(looker, run, name).status_code == 403
            assert act(someone("view_failedjob", "discard_failedjob"), run, name).status_code == 403
        assert someone("replay_failedjob").get(page_of(run)).status_code == 403
        assert act(someone("view_failedjob", "replay_failedjob"), run, "stop").status_code == 302

    def test_is_changed_by_post_alone(self, admin_client, run):
        stop, carry = (
            reverse(f"admin:django_jobs_resolutionrun_{name}", args=[run.pk])
            for name in ("stop", "carry")
        )
        asked = admin_client.get(stop)
        assert "Stop the run?" in asked.text
        assert f'action="{stop}"' in asked.text
        assert f'href="{page_of(run)}" class="dj-cancel"' in asked.text
        assert admin_client.get(carry).status_code == 405
        run.refresh_from_db()
        assert run.state == "running"
        assert admin_client.post(page_of(run)).status_code == 405
        assert admin_client.get(page_of(ResolutionRun(pk=99))).status_code == 302


class TestWhatCarriesARun:
    def test_is_linked_and_explained_where_it_does_not_run(self, admin_client):
        die()
        run = begin("replay", Matching(), by="ada")
        pause_queue("default", by="bob", reason="the mail server moves")
        page = admin_client.get(page_of(run)).text
        assert "Workers carry it on" not in page
        assert "the mail server moves" in page
        assert reverse("admin:django_jobs_job_change", args=[run.carrier]) in page

    def test_is_said_to_be_over(self, admin_client):
        die()
        run = begin("replay", Matching(), by="ada")
        cancel(run.carrier, by="bob")
        page = admin_client.get(page_of(run)).text
        assert "The job that carried it on is over" in page
        assert "Wake the workers" in page

    def test_is_nothing_to_worry_about_while_it_runs(self, admin_client):
        die()
        run = begin("replay", Matching(), by="ada")
        assert backends["database"].fetch(["default"], 1, 30)
        assert "Workers carry it on" in admin_client.get(page_of(run)).text

    def test_is_not_linked_for_who_may_not_see_jobs(self, someone):
        die()
        run = begin("replay", Matching(), by="ada")
        page = someone("view_failedjob").get(page_of(run)).text
        assert run.carrier in page
        assert reverse("admin:django_jobs_job_change", args=[run.carrier]) not in page
