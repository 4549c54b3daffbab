"""Hostile strings in what the admin shows of dead letters, their groups and runs."""

import json
import uuid

import pytest
from django.template.defaultfilters import truncatechars
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import mark_safe

from django_jobs.models import FailedJob, FailureGroup, JobAttempt, ResolutionRun
from tests.integration.hostile_pages import prove, prove_rows, prove_texts, short, whole
from tests.integration.operations.dying import die

pytestmark = [pytest.mark.django_db, pytest.mark.only_on("sqlite")]
LIST = "/admin/django_jobs/failedjob/"
SHORT = short(90)


def page(client, url, **query):
    return lambda: client.get(url, query).text


def detail_of(failed):
    return reverse("admin:django_jobs_failedjob_change", args=[failed.pk])


def lines(values):
    return {name: "\n".join(found) for name, found in values.items()}


def letters(number):
    return [die(fingerprint=uuid.uuid4().hex) for _ in range(number)]


def written(model, rows, **more):
    """The values of as many rows as there are."""

    def put(values):
        for row, told in zip(rows, values, strict=True):
            model.objects.filter(pk=row.pk).update(**told, **more)

    return put


class TestDeadLetters:
    def test_in_the_list(self, admin_client):
        rows = letters(50)
        fields = {"handler": whole, "queue": whole, "reason": whole, "error_type": SHORT,
                  "error_message": SHORT, "resolution": whole}  # fmt: skip
        look = page(admin_client, LIST, resolution="all")
        prove_rows(look, written(FailedJob, rows), fields, at_once=50)

    def test_on_the_page_of_one(self, admin_client):
        failed = die()
        columns = ("queue", "handler", "name", "reason", "error_type", "error_message", "traceback",
                   "output", "backend", "tenant", "trace_id", "schedule", "resolution",
                   "resolved_by", "resolution_note")  # fmt: skip

        def put(values):
            payload, meta = (
                {"args": values[name], "kwargs": dict.fromkeys(values[name], 1)}
                for name in ("payload", "meta")
            )
            texts = lines({name: values[name] for name in columns})
            body = json.dumps({"payload": payload, "meta": meta})
            others = {"replay_of": uuid.uuid4(), "replayed_as": uuid.uuid4()}
            FailedJob.objects.filter(pk=failed.pk).update(**texts, **others, body=body)

        look = page(admin_client, detail_of(failed))
        prove(look, put, dict.fromkeys((*columns, "payload", "meta"), whole))

    def test_in_its_attempts(self, admin_client):
        failed = die()
        JobAttempt.objects.filter(job_id=failed.job_id).delete()
        told = {"job_id": failed.job_id, "number": 1, "started_at": timezone.now()}
        rows = [
            JobAttempt.objects.create(**told, finished_at=timezone.now(), outcome="x")
            for _ in range(50)
        ]
        look = page(admin_client, detail_of(failed))
        put = written(JobAttempt, rows)
        for error in ("error_type", "error_message"):
            JobAttempt.objects.update(error_type="", error_message="")
            names = (error, "outcome", "worker", "traceback", "output")
            prove_rows(look, put, dict.fromkeys(names, whole), at_once=50)

    @pytest.mark.parametrize("verb", ["replay", "discard"])
    def test_where_it_is_asked(self, admin_client, verb):
        rows = letters(10)
        look = page(admin_client, f"{LIST}{verb}/", ids=[row.pk for row in rows])
        fields = dict.fromkeys(("handler", "queue", "reason"), whole)
        prove_rows(look, written(FailedJob, rows), fields, at_once=10)

    def test_that_cannot_be_verified_and_may_be_discarded(self, admin_client):
        failed = die()

        def put(values):
            FailedJob.objects.filter(pk=failed.pk).update(**values, resolution="")

        prove_texts(page(admin_client, detail_of(failed)), put, ("queue", "handler"))

    def test_in_groups(self, admin_client):
        groups = [FailureGroup.objects.get(fingerprint=row.fingerprint) for row in letters(50)]
        fields = {"handler": whole, "reason": whole, "error_type": SHORT, "error_message": SHORT}
        look = page(admin_client, f"{LIST}groups/")
        prove_rows(look, written(FailureGroup, groups), fields, at_once=50)


class TestRuns:
    def run(self, **told):
        given = {"verb": "replay", "matching": {}, "total": 3, "upto": 3}
        return ResolutionRun.objects.create(started_at=timezone.now(), **{**given, **told})

    def test_in_the_list(self, admin_client):
        rows = [self.run() for _ in range(50)]
        look = page(admin_client, reverse("admin:django_jobs_resolutionrun_changelist"))
        fields = {"state": whole, "verb": str.capitalize, "reason": lambda text: text[:80]}
        prove_rows(look, written(ResolutionRun, rows), fields, at_once=50)

    @pytest.mark.parametrize("columns", [("started_by", "obstacle"), ("ended_by", "state")])
    def test_on_the_page_of_one(self, admin_client, columns):
        ended = None if "obstacle" in columns else timezone.now()
        run = self.run(ended_at=ended)

        def put(values):
            matching, problems = values["matching"], values["problems"]
            texts = lines({name: values[name] for name in ("reason", "carrier", *columns)})
            ResolutionRun.objects.filter(pk=run.pk).update(
                **texts,
                matching=dict(zip(matching, matching, strict=True)),
                problems=[[number, why] for number, why in enumerate(problems)],
            )

        look = page(admin_client, reverse("admin:django_jobs_resolutionrun_change", args=[run.pk]))
        # The name of what narrows a run begins with a capital letter.
        names = ("reason", "carrier", *columns, "matching", "problems")
        prove(look, put, dict.fromkeys(names, whole))


class TestAddresses:
    @pytest.mark.parametrize("name", ["q", "queue", "handler", "reason", "fingerprint"])
    def test_in_the_list(self, admin_client, name):
        die()
        given = {}
        look = lambda: admin_client.get(LIST, given).text  # noqa: E731 - beside its data
        prove_texts(look, lambda values: given.update({name: values["it"]}), ("it",))

    @pytest.mark.parametrize("verb", ["replay", "discard"])
    def test_before_a_run(self, admin_client, verb):
        die()
        given = {}
        look = lambda: admin_client.get(f"{LIST}{verb}-all/", given).text  # noqa: E731 - as above
        prove_texts(look, given.update, ("queue", "handler", "reason", "fingerprint"))

    def test_in_the_form_that_edits(self, admin_client):
        edit = reverse("admin:django_jobs_failedjob_edit", args=[die().pk])
        given = {}
        look = lambda: admin_client.post(edit, given).text  # noqa: E731 - as above
        prove_texts(look, given.update, ("payload", "reason"), at_once=10)

    def test_in_the_form_that_asks(self, admin_client):
        given = {"ids": die().pk, "confirmed": "1"}
        look = lambda: admin_client.post(f"{LIST}discard/", given).text  # noqa: E731 - as above

        def put(values):
            # Too long to be taken, so it is shown again.
            given.update(filters=values["filters"], reason=values["reason"] + "x" * 5000)

        prove_texts(look, put, ("reason", "filters"))


class TestTheProof:
    """It fails where a page escapes nothing, and where it does not show what was written."""

    def prove(self, client):
        rows = letters(50)
        look = page(client, LIST, resolution="all")
        prove_rows(look, written(FailedJob, rows), {"error_message": SHORT}, at_once=50)

    def test_notices_what_is_not_escaped(self, admin_client, monkeypatch):
        careless = "django_jobs.admin.dead_letters.error_text"
        monkeypatch.setattr(careless, lambda _type, text: mark_safe(text))  # noqa: S308 - on purpose
        with pytest.raises(AssertionError, match=r"Counter|hurt"):
            self.prove(admin_client)

    def test_notices_what_is_not_shown(self, admin_client, monkeypatch):
        cut = "django_jobs.admin.dead_letters.error_text"
        monkeypatch.setattr(cut, lambda _type, text: truncatechars(text, 20))
        with pytest.raises(AssertionError, match="error_message"):
            self.prove(admin_client)
