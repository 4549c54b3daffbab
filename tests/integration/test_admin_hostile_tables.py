"""Hostile strings in what the admin shows of results, attempts and operator events."""

import json
import uuid
from datetime import timedelta

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.urls import reverse
from django.utils import timezone

from django_jobs.models import JobAttempt, JobResult, OperatorEvent
from tests.integration.hostile_pages import prove, prove_rows, prove_texts, short, whole

pytestmark = [pytest.mark.django_db, pytest.mark.only_on("sqlite")]
SHORT = short(90)
OF_A_PAGE = 50


def page(client, name, *args, **query):
    url = reverse(f"admin:django_jobs_{name}", args=args)
    return lambda: client.get(url, query).text


def result_of(**values):
    now = timezone.now()
    about = {"enqueued_at": now, "started_at": now, "finished_at": now, "expires": 0}
    told = {"backend": "database", "queue": "default", "handler": "a.b", "status": "succeeded"}
    return JobResult.objects.create(job_id=uuid.uuid4(), **{**about, **told, **values})


def attempt_of(**values):
    now = timezone.now()
    told = {"backend": "database", "job_id": uuid.uuid4(), "number": 1, "outcome": "failed"}
    return JobAttempt.objects.create(**{**told, "started_at": now, "finished_at": now, **values})


def event_of(**values):
    return OperatorEvent.objects.create(**{"at": timezone.now(), "action": "pause", **values})


def written(make, model):
    """Rows of a table, of which there are no others."""

    def rows(values):
        model.objects.all().delete()
        for row in values:
            make(**row)

    return rows


def changed(model, row, **more):
    """The one row of a table."""

    def put(values):
        model.objects.filter(pk=row.pk).update(**values, **more)

    return put


def joined(values, *names):
    """Those of the columns that hold JSON, with all strings as items and as keys; the rest."""
    found = {name: {"list": values[name], "keys": dict.fromkeys(values[name], 1)} for name in names}
    rest = {name: "\n".join(values[name]) for name in values if name not in names}
    return rest, *found.values()


class TestResults:
    def test_in_the_list(self, admin_client):
        fields = dict.fromkeys(("handler", "queue", "status", "worker"), whole)
        prove_rows(
            page(admin_client, "jobresult_changelist"),
            written(result_of, JobResult),
            fields,
            at_once=OF_A_PAGE,
        )

    def test_on_the_page_of_one(self, admin_client):
        result = result_of()
        columns = ("backend", "queue", "handler", "name", "status", "output", "trace_id", "tenant",
                   "worker")  # fmt: skip

        def put(values):
            texts, value, payload, meta = joined(values, "value", "payload", "meta")
            told = {
                "value": json.dumps(value),
                "body": json.dumps({"payload": payload, "meta": meta}),
            }
            JobResult.objects.filter(pk=result.pk).update(**texts, **told)

        look = page(admin_client, "jobresult_change", result.pk)
        prove(look, put, dict.fromkeys((*columns, "value", "payload", "meta"), whole))

    def test_in_what_operators_did_to_it(self, admin_client):
        result = result_of()

        def rows(values):
            OperatorEvent.objects.all().delete()
            for row in values:
                event_of(**row, subject=str(result.pk))

        fields = {"action": whole, "actor": whole, "reason": SHORT}
        look = page(admin_client, "jobresult_change", result.pk)
        prove_rows(look, rows, fields, at_once=10)


class TestAttempts:
    def test_in_the_list(self, admin_client):
        fields = {"outcome": whole, "worker": whole, "error_type": SHORT, "error_message": SHORT}
        prove_rows(
            page(admin_client, "jobattempt_changelist"),
            written(attempt_of, JobAttempt),
            fields,
            at_once=OF_A_PAGE,
        )

    def test_on_the_page_of_one(self, admin_client):
        attempt = attempt_of()
        columns = ("backend", "outcome", "error_type", "error_message", "traceback", "output",
                   "worker")  # fmt: skip
        look = page(admin_client, "jobattempt_change", attempt.pk)
        prove_texts(look, changed(JobAttempt, attempt), columns)


class TestOperatorEvents:
    def test_in_the_list(self, admin_client):
        fields = {**dict.fromkeys(("actor", "action", "subject", "queue"), whole), "reason": SHORT}
        prove_rows(
            page(admin_client, "operatorevent_changelist"),
            written(event_of, OperatorEvent),
            fields,
            at_once=OF_A_PAGE,
        )

    def test_on_the_page_of_one(self, admin_client):
        event = event_of()

        def put(values):
            texts, detail = joined(values, "detail")
            OperatorEvent.objects.filter(pk=event.pk).update(**texts, detail=detail)

        columns = ("actor", "action", "backend", "queue", "subject", "reason", "detail")
        look = page(admin_client, "operatorevent_change", event.pk)
        prove(look, put, dict.fromkeys(columns, whole))


@pytest.mark.parametrize("at", ["index", "history"])
def test_in_the_log_of_the_admin(admin_client, at):
    event, someone = event_of(), User.objects.get()
    about = {
        "content_type": ContentType.objects.get_for_model(OperatorEvent),
        "object_id": str(event.pk),
        "action_flag": CHANGE,
        "user": someone,
    }

    def put(values):
        LogEntry.objects.all().delete()
        LogEntry.objects.create(**about, **values)

    history = reverse("admin:django_jobs_operatorevent_history", args=[event.pk])
    url = history if at == "history" else reverse("admin:index")
    shown = ("change_message",) if at == "history" else ("object_repr",)
    prove_texts(lambda: admin_client.get(url).text, put, shown)


@pytest.mark.parametrize("table", ["jobresult", "jobattempt", "operatorevent", "job", "worker"])
def test_in_the_address_of_a_list(admin_client, table):
    result_of(), attempt_of(), event_of(at=timezone.now() + timedelta(seconds=1))
    given = {}

    def look():
        url = reverse(f"admin:django_jobs_{table}_changelist")
        return admin_client.get(url, given).text

    # Of those that have a search, a filter of texts, or both.
    names = {
        "jobresult": ("q", "queue", "handler"),
        "jobattempt": ("q", "outcome"),
        "operatorevent": ("action", "actor"),
        "job": ("q", "queue", "handler"),
    }.get(table, ())
    for name in names:
        given.clear()
        prove_texts(look, lambda values, name=name: given.update({name: values["it"]}), ("it",))
