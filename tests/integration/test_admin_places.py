"""The admin where jobs are in several databases, and with brokers."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_jobs import enqueue_many
from django_jobs.admin import actions
from django_jobs.admin.base import jobs_url
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.registry import backends
from django_jobs.models import Job, OperatorEvent, QueueControl, Worker
from django_jobs.operations.cancel import cancel
from django_jobs.operations.explain import explain
from django_jobs.operations.overview import overview
from django_jobs.operations.queues import limit_queue, pause_queue
from django_jobs.worker.duties import Presence
from testproject.shop.jobs import doomed
from tests.integration.operations.dying import die

DATABASE = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}
OVERVIEW = "/admin/django_jobs/overview/"


class Broker(MemoryBackend):
    """A backend without tables that names its queues."""

    def __init__(self, *args):
        super().__init__(*args)
        self.by_hand = set()

    def queues(self):
        return sorted({job.queue for job in self.jobs.values()})

    def peek(self, queue, limit=20):
        seen = super().peek(queue, limit)
        return [one._replace(id="x") if one.id in self.by_hand else one for one in seen]


def said(answer):
    return [str(message) for message in answer.context["messages"]]


def post(client, name, *ids, **data):
    url = reverse(f"admin:django_jobs_{name}")
    return client.post(url, {"ids": ids, "confirmed": "1", **data}, follow=True)


@pytest.mark.django_db(databases=["default", "other"])
class TestASecondDatabase:
    @pytest.fixture(autouse=True)
    def site(self, settings):
        settings.DJANGO_JOBS = {
            "BACKENDS": {
                "database": DATABASE,
                "second": {**DATABASE, "OPTIONS": {"DATABASE": "other"}},
            }
        }

    @pytest.fixture
    def waiting(self):
        return doomed.using(backend="second", queue="far").enqueue()

    @pytest.fixture
    def worker(self):
        Presence(backends["second"], "far", processes=2).write()
        return Worker.objects.using("other").get()

    def test_the_numbers_of_the_overview_lead_to_its_jobs(self, admin_client, waiting):
        link = jobs_url("second", "far", "ready")
        assert link.replace("&", "&amp;") in admin_client.get(OVERVIEW).text
        page = admin_client.get(link)
        assert [str(job.pk) for job in page.context["cl"].result_list] == [waiting.id]
        assert "By database" in page.text

    def test_its_jobs_are_shown_and_cancelled(self, admin_client, waiting):
        page = admin_client.get(reverse("admin:django_jobs_job_change", args=[waiting.id]))
        assert "no worker" in page.text.lower()
        assert said(post(admin_client, "job_cancel", waiting.id)) == ["1 cancelled."]
        assert not Job.objects.using("other").exists()
        assert LogEntry.objects.get().object_id == waiting.id

    def test_its_workers_are_listed_and_drained(self, admin_client, worker):
        page = admin_client.get("/admin/django_jobs/worker/", {"database": "other"})
        assert [row.pk for row in page.context["cl"].result_list] == [worker.pk]
        assert said(post(admin_client, "worker_drain", worker.pk)) == ["1 asked to drain."]
        worker.refresh_from_db()
        assert worker.draining

    def test_its_workers_can_be_drained_from_the_list(self, admin_client, worker):
        answer = admin_client.post(
            "/admin/django_jobs/worker/?database=other",
            {"action": "drain_selected", "_selected_action": [worker.pk]},
        )
        assert str(worker.pk) in answer.text

    def test_a_row_of_its_lists_is_looked_at_where_it_is(self, admin_client):
        pause_queue("near", by="ada", reason="in the first")
        pause_queue("far", by="ada", reason="in the second", backend="second")
        key = QueueControl.objects.get().pk
        QueueControl.objects.using("other").update(id=key)
        page = admin_client.get("/admin/django_jobs/queuecontrol/", {"database": "other"})
        assert "in the second" in page.text
        url = reverse("admin:django_jobs_queuecontrol_change", args=[key])
        told = admin_client.get(url, {"_changelist_filters": "database=other"}).text
        assert "in the second" in told
        assert "in the first" in admin_client.get(url, {"_changelist_filters": "database=no"}).text

    def test_what_holds_there_is_known_before_it_is_resumed(self, admin_client):
        pause_queue("far", by="ada", backend="second")
        page = admin_client.get(
            reverse("admin:django_jobs_queuecontrol_resume"), {"ids": "second/far"}
        )
        assert "paused" in page.text
        assert said(post(admin_client, "queuecontrol_resume", "second/far")) == ["1 resumed."]

    def test_a_rate_is_not_counted_anew_by_the_next_database(self):
        limit_queue("near", {"rate_limit": "60/m"}, by="ada")
        doomed.using(queue="near").enqueue()
        assert len(backends["database"].fetch(["near"], 1, 30)) == 1
        (near,) = (depth for depth in overview() if depth.queue == "near")
        assert (near.used, near.rate) == (1, "60/m")


@pytest.mark.django_db
class TestABroker:
    @pytest.fixture(autouse=True)
    def site(self, settings):
        settings.DJANGO_JOBS = {
            "BACKENDS": {
                "database": DATABASE,
                "broker": {"BACKEND": f"{__name__}.Broker"},
            }
        }

    @pytest.fixture
    def waiting(self):
        return doomed.using(backend="broker", queue="far", delay=600).enqueue()

    def test_its_jobs_are_found_from_the_overview(self, admin_client, waiting):
        link = jobs_url("broker", "far", "scheduled")
        assert link.replace("&", "&amp;") in admin_client.get(OVERVIEW).text
        page = admin_client.get(link).text
        assert reverse("admin:django_jobs_job_change", args=[waiting.id]) in page
        assert waiting.id not in admin_client.get(jobs_url("broker", "far", "ready")).text

    def test_what_has_no_proper_id_hides_no_other(self, admin_client, waiting):
        alien = doomed.using(backend="broker", queue="far").enqueue()
        backends["broker"].by_hand.add(alien.id)
        page = admin_client.get(jobs_url("broker", "far"))
        assert page.status_code == 200
        assert waiting.id in page.text

    def test_its_queues_lead_to_them(self, admin_client):
        pause_queue("far", by="ada", backend="broker")
        shown = admin_client.get("/admin/django_jobs/queuecontrol/").text
        assert jobs_url("broker", "far").replace("&", "&amp;") in shown

    def test_its_jobs_are_explained_and_cancelled(self, admin_client, waiting):
        pause_queue("far", by="ada", reason="moving", backend="broker")
        page = admin_client.get(reverse("admin:django_jobs_job_change", args=[waiting.id])).text
        assert "not due until" in page
        assert "moving" in page
        assert said(post(admin_client, "job_cancel", waiting.id, reason="why")) == ["1 cancelled."]
        assert not backends["broker"].jobs
        assert OperatorEvent.objects.filter(action="cancel", subject=waiting.id).exists()
        assert LogEntry.objects.get().object_id == waiting.id

    def test_one_that_ended_is_not_there(self, admin_client, waiting):
        backends["broker"].cancel(waiting.id)
        url = reverse("admin:django_jobs_job_change", args=[waiting.id])
        assert admin_client.get(url).status_code == 302

    @pytest.mark.parametrize("backend", ["database", "nowhere", ""])
    def test_no_other_backend_is_asked(self, admin_client, backend):
        page = admin_client.get(jobs_url("broker", "far"), {"backend": backend})
        assert "There is no broker" in page.text

    def test_needs_the_permission_to_see_jobs(self, client, django_user_model):
        client.force_login(django_user_model.objects.create_user("eve", is_staff=True))
        assert client.get(jobs_url("broker", "far")).status_code == 403

    def test_a_rate_that_it_counts_itself_is_not_said_to_be_unused(self, admin_client):
        limit_queue("far", {"rate_limit": "60/m"}, by="ada", backend="broker")
        (far,) = (depth for depth in overview() if depth.queue == "far")
        assert (far.rate, far.used) == ("60/m", None)
        assert "rate: 60/m" in admin_client.get(OVERVIEW).text

    def test_what_runs_there_is_said_in_the_words_of_the_database(self):
        doomed.using(backend="broker", queue="far").enqueue()
        (lease,) = backends["broker"].fetch(["far"], 1, 30)
        assert [cause.kind for cause in explain(lease.id).causes] == ["leased"]


@pytest.mark.django_db
class TestWhoCalledAJobOff:
    @pytest.fixture
    def cancelled(self):
        handle = doomed.enqueue()
        cancel(handle.id, by="ada", reason="ordered <b>twice</b>")
        cancel(doomed.enqueue().id, by="bob", reason="another")
        return reverse("admin:django_jobs_jobresult_change", args=[handle.id])

    def test_stands_on_the_page_of_its_result(self, admin_client, cancelled):
        page = admin_client.get(cancelled).text
        assert "by ada" in page
        assert "ordered &lt;b&gt;twice&lt;/b&gt;" in page
        assert "by bob" not in page
        event = OperatorEvent.objects.get(actor="ada")
        assert reverse("admin:django_jobs_operatorevent_change", args=[event.pk]) in page

    def test_is_for_those_who_may_see_the_events(self, client, django_user_model, cancelled):
        user = django_user_model.objects.create_user("eve", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_jobresult"))
        client.force_login(user)
        page = client.get(cancelled)
        assert page.status_code == 200
        assert "ada" not in page.text


@pytest.mark.django_db
def test_too_many_are_refused_without_being_read(admin_client, monkeypatch):
    monkeypatch.setattr(actions, "MOST_AT_ONCE", 2)
    enqueue_many([doomed.prepare() for _ in range(5)])
    data = {"action": "cancel_selected", "select_across": "1", "_selected_action": ["x"]}
    with CaptureQueriesContext(connection) as sent:
        answer = admin_client.post("/admin/django_jobs/job/", data, follow=True)
    assert said(answer) == ["At most 2 at a time can be handled here."]
    keys = [query["sql"] for query in sent.captured_queries if query["sql"].endswith("LIMIT 3")]
    assert len(keys) == 1


@pytest.mark.django_db
def test_times_say_of_which_zone_they_are(admin_client, settings):
    settings.TIME_ZONE = "Europe/Paris"
    job, dead, cancelled = doomed.enqueue(), die(), doomed.enqueue()
    cancel(cancelled.id, by="ada")
    for page, key in (("job", job.id), ("failedjob", dead.pk), ("jobresult", cancelled.id)):
        text = admin_client.get(reverse(f"admin:django_jobs_{page}_change", args=[key])).text
        told = re.findall(r"\b\d?\d(?::\d\d)? (?:a\.m\.|p\.m\.)[^<]{0,6}", text)
        assert told
        assert all(re.search(r"CES?T", one) for one in told), told
