"""Hostile strings in what the admin shows of queues and workers, and where it asks about them."""

import uuid
from urllib.parse import urlencode

import pytest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from django_jobs.backends.home import store_now
from django_jobs.models import Job, JobState, QueueControl, Worker
from django_jobs.operations.workers import name_of
from testproject.shop.jobs import doomed
from tests.integration.hostile_pages import prove, prove_rows, prove_texts, short, whole

pytestmark = [pytest.mark.django_db, pytest.mark.only_on("sqlite")]
SHORT = short(90)
LONGEST_LEASE = 10**12


def page(client, name, *args, **query):
    url = reverse(f"admin:django_jobs_{name}", args=args)
    return lambda: client.get(url, query).text


def worker_of(number=1, **values):
    given = {"id": uuid.uuid4(), "backend": "database", "host": "web-1", "pid": number}
    times = {"started_at": timezone.now(), "seen": store_now("default")}
    return Worker.objects.create(**{**given, **times, **values})


def queues(values):
    """Paused ones, with limits."""
    QueueControl.objects.all().delete()
    for row in values:
        QueueControl.objects.create(paused=True, concurrency=3, **row)


def workers(values):
    """Each with a job that runs."""
    Worker.objects.all().delete()
    Job.objects.all().delete()
    for number, row in enumerate(values):
        job = {
            name: row.pop(f"job_{name}") for name in ("handler", "queue") if f"job_{name}" in row
        }
        worker = worker_of(number, **row)
        running = {"state": JobState.RUNNING, "worker": name_of(worker), "leased_at": worker.seen}
        pk = doomed.enqueue().id
        if job:
            ends = worker.seen + LONGEST_LEASE
            Job.objects.filter(pk=pk).update(**job, **running, lease_expires=ends)


@pytest.mark.parametrize("part", ["changelist", "fragment"])
class TestOverview:
    def test_in_its_queues(self, admin_client, part):
        fields = {"queue": whole, "backend": whole, "rate_limit": whole, "reason": SHORT}
        prove_rows(page(admin_client, f"overview_{part}"), queues, fields, at_once=110)

    def test_in_its_workers(self, admin_client, part):
        fields = {"host": whole, "backend": whole, "queues": whole, "job_queue": whole,
                  "job_handler": short(60)}  # fmt: skip
        prove_rows(page(admin_client, f"overview_{part}"), workers, fields, at_once=50)


class TestQueues:
    def test_in_the_list(self, admin_client):
        fields = {"queue": whole, "backend": whole, "rate_limit": whole, "changed_by": whole}
        look = page(admin_client, "queuecontrol_changelist")
        prove_rows(look, queues, {**fields, "reason": SHORT}, at_once=50)

    def test_on_the_page_of_one(self, admin_client):
        row = QueueControl.objects.create(backend="database", queue="mail")

        def put(values):
            QueueControl.objects.filter(pk=row.pk).update(**values)

        look = page(admin_client, "queuecontrol_change", row.pk)
        prove_texts(look, put, ("queue", "backend", "rate_limit", "reason", "changed_by"))

    @pytest.mark.parametrize("verb", ["pause", "resume", "limit"])
    def test_where_it_is_asked(self, admin_client, verb):
        given = {}
        url = reverse(f"admin:django_jobs_queuecontrol_{verb}")

        def rows(values):
            given.update(ids=[f"database/{row['queue']}" for row in values])

        prove_rows(lambda: admin_client.get(url, given).text, rows, {"queue": whole}, at_once=10)

    def test_in_the_limits_that_are_to_be_changed(self, admin_client):
        row = QueueControl.objects.create(backend="database", queue="mail")
        look = page(admin_client, "queuecontrol_limit", ids="database/mail")

        def put(values):
            QueueControl.objects.filter(pk=row.pk).update(rate_limit=" ".join(values["limit"]))

        # In a cell and in the field: where a line of text may have no ends.
        prove(look, put, {"limit": lambda text: text.partition("\r")[0]})

    @pytest.mark.parametrize("verb", ["pause", "limit"])
    def test_in_what_was_sent_and_refused(self, admin_client, verb):
        url = reverse(f"admin:django_jobs_queuecontrol_{verb}")
        given = {"ids": "database/mail", "confirmed": "1"}
        fields = ("reason", "rate_limit") if verb == "limit" else ("reason",)

        def put(values):
            # Longer than it may be, so that it is shown again.
            given.update({name: f"{told}{'x' * 1000}" for name, told in values.items()})

        look = lambda: admin_client.post(url, given).text  # noqa: E731 - beside its data
        prove_texts(look, put, fields)
        assert not QueueControl.objects.exists()

    def test_in_what_is_said_afterwards(self, admin_client):
        url = reverse("admin:django_jobs_queuecontrol_pause")
        given = {"confirmed": "1", "reason": "it is no name"}

        def rows(values):
            given.update(ids=[f"database/{row['queue']}" for row in values])

        look = lambda: admin_client.post(url, given, follow=True).text  # noqa: E731 - as above
        prove_rows(look, rows, {"queue": whole}, at_once=5)


class TestWorkers:
    def test_in_the_list(self, admin_client):
        fields = dict.fromkeys(("host", "backend", "queues"), whole)
        prove_rows(page(admin_client, "worker_changelist"), workers, fields, at_once=50)

    @pytest.mark.parametrize("at", ["change", "drain"])
    def test_on_the_page_of_one_and_where_it_is_asked(self, admin_client, at):
        row = worker_of()

        def put(values):
            Worker.objects.filter(pk=row.pk).update(**values)

        change = page(admin_client, "worker_change", row.pk)
        drain = page(admin_client, "worker_drain", ids=str(row.pk))
        prove_texts(change if at == "change" else drain, put, ("host", "backend", "queues"))

    def test_in_what_was_sent_and_refused(self, admin_client):
        given = {"ids": str(worker_of().pk), "confirmed": "1"}
        url = reverse("admin:django_jobs_worker_drain")
        look = lambda: admin_client.post(url, given).text  # noqa: E731 - as above
        prove_texts(
            look,
            lambda values: given.update(reason=values["reason"] + "x" * 1000, back=values["back"]),
            ("reason", "back"),
        )


def test_a_queue_whose_name_is_none_leads_nowhere_else(admin_client):
    name = "mail&back=//evil#<b>"
    queues([{"queue": name, "backend": "database"}])
    shown = page(admin_client, "overview_changelist")()
    assert escape(f"?{urlencode({'ids': f'database/{name}', 'back': 'overview'})}") in shown
