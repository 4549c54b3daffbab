"""Hostile strings in what the admin shows of live jobs, in tables and with brokers."""

import json
import uuid

import pytest
from django.urls import reverse
from django.utils import timezone

from django_jobs.backends.base import Account, Glimpse
from django_jobs.backends.home import store_now
from django_jobs.backends.memory import MemoryBackend
from django_jobs.models import Job, JobAttempt, JobState, OperatorEvent, QueueControl, Worker
from django_jobs.wire.envelope import Header, Message
from testproject.shop.jobs import doomed
from tests.integration.hostile_pages import prove, prove_rows, prove_texts, whole

pytestmark = [pytest.mark.django_db, pytest.mark.only_on("sqlite")]
LONGEST_LEASE = 10**12
FACTS = ("name", "handler", "queue", "backend", "tenant", "trace_id", "schedule")


class Broker(MemoryBackend):
    """Shows what somebody has put into it past the enqueue."""

    shown: tuple[Glimpse, ...] = ()
    kept: Account | None = None
    capabilities = MemoryBackend.capabilities._replace(accounts=True)

    def peek(self, queue, limit=20):
        return list(self.shown)

    def find(self, job_id):
        return next((one for one in self.shown if one.id == job_id), None)

    def account(self, job_id):
        return self.kept


def page(client, name, *args, **query):
    url = reverse(f"admin:django_jobs_{name}", args=args)
    return lambda: client.get(url, query).text


def lines(values, *names):
    return {name: "\n".join(values[name]) for name in names}


def body_of(values):
    told = ({"args": values[name], "kwargs": dict.fromkeys(values[name], 1)} for name in values)
    return json.dumps(dict(zip(values, told, strict=True)))


def leased(worker="web-1:7"):
    now = store_now("default")
    ends = now + LONGEST_LEASE
    return {"state": JobState.RUNNING, "leased_at": now, "lease_expires": ends, "worker": worker}


@pytest.fixture
def job():
    return Job.objects.get(pk=doomed.enqueue().id)


def changed(job, **more):
    def put(values):
        Job.objects.filter(pk=job.pk).update(**values, **more)

    return put


class TestLiveJobs:
    def test_in_the_list(self, admin_client):
        rows = [doomed.enqueue().id for _ in range(50)]

        def put(values):
            for pk, told in zip(rows, values, strict=True):
                Job.objects.filter(pk=pk).update(**{**leased(), **told})

        fields = dict.fromkeys(("handler", "queue", "worker"), whole)
        prove_rows(page(admin_client, "job_changelist"), put, fields, at_once=50)

    def test_on_the_page_of_one(self, admin_client, job):
        def put(values):
            body = body_of({name: values[name] for name in ("payload", "meta")})
            facts = lines(values, *FACTS, "worker")
            Job.objects.filter(pk=job.pk).update(**{**leased(), **facts}, body=body)

        fields = dict.fromkeys((*FACTS, "worker", "payload", "meta"), whole)
        prove(page(admin_client, "job_change", job.pk), put, fields)

    def test_in_its_attempts(self, admin_client, job):
        now = timezone.now()
        told = {"job_id": job.pk, "number": 1, "started_at": now, "finished_at": now}
        rows = [JobAttempt.objects.create(**told, outcome="x") for _ in range(50)]

        def put(values):
            for row, one in zip(rows, values, strict=True):
                JobAttempt.objects.filter(pk=row.pk).update(**one)

        for error in ("error_type", "error_message"):
            JobAttempt.objects.update(error_type="", error_message="")
            fields = dict.fromkeys((error, "outcome", "worker"), whole)
            prove_rows(page(admin_client, "job_change", job.pk), put, fields, at_once=50)

    def test_where_it_is_asked(self, admin_client, job):
        look = page(admin_client, "job_cancel", ids=str(job.pk))
        prove_texts(look, changed(job), ("handler", "queue"))


class TestWhyItDoesNotRun:
    def look(self, client, job):
        return page(client, "job_change", job.pk)

    @pytest.mark.parametrize("told_by", ["control", "event"])
    def test_in_who_paused_its_queue_and_why(self, admin_client, job, told_by):
        control = QueueControl.objects.create(backend="database", queue="default", paused=True)
        event = OperatorEvent(
            at=timezone.now(), action="pause", backend="database", queue="default"
        )

        def put(values):
            by = {"changed_by": values["who"]} if told_by == "control" else {}
            QueueControl.objects.filter(pk=control.pk).update(reason=values["why"], **by)
            if told_by == "event":
                event.actor = values["who"]
                event.save()

        prove_texts(self.look(admin_client, job), put, ("who", "why"))

    def test_in_what_the_workers_serve(self, admin_client, job):
        times = {"started_at": timezone.now(), "seen": store_now("default") + LONGEST_LEASE}
        worker = Worker.objects.create(id=uuid.uuid4(), backend="database", pid=7, **times)

        def put(values):
            Worker.objects.filter(pk=worker.pk).update(**values)

        prove_texts(self.look(admin_client, job), put, ("queues",))

    def test_in_who_holds_its_key(self, admin_client, job):
        Job.objects.filter(pk=job.pk).update(concurrency_key="k")
        holder = Job.objects.get(pk=doomed.enqueue().id)

        def put(values):
            running = {**leased(values["worker"]), "concurrency_key": "k"}
            Job.objects.filter(pk=holder.pk).update(**running)

        prove_texts(self.look(admin_client, job), put, ("worker",))


class TestBrokers:
    @pytest.fixture
    def broker(self, settings, monkeypatch):
        backends = {
            "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
            "broker": {"BACKEND": f"{__name__}.Broker"},
        }
        settings.DJANGO_JOBS = {"BACKENDS": backends}

        def shows(values):
            body = values.pop("body", "")
            monkeypatch.setattr(
                Broker, "shown", tuple(map(self.glimpse, values["rows"], [body] * 50))
            )

        return shows

    def glimpse(self, row, body=""):
        index = {name: row.get(name, "") for name in ("handler", "name", "trace_id")}
        message = Message(body=body, signature="", key_id="", header=Header(), index=index)
        extra = {"worker": row.get("worker", ""), "leased_at": 1}
        return Glimpse(
            id=row.get("id") or str(uuid.uuid4()), queue=row.get("queue", "mail"),
            state="running", due=store_now("default"), message=message, extra=extra,
        )  # fmt: skip

    def test_in_the_list_of_a_queue(self, admin_client, broker):
        look = page(admin_client, "job_broker", backend="broker", queue="mail")
        prove_rows(look, lambda rows: broker({"rows": rows}), {"handler": whole}, at_once=50)

    @pytest.mark.parametrize("at", ["change", "cancel"])
    def test_on_the_page_of_one_and_where_it_is_asked(self, admin_client, broker, at):
        job_id = str(uuid.uuid4())

        def put(values):
            body = body_of({name: values[name] for name in ("payload", "meta") if name in values})
            row = lines(values, *(name for name in values if name not in {"payload", "meta"}))
            broker({"rows": [{**row, "id": job_id}], "body": body})

        if at == "change":
            names = ("handler", "name", "queue", "trace_id", "worker", "payload", "meta")
            look = page(admin_client, "job_change", job_id)
        else:
            names, look = ("handler", "queue"), page(admin_client, "job_cancel", ids=job_id)
        prove(look, put, dict.fromkeys(names, whole))

    def test_in_how_it_ended(self, admin_client, broker, monkeypatch):
        job_id = str(uuid.uuid4())
        texts = ("queue", "handler", "worker", "output")

        def put(values):
            body = body_of({name: values[name] for name in ("payload", "meta")})
            told = {**lines(values, *texts), "value_json": json.dumps(values["value"])}
            ended = Account(id=job_id, status="skipped", body=body, **told)
            monkeypatch.setattr(Broker, "kept", ended)

        look = page(admin_client, "jobresult_change", job_id)
        prove(look, put, dict.fromkeys((*texts, "value", "payload", "meta"), whole))

    def test_in_its_address(self, admin_client, broker):
        given = {}
        url = reverse("admin:django_jobs_job_broker")
        look = lambda: admin_client.get(url, given).text  # noqa: E731 - beside its data
        prove_texts(look, given.update, ("backend", "queue", "state"))

    def test_in_how_it_fails(self, admin_client, broker):
        look = page(admin_client, "job_broker", queue="mail", backend="nowhere")
        assert "There is no broker" in look()
