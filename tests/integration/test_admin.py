"""The admin: what is listed, who may do what, and that it is done once."""

import re
import uuid
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_jobs.admin import actions, jobs, records
from django_jobs.admin.base import CappedPaginator
from django_jobs.models import FailedJob, Job, JobResult, OperatorEvent
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db

LIST = "/admin/django_jobs/failedjob/"
TABLES = ["failedjob", "job", "jobresult", "jobattempt", "operatorevent", "queuecontrol"]


def page_of(failed):
    return reverse("admin:django_jobs_failedjob_change", args=[failed.pk])


def url_of(verb):
    return reverse(f"admin:django_jobs_failedjob_{verb}")


def confirm(client, verb, *letters, reason="", follow=True):
    data = {"ids": [letter.pk for letter in letters], "confirmed": "1", "reason": reason}
    return client.post(url_of(verb), data, follow=follow)


def said(answer):
    return [str(message) for message in answer.context["messages"]]


class TestList:
    def test_shows_what_one_looks_for(self, admin_client):
        die()
        shown = admin_client.get(LIST).text
        for wanted in (
            "doomed",
            "testproject.shop.jobs",
            "default",
            "exhausted",
            "RuntimeError: this handler never succeeds",
            "just now",
            "open",
        ):
            assert wanted in shown

    def test_takes_few_queries(self, admin_client, django_assert_max_num_queries):
        for _ in range(30):
            die()
        with django_assert_max_num_queries(15):
            admin_client.get(LIST)

    def test_shows_open_ones_unless_asked_otherwise(self, admin_client):
        die()
        resolved = die(send_receipt.prepare(1))
        FailedJob.objects.filter(pk=resolved.pk).update(resolution="discarded")

        def listed(query):
            return {row.queue for row in admin_client.get(LIST + query).context["cl"].result_list}

        assert listed("") == {"default"}
        assert listed("?resolution=discarded") == {"mail"}
        assert listed("?resolution=all") == {"default", "mail"}
        assert listed("?resolution=replayed") == set()
        assert listed(f"?q={resolved.job_id}") == {"mail"}

    @pytest.mark.parametrize("name", ["queue", "handler", "reason"])
    def test_filters(self, admin_client, name):
        die()
        other = die(send_receipt.prepare(1), reason="timed-out")
        value = getattr(other, name)
        page = admin_client.get(LIST, {name: value})
        assert [row.pk for row in page.context["cl"].result_list] == [other.pk]
        assert not admin_client.get(LIST, {name: "nobody"}).context["cl"].result_list

    def test_finds_by_id_trace_and_fingerprint(self, admin_client):
        die()
        wanted = die(doomed.using(trace_id="cafe-trace").prepare(), fingerprint="abc123" * 10)

        def found(word):
            return [row.pk for row in admin_client.get(LIST, {"q": word}).context["cl"].result_list]

        job_id = str(wanted.job_id)
        for word in (job_id, job_id.replace("-", ""), job_id.upper(), job_id[:-2]):
            assert found(word) == [wanted.pk], word
        for word in (str(wanted.pk), "cafe-trace", "cafe", "abc123abc", "cafe abc"):
            assert found(word) == [wanted.pk], word
        assert len(found(job_id[:8])) == 2
        FailedJob.objects.filter(pk=wanted.pk).update(
            trace_id="4bf92f35" * 4, fingerprint="ab" * 32
        )
        for word in ("4bf92f35" * 4, "ab" * 32, "4bf92f354b"):
            assert found(word) == [wanted.pk], word
        assert found("elephant") == []
        assert found("9" * 40) == []

    def test_never_counts_to_the_end(self, admin_client, monkeypatch):
        monkeypatch.setattr(CappedPaginator, "limit", 3)
        for _ in range(5):
            die()
        page = admin_client.get(LIST)
        assert page.context["cl"].result_count == 3
        assert "there may be more" in page.text
        monkeypatch.setattr(CappedPaginator, "limit", 300)
        assert "there may be more" not in admin_client.get(LIST).text


class TestOtherTables:
    def test_find_their_rows_by_job_and_trace(self, admin_client):
        handle = doomed.using(trace_id="t-1", delay=3600).enqueue()
        doomed.enqueue()
        died = die()

        def found(table, word):
            url = reverse(f"admin:django_jobs_{table}_changelist")
            return len(admin_client.get(url, {"q": word}).context["cl"].result_list)

        assert [found("job", word) for word in (handle.id, "t-1", "t")] == [1, 1, 0]
        assert found("jobattempt", str(died.job_id)) == 1
        assert found("jobattempt", "t-1") == 0

    def test_look_for_a_trace_among_the_latest_jobs(self, admin_client, monkeypatch):
        monkeypatch.setattr(records, "TRACES_AMONG", 2)
        for trace in ("t-1", "t-2", "t-3"):
            doomed.using(trace_id=trace).enqueue()
        url = reverse("admin:django_jobs_job_changelist")
        found = [
            len(admin_client.get(url, {"q": word}).context["cl"].result_list)
            for word in ("t-1", "t-2", "t-3")
        ]
        assert found == [0, 1, 1]

    @pytest.mark.parametrize("few", [0, 1, 2])
    def test_find_a_state_that_few_jobs_have_and_one_that_many_have(
        self, admin_client, monkeypatch, few
    ):
        monkeypatch.setattr(jobs, "FEW", few)
        ids = {doomed.using(queue=queue).enqueue().id for queue in ("a", "b")}
        doomed.using(delay=3600).enqueue()
        url = reverse("admin:django_jobs_job_changelist")
        found = admin_client.get(url, {"state": "ready"}).context["cl"].result_list
        assert {str(job.pk) for job in found} == ids

    def test_say_when_a_job_is_due(self, admin_client):
        doomed.using(delay=3700).enqueue()
        listed = admin_client.get(reverse("admin:django_jobs_job_changelist")).text
        assert "in 1\xa0hour" in listed
        assert "scheduled" in listed

    def test_show_results(self, admin_client):
        now = timezone.now()
        result = JobResult.objects.create(
            job_id=uuid.uuid4(),
            backend="database",
            queue="mail",
            handler="h",
            status="succeeded",
            value="no json",
            started_at=now,
            finished_at=now + timedelta(seconds=2),
            expires=0,
        )
        listed = admin_client.get(reverse("admin:django_jobs_jobresult_changelist")).text
        assert "2.000 s" in listed
        page = reverse("admin:django_jobs_jobresult_change", args=[result.pk])
        assert "no json" not in admin_client.get(page).text


class TestPermissions:
    @pytest.mark.parametrize("table", TABLES)
    def test_to_look_at_a_table(self, someone, table):
        url = reverse(f"admin:django_jobs_{table}_changelist")
        assert someone(f"view_{table}").get(url).status_code == 200
        assert someone().get(url).status_code == 403
        assert Client().get(url).status_code == 302

    @pytest.mark.parametrize("table", TABLES)
    def test_nobody_adds_changes_or_deletes(self, admin_client, table):
        assert admin_client.get(reverse(f"admin:django_jobs_{table}_add")).status_code == 403
        failed = die()
        for view in ("delete", "change"):
            url = reverse(f"admin:django_jobs_failedjob_{view}", args=[failed.pk])
            assert admin_client.post(url, {"post": "yes"}).status_code in {403, 405}
        assert FailedJob.objects.exists()

    @pytest.mark.parametrize("verb", ["replay", "discard"])
    def test_to_resolve(self, someone, verb):
        failed = die()
        other = {"replay": "discard", "discard": "replay"}[verb]
        for codenames in (["view_failedjob"], ["view_failedjob", f"{other}_failedjob"]):
            client = someone(*codenames)
            assert client.get(url_of(verb), {"ids": failed.pk}).status_code == 403
            assert confirm(client, verb, failed).status_code == 403
            assert f"{verb.capitalize()}…" not in client.get(page_of(failed)).text
            assert f"{verb}_selected" not in client.get(LIST).text
        assert confirm(someone(f"{verb}_failedjob"), verb, failed).status_code == 403
        failed.refresh_from_db()
        assert failed.resolution == ""
        client = someone("view_failedjob", f"{verb}_failedjob")
        assert f"{verb.capitalize()}…" in client.get(page_of(failed)).text
        assert f"{verb}_selected" in client.get(LIST).text
        assert confirm(client, verb, failed).status_code == 200
        failed.refresh_from_db()
        assert failed.resolution.startswith(verb)

    def test_a_post_needs_its_token(self, admin_user):
        client = Client(enforce_csrf_checks=True)
        client.force_login(admin_user)
        failed = die()
        assert confirm(client, "replay", failed).status_code == 403
        assert not Job.objects.exists()
        page = client.get(url_of("replay"), {"ids": failed.pk})
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)[1]
        data = {"ids": failed.pk, "confirmed": "1", "csrfmiddlewaretoken": token}
        assert client.post(url_of("replay"), data).status_code == 302
        assert Job.objects.exists()


class TestResolving:
    @pytest.mark.parametrize("verb", ["replay", "discard"])
    def test_asks_first(self, admin_client, verb):
        failed, other = die(), die(send_receipt.prepare(1))
        selected = {"action": f"{verb}_selected", "_selected_action": [failed.pk, other.pk]}
        page = admin_client.post(LIST, selected)
        assert f"{verb.capitalize()} 2 dead letters?" in page.text
        for wanted in ("testproject.shop.jobs.doomed", "testproject.shop.jobs.send_receipt"):
            assert wanted in page.text
        assert not FailedJob.objects.exclude(resolution="").exists()
        assert admin_client.get(url_of(verb), {"ids": failed.pk}).status_code == 200
        assert not FailedJob.objects.exclude(resolution="").exists()

    def test_replays_and_says_so_everywhere(self, admin_client, admin_user):
        failed = die()
        answer = confirm(admin_client, "replay", failed, reason="server <b>fixed</b>")
        failed.refresh_from_db()
        job, entry = Job.objects.get(), LogEntry.objects.get()
        assert answer.redirect_chain == [(page_of(failed), 302)]
        assert said(answer) == ["1 dead letter replayed as a new job."]
        assert (failed.replayed_as, failed.resolved_by) == (job.pk, admin_user.username)
        assert failed.resolution_note == "server <b>fixed</b>"
        assert entry.object_id == str(failed.pk)
        for wanted in (f"Replayed as {job.pk}", "it was open", "server <b>fixed</b>"):
            assert wanted in entry.get_change_message()
        history = admin_client.get(reverse("admin:django_jobs_failedjob_history", args=[failed.pk]))
        assert "server &lt;b&gt;fixed&lt;/b&gt;" in history.text

    def test_pressed_twice_is_done_once(self, admin_client):
        failed = die()
        confirm(admin_client, "replay", failed)
        answer = confirm(admin_client, "replay", failed)
        assert said(answer) == ["1 dead letter had been replayed before; no second job was made."]
        answer = confirm(admin_client, "discard", failed)
        assert said(answer) == ["1 dead letter had been replayed before and cannot be discarded."]
        assert Job.objects.count() == LogEntry.objects.count() == 1
        assert OperatorEvent.objects.count() == 1

    def test_discards(self, admin_client):
        letters = [die(), die(send_receipt.prepare(1))]
        answer = confirm(admin_client, "discard", *letters, reason="obsolete")
        assert said(answer) == ["2 dead letters discarded."]
        assert answer.redirect_chain == [(LIST, 302)]
        assert set(FailedJob.objects.values_list("resolution", flat=True)) == {"discarded"}
        assert {entry.object_id for entry in LogEntry.objects.all()} == {
            str(letter.pk) for letter in letters
        }
        answer = confirm(admin_client, "replay", letters[0])
        assert said(answer) == ["1 dead letter had been discarded before and cannot be replayed."]

    def test_counts_on_its_button_what_will_be_done(self, admin_client):
        fine, forged = die(), die()
        FailedJob.objects.filter(pk=forged.pk).update(name="another")
        page = admin_client.get(url_of("replay"), {"ids": [fine.pk, forged.pk]}).text
        assert re.search(r"<button[^>]*>\s*Replay 1 dead letter\s*</button>", page)
        page = admin_client.get(url_of("discard"), {"ids": [fine.pk, forged.pk]}).text
        assert re.search(r"<button[^>]*>\s*Discard 2 dead letters\s*</button>", page)
        page = admin_client.get(url_of("replay"), {"ids": [forged.pk]}).text
        assert "cannot be replayed as things are" in page
        assert not re.search(r"<button[^>]*>\s*Replay", page)

    def test_tells_each_outcome_apart(self, admin_client):
        fine, forged, resolved = die(), die(), die()
        FailedJob.objects.filter(pk=forged.pk).update(name="another")
        confirm(admin_client, "replay", resolved)
        answer = confirm(admin_client, "replay", fine, forged, resolved)
        told = said(answer)
        assert "1 dead letter replayed as a new job." in told
        assert "1 dead letter had been replayed before; no second job was made." in told
        assert "1 dead letter cannot be replayed." in told
        assert any(str(forged.job_id) in line and "rejected-mismatch" in line for line in told)

    def test_returns_to_the_list_as_it_was_filtered(self, admin_client):
        letters = [die(), die()]
        selected = {
            "action": "discard_selected",
            "_selected_action": [letter.pk for letter in letters],
        }
        page = admin_client.post(f"{LIST}?queue=default&q=", selected)
        assert 'name="filters" value="queue=default&amp;q="' in page.text
        answer = admin_client.post(
            url_of("discard"),
            {
                "ids": [letter.pk for letter in letters],
                "confirmed": "1",
                "filters": "queue=default&x=\r\nSet-Cookie: a=b",
            },
        )
        assert answer.url.startswith(f"{LIST}?queue=default&")
        assert "\n" not in answer.url

    @pytest.mark.parametrize("verb", ["replay", "discard"])
    def test_too_many_are_refused(self, admin_client, monkeypatch, verb):
        monkeypatch.setattr(actions, "MOST_AT_ONCE", 1)
        answer = confirm(admin_client, verb, die(), die())
        assert said(answer) == ["At most 1 at a time can be handled here."]
        assert not FailedJob.objects.exclude(resolution="").exists()

    def test_all_of_a_list_are_a_run(self, admin_client):
        letters = [die() for _ in range(3)]
        selected = {
            "action": "replay_selected",
            "select_across": "1",
            "_selected_action": [letters[0].pk],
        }
        answer = admin_client.post(f"{LIST}?queue=default", selected)
        assert answer.url == f"{LIST}replay-all/?queue=default"

    @pytest.mark.parametrize("ids", [[], ["x"], ["4711"], ["9" * 30]])
    def test_of_nothing_says_so(self, admin_client, ids):
        answer = admin_client.post(url_of("replay"), {"ids": ids, "confirmed": "1"}, follow=True)
        assert said(answer) == ["None of these dead letters exists any more."]

    def test_a_reason_that_is_too_long_is_asked_for_again(self, admin_client):
        failed = die()
        answer = confirm(admin_client, "replay", failed, reason="x" * 1001)
        assert "at most 1000 characters" in answer.text
        assert not Job.objects.exists()


@pytest.mark.django_db(databases=["default", "other"])
class TestAnotherDatabase:
    """Jobs apart from the site's own tables, and no router that says so."""

    @pytest.fixture(autouse=True)
    def _jobs_apart(self, settings):
        path = "django_jobs.backends.database.DatabaseBackend"
        backend = {"BACKEND": path, "OPTIONS": {"DATABASE": "other"}}
        settings.DJANGO_JOBS = {"BACKENDS": {"database": backend}}

    def test_is_where_the_admin_looks_and_acts(self, admin_client):
        failed = die()
        assert failed._state.db == "other"
        assert len(admin_client.get(LIST).context["cl"].result_list) == 1
        assert "Replay…" in admin_client.get(page_of(failed)).text
        answer = confirm(admin_client, "replay", failed, reason="because")
        assert said(answer) == ["1 dead letter replayed as a new job."]
        assert Job.objects.using("other").count() == 1
        assert OperatorEvent.objects.using("other").count() == 1
        assert not FailedJob.objects.using("default").exists()
        assert "Reason: because" in LogEntry.objects.get().get_change_message()
        confirm(admin_client, "replay", failed)
        assert LogEntry.objects.count() == 1
