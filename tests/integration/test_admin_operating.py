"""The admin beside dead letters: jobs, queues, workers and the overview, and what they do."""

import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_jobs import enqueue_many
from django_jobs.backends.registry import backends
from django_jobs.models import Job, OperatorEvent, QueueControl, QueueMinute, Worker
from django_jobs.operations.overview import overview
from django_jobs.operations.queues import pause_queue, queue_settings
from django_jobs.worker.duties import Presence
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
OVERVIEW = "/admin/django_jobs/overview/"
LIVE = "/admin/django_jobs/job/"
MARK = "<script>alert({})</script>\"'><img src=x onerror=alert({})>{{{{7919|add:7919}}}}"


@pytest.fixture
def someone():
    """A member of staff with these permissions and no others, logged in."""

    def log_in(*codenames, csrf=False):
        user = User.objects.create_user(f"user-{uuid.uuid4().hex[:8]}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client = Client(enforce_csrf_checks=csrf)
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def worker():
    Presence(backends["database"], "every queue", processes=2).write()
    return Worker.objects.get()


def url_of(verb):
    page = {"cancel": "job", "drain": "worker"}.get(verb, "queuecontrol")
    return reverse(f"admin:django_jobs_{page}_{verb}")


def post(client, verb, *ids, **data):
    return client.post(url_of(verb), {"ids": ids, "confirmed": "1", **data}, follow=True)


def said(answer):
    return [str(message) for message in answer.context["messages"]]


def subject_of(verb, worker):
    if verb == "cancel":
        return str(doomed.enqueue().id)
    return str(worker.pk) if verb == "drain" else "database/mail"


PERMISSIONS = {
    "cancel": ("view_job", "cancel_job"),
    "drain": ("view_worker", "drain_worker"),
    "pause": ("view_queuecontrol", "pause_queue"),
    "resume": ("view_queuecontrol", "pause_queue"),
    "limit": ("view_queuecontrol", "limit_queue"),
}


class TestEveryVerb:
    @pytest.mark.parametrize("verb", PERMISSIONS)
    def test_asks_first_and_changes_nothing_by_that(self, someone, worker, verb):
        client, subject = someone(*PERMISSIONS[verb]), subject_of(verb, worker)
        page = client.get(url_of(verb), {"ids": subject})
        assert page.status_code == 200
        assert 'name="csrfmiddlewaretoken"' in page.text
        assert client.post(url_of(verb), {"ids": subject}).status_code == 200
        assert not OperatorEvent.objects.exists()

    @pytest.mark.parametrize("verb", PERMISSIONS)
    @pytest.mark.parametrize("lacking", [0, 1])
    def test_needs_its_own_permission(self, someone, worker, verb, lacking):
        client, subject = someone(PERMISSIONS[verb][lacking]), subject_of(verb, worker)
        assert post(client, verb, subject).status_code == 403
        assert client.get(url_of(verb), {"ids": subject}).status_code == 403
        assert not OperatorEvent.objects.exists()

    @pytest.mark.parametrize("verb", PERMISSIONS)
    def test_needs_a_csrf_token(self, someone, worker, verb):
        client, subject = someone(*PERMISSIONS[verb], csrf=True), subject_of(verb, worker)
        assert post(client, verb, subject).status_code == 403
        assert not OperatorEvent.objects.exists()

    @pytest.mark.parametrize("verb", ["cancel", "drain", "pause", "limit"])
    def test_happens_once_and_is_recorded_with_its_reason(self, someone, worker, verb):
        client, subject = someone(*PERMISSIONS[verb]), subject_of(verb, worker)
        data = {"reason": "the moon is full", "rate_limit": "5/s", "concurrency": "3"}
        assert "1" in said(post(client, verb, subject, **data))[0]
        post(client, verb, subject, **data)
        event, entry = OperatorEvent.objects.get(), LogEntry.objects.get()
        assert (event.reason, entry.user.username) == ("the moon is full", event.actor)
        assert "the moon is full" in entry.change_message

    @pytest.mark.parametrize("verb", PERMISSIONS)
    @pytest.mark.parametrize("ids", [[], ["x"], ["nowhere/mail"], ["0" * 200], ["'; --"]])
    def test_of_nothing_says_so(self, admin_client, verb, ids):
        answer = post(admin_client, verb, *ids)
        assert answer.status_code == 200
        assert "Nothing of what was chosen is there any more." in said(answer)
        assert not OperatorEvent.objects.exists()


class TestJobs:
    def test_are_cancelled_together_with_counts(self, admin_client):
        enqueue_many([doomed.prepare() for _ in range(3)])
        (running,) = backends["database"].fetch(["default"], 1, 30)
        ids = [str(pk) for pk in Job.objects.values_list("pk", flat=True)]
        data = {"action": "cancel_selected", "_selected_action": ids}
        page = admin_client.post(LIVE, data)
        kinds = [(count, dict(kind)["State"]) for count, kind in page.context["kinds"]]
        assert kinds == [(2, "ready"), (1, "running")]
        assert sorted(said(post(admin_client, "cancel", *ids))) == [
            "1 asked to stop.",
            "2 cancelled.",
        ]
        assert Job.objects.get().cancel_requested
        assert backends["database"].asked_to_stop([running]) == {running.id}
        again = said(post(admin_client, "cancel", *ids))
        assert again == ["1 had been asked to stop before."]

    @pytest.mark.parametrize("state", ["scheduled", "ready", "running", "blocked", "suspect"])
    def test_are_filtered_by_state(self, admin_client, state):
        doomed.enqueue()
        doomed.using(delay=60).enqueue()
        page = admin_client.get(LIVE, {"state": state})
        assert len(page.context["cl"].result_list) == (state in {"scheduled", "ready"})

    def test_say_why_they_do_not_run(self, admin_client):
        handle = doomed.using(delay=3600).enqueue()
        pause_queue("default", by="ada", reason="the moon is full")
        shown = admin_client.get(reverse("admin:django_jobs_job_change", args=[handle.id])).text
        for wanted in ("It is not due until", "paused by ada", "the moon is full", "Cancel…"):
            assert wanted in shown

    def test_offer_nothing_that_is_not_allowed(self, someone):
        handle = doomed.enqueue()
        page = reverse("admin:django_jobs_job_change", args=[handle.id])
        shown = someone("view_job").get(page).text
        assert "Cancel…" not in shown
        assert "Can view the payload of jobs" in shown
        assert admin_post_is_refused(someone("view_job"), page)


def admin_post_is_refused(client, page):
    return client.post(page, {"queue": "x"}).status_code == 405


class TestQueues:
    def test_are_paused_and_resumed(self, admin_client):
        assert said(post(admin_client, "pause", "database/mail", reason="moves")) == ["1 paused."]
        assert queue_settings("mail").reason == "moves"
        again = post(admin_client, "pause", "database/mail")
        assert said(again) == ["1 changed nothing: it was so already."]
        assert said(post(admin_client, "resume", "database/mail")) == ["1 resumed."]
        assert not queue_settings("mail").paused

    def test_get_limits(self, admin_client):
        post(admin_client, "limit", "database/mail", rate_limit="60/m", concurrency="4")
        now = queue_settings("mail")
        assert (now.rate_limit, now.concurrency) == ("60/m", 4)
        page = admin_client.get(url_of("limit"), {"ids": "database/mail"})
        assert 'value="60/m"' in page.text
        wrong = post(admin_client, "limit", "database/mail", rate_limit="a lot", concurrency="-1")
        assert "is no rate" in wrong.text
        assert queue_settings("mail").rate_limit == "60/m"

    def test_that_the_settings_do_not_know_are_refused(self, admin_client, settings):
        settings.DJANGO_JOBS = {"QUEUES": {"mail": {}}}
        answer = post(admin_client, "pause", "database/mial")
        assert "1 refused." in said(answer)
        assert not QueueControl.objects.exists()


class TestOverview:
    def test_shows_queues_workers_and_charts(self, admin_client, worker):
        die()
        enqueue_many([doomed.prepare() for _ in range(3)])
        send_receipt.using(delay=60).enqueue(1)
        backends["database"].fetch(["default"], 1, 30)
        pause_queue("reports", by="ada", reason="the moon is full")
        shown = admin_client.get(OVERVIEW).text
        for wanted in ("default", "mail", "the moon is full", str(worker), "<svg", "doomed"):
            assert wanted in shown
        depth = {one.queue: one for one in overview()}
        default = depth["default"]
        assert (default.ready, default.running, default.dead) == (2, 1, 1)
        assert (depth["mail"].scheduled, depth["reports"].paused) == (1, True)

    def test_has_nothing_inline(self, admin_client, worker):
        doomed.enqueue()
        for page in (OVERVIEW, f"{OVERVIEW}fragment/"):
            shown = admin_client.get(page).text
            assert " style=" not in shown
            assert "<style" not in shown
            assert " onclick=" not in shown
            assert "<script>" not in shown

    def test_is_linked_from_the_index(self, someone):
        assert OVERVIEW in someone("view_overview").get("/admin/").text
        assert OVERVIEW not in someone("view_job").get("/admin/").text

    @pytest.mark.parametrize("page", [OVERVIEW, f"{OVERVIEW}fragment/"])
    def test_needs_its_permission(self, someone, page):
        assert someone("view_job").get(page).status_code == 403
        assert someone("view_overview").get(page).status_code == 200

    def test_takes_few_queries(self, admin_client, worker, django_assert_max_num_queries):
        for number in range(20):
            doomed.using(queue=f"queue-{number}").enqueue()
        with django_assert_max_num_queries(15):
            admin_client.get(OVERVIEW)
        with django_assert_max_num_queries(15):
            admin_client.get(LIVE)
        job = reverse("admin:django_jobs_job_change", args=[Job.objects.first().pk])
        with django_assert_max_num_queries(15):
            admin_client.get(job)

    def test_counts_no_further_than_anybody_reads(self, monkeypatch, admin_client):
        monkeypatch.setattr("django_jobs.admin.overview.COUNTED_AT_MOST", 3)
        enqueue_many([doomed.prepare() for _ in range(9)])
        shown = admin_client.get(OVERVIEW).context
        (queue,) = shown["queues"]
        assert queue["cells"][0]["count"] == "3+"
        assert shown["tiles"][0]["value"] == "3+"

    def test_says_how_many_queues_it_leaves_out(self, monkeypatch, admin_client):
        monkeypatch.setattr("django_jobs.admin.overview.QUEUES_SHOWN", 2)
        enqueue_many([doomed.using(queue=f"queue-{number}").prepare() for number in range(5)])
        page = admin_client.get(OVERVIEW)
        assert [queue["name"] for queue in page.context["queues"]] == ["queue-0", "queue-1"]
        assert [tile["value"] for tile in page.context["tiles"][:2]] == ["2+", "0+"]
        assert "And 3 more" in page.text

    def test_draws_what_was_counted(self, admin_client):
        minute = backends["database"].clock.read(connection()) // 60_000_000
        QueueMinute.objects.create(
            backend="database", queue="mail", minute=minute, succeeded=70, retried=20, dead=10
        )
        charts = admin_client.get(OVERVIEW).context["charts"]
        for chart in charts:
            heights = {bar.kind: float(bar.height) for bar in chart.bars}
            assert heights == pytest.approx({"succeeded": 78.4, "retried": 22.4, "dead": 11.2})
            assert sum(row.counts.total for row in chart.rows) == 100
            assert "70 runs succeeded" in chart.description


def connection():
    from django.db import connections  # noqa: PLC0415 - for this one

    return connections["default"]


@pytest.fixture
def marks():
    """Hostile strings, each with a number of its own."""
    return []


@pytest.fixture
def hostile(worker, marks):
    """Rows in which each field has a hostile string of its own."""

    def mark(most=255):
        marks.append(MARK.format(len(marks), len(marks)))
        return marks[-1][:most]

    for _ in range(60):
        handle = doomed.enqueue()
        told = {name: mark() for name in ("handler", "name", "tenant", "schedule")}
        Job.objects.filter(pk=handle.id).update(**told, worker=mark(128), trace_id=mark(64))
    when = {"started_at": worker.started_at, "seen": worker.seen}
    for number in range(50):
        names = {"backend": mark(64), "host": mark(), "queues": mark()}
        Worker.objects.create(id=uuid.uuid4(), pid=number, **names, **when)
        names = {"backend": mark(64), "queue": mark(64), "changed_by": mark(150)}
        QueueControl.objects.create(paused=True, reason=mark(), **names)
    running = list(Job.objects.values_list("pk", flat=True)[:20])
    until = worker.seen + 10**9
    Job.objects.filter(pk__in=running).update(
        state=2, lease_expires=until, worker=str(worker), leased_at=1
    )


def pages_of_ours():
    yield from (OVERVIEW, f"{OVERVIEW}fragment/", LIVE, f"{LIVE}?state=running")
    yield from ("/admin/django_jobs/worker/", "/admin/django_jobs/queuecontrol/")
    for model, rows, verb in (("job", Job, "cancel"), ("worker", Worker, "drain")):
        for pk in rows.objects.values_list("pk", flat=True)[:5]:
            yield reverse(f"admin:django_jobs_{model}_change", args=[pk])
            yield f"{url_of(verb)}?ids={pk}"
    for pk in QueueControl.objects.values_list("pk", flat=True)[:5]:
        yield reverse("admin:django_jobs_queuecontrol_change", args=[pk])


def test_no_hostile_string_gets_through(admin_client, hostile, marks):
    assert len(marks) >= 500
    seen = 0
    for page in pages_of_ours():
        shown = admin_client.get(page).text
        for raw in ("<script>alert", "<img src=x", ">15838<"):
            assert raw not in shown, page
        seen += shown.count("&lt;script&gt;alert")
    assert seen > 200
