"""Characters that are not seen, or that turn others round, are written out on every page."""

import json
import re
import unicodedata
import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import CharField, JSONField, TextField
from django.urls import reverse
from django.utils import timezone

from django_jobs.backends.home import store_now
from django_jobs.models import (
    AdminSchedule,
    FailedJob,
    FailureGroup,
    Job,
    JobAttempt,
    JobResult,
    JobState,
    OperatorEvent,
    QueueControl,
    ResolutionRun,
    ScheduleState,
    ScheduleTick,
    Worker,
    schedule_key,
)
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = [pytest.mark.django_db, pytest.mark.only_on("sqlite")]  # any text in any column
ODD = "\u202e\u2066\u200b\ufeff\x1b\x07\x9b\u2028."
DOOMED = "testproject.shop.jobs.doomed"
WRITTEN_OUT = r"\u202e\u2066\u200b\ufeff\x1b\x07\x9b\u2028."
HIDDEN_INPUT = re.compile(r'<input type="hidden"[^>]*>')
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
UNTOUCHED = {"body", "fingerprint", "backend", "resolution", "key", "verb", "state", "problems"}


def fill(row):
    """Odd characters in every text of a row."""
    values = {}
    for field in row._meta.concrete_fields:
        if field.name in UNTOUCHED or field.primary_key:
            continue
        if isinstance(field, JSONField):
            values[field.name] = {f"{field.name}{ODD}": f"{field.name}{ODD}"}
        elif isinstance(field, CharField | TextField):
            values[field.name] = f"{field.name}{ODD}"
    type(row).objects.filter(pk=row.pk).update(**values)
    return type(row).objects.get(pk=row.pk)


def url(page, *args, **query):
    return reverse(f"admin:django_jobs_{page}", args=args, query=query)


def seen(page):
    """What is odd on a page and would not be seen there."""
    text = HIDDEN_INPUT.sub("", page)
    return {c for c in text if unicodedata.category(c) in UNSEEN and c not in "\n\t\r"}


def legible(client, address):
    page = client.get(address)
    assert page.status_code == 200, (address, page.status_code)
    assert not seen(page.text), (address, re.findall(r"\w*[\u202e\u2066\x07][^<]*", page.text)[:3])
    assert WRITTEN_OUT in page.text, address
    return page.text


@pytest.fixture
def failed():
    die(send_receipt.prepare(order_id=1))
    row = die(send_receipt.prepare(order_id=ODD))
    JobAttempt.objects.all().delete()
    moment = timezone.now()
    about = {"job_id": row.job_id, "number": 1, "started_at": moment, "finished_at": moment}
    fill(JobAttempt.objects.create(**about))
    for group in FailureGroup.objects.all():
        fill(group)
    return row


def test_of_a_dead_letter(admin_client, failed):
    form = admin_client.get(url("failedjob_edit", failed.pk)).text
    assert (r"\u202e\u2066" in form, seen(form)) == (True, set())
    row = fill(failed)
    legible(admin_client, url("failedjob_changelist"))
    page = legible(admin_client, url("failedjob_change", row.pk))
    for name in ("handler", "name", "reason", "error_type", "error_message", "traceback", "output",
                 "tenant", "trace_id", "schedule", "worker", "outcome"):  # fmt: skip
        assert f"{name}{WRITTEN_OUT}" in page, name
    legible(admin_client, url("failedjob_groups"))
    for verb in ("replay", "discard"):
        legible(admin_client, url(f"failedjob_{verb}", ids=row.pk))
        legible(admin_client, url(f"failedjob_{verb}_all", queue=row.queue))
    said = {"ids": row.pk, "confirmed": "1", "reason": f"because{ODD}"}
    answer = admin_client.post(url("failedjob_discard"), said, follow=True)
    assert not seen(answer.text)
    legible(admin_client, url("failedjob_history", row.pk))
    legible(admin_client, reverse("admin:index"))
    assert WRITTEN_OUT in LogEntry.objects.get().change_message


def test_of_a_live_job(admin_client):
    job = Job.objects.get(pk=doomed.enqueue().id)
    now = store_now("default")
    leased = {"state": JobState.RUNNING, "leased_at": now, "lease_expires": now + 10**12}
    Job.objects.filter(pk=job.pk).update(**leased)
    moment = timezone.now()
    about = {"job_id": job.pk, "number": 1, "started_at": moment, "finished_at": moment}
    fill(JobAttempt.objects.create(**about))
    job = fill(job)
    legible(admin_client, url("job_changelist"))
    page = legible(admin_client, url("job_change", job.pk))
    for name in ("handler", "name", "queue", "worker", "tenant", "trace_id", "schedule",
                 "outcome", "error_type", "error_message"):  # fmt: skip
        assert f"{name}{WRITTEN_OUT}" in page, name
    legible(admin_client, url("job_cancel", ids=job.pk))
    legible(admin_client, url("job_history", job.pk))
    legible(admin_client, url("overview_changelist"))
    legible(admin_client, url("overview_fragment"))


def rows_of_tables():
    moment = timezone.now()
    told = {"started_at": moment, "finished_at": moment}
    yield JobResult.objects.create(job_id=uuid.uuid4(), body="{}", expires=0, **told)
    yield JobAttempt.objects.create(job_id=uuid.uuid4(), number=1, **told)
    yield OperatorEvent.objects.create(at=moment)
    yield QueueControl.objects.create(backend="database", queue="x", paused=True)
    seen_now = {"started_at": moment, "seen": store_now("default")}
    yield Worker.objects.create(id=uuid.uuid4(), backend="database", pid=1, **seen_now)
    given = {"matching": {}, "problems": [[1, ODD]], "total": 3, "upto": 3, "started_at": moment}
    yield ResolutionRun.objects.create(verb="replay", state="done", **given)
    yield AdminSchedule.objects.create(changed_at=moment)


def test_of_every_table(admin_client):
    for row in map(fill, rows_of_tables()):
        name = row._meta.model_name
        if name == "jobresult":
            JobResult.objects.update(value=json.dumps(ODD), body=json.dumps({"payload": [ODD]}))
        legible(admin_client, url(f"{name}_changelist"))
        page = legible(admin_client, url(f"{name}_change", row.pk))
        shown = {field.name for field in row._meta.concrete_fields} - UNTOUCHED
        hidden = {"value", "changed_by", "token", "carrier", "ended_by", "obstacle", "stepper"}
        if name == "adminschedule":
            hidden |= {"handler", "missed", "overlap"}  # to be chosen among what there is
        for field in row._meta.concrete_fields:
            if field.name in shown - hidden and isinstance(field, CharField | TextField):
                assert f"{field.name}{WRITTEN_OUT}" in page, (name, field.name)
        legible(admin_client, url(f"{name}_history", row.pk))
    legible(admin_client, url("adminschedule_delete", row.pk))
    legible(admin_client, url("overview_changelist"))


@pytest.mark.parametrize("verb", ["pause", "resume", "limit"])
def test_where_it_is_asked_about_a_queue(admin_client, verb):
    fill(QueueControl.objects.create(backend="database", queue="x"))
    name = f"database/queue{ODD}"
    legible(admin_client, url(f"queuecontrol_{verb}", ids=name))
    given = {"ids": name, "confirmed": "1", "reason": f"because{ODD}", "rate_limit": ""}
    answer = admin_client.post(url(f"queuecontrol_{verb}"), given, follow=True)
    assert answer.redirect_chain
    assert not seen(answer.text)


def test_where_it_is_asked_about_a_worker(admin_client):
    moments = {"started_at": timezone.now(), "seen": store_now("default")}
    row = fill(Worker.objects.create(id=uuid.uuid4(), backend="database", pid=1, **moments))
    legible(admin_client, url("worker_drain", ids=row.pk))


@pytest.fixture
def exposed(settings):
    settings.DJANGO_JOBS = {"SCHEDULE_HANDLERS": [DOOMED]}


def test_of_schedules(admin_client, exposed):
    given = {
        "expression": "0 5 * * *",
        "timezone": "UTC",
        "handler": DOOMED,
    }
    payload = {"args": [], "kwargs": {}}
    mine = AdminSchedule.objects.create(
        **given, name="mine", description=ODD, payload=payload, changed_at=timezone.now()
    )
    key, moment = schedule_key("mine"), timezone.now()
    state = {"version": "", "decided_until": 0, "paused": True, "paused_at": moment}
    fill(ScheduleState.objects.create(key=key, name="mine", **state))
    ScheduleState.objects.update(name="mine")
    tick = ScheduleTick.objects.create(
        key=key, name="mine", tick=store_now("default"), decided_at=moment
    )
    fill(tick)
    ScheduleTick.objects.update(name="mine")
    for page in ("change", "pause", "run", "history"):
        text = admin_client.get(url(f"schedulestate_{page}", key)).text
        assert not seen(text)
        assert WRITTEN_OUT in text or page in {"history", "run", "pause"}
    form = admin_client.get(url("adminschedule_change", mine.pk)).text
    assert (WRITTEN_OUT in form, seen(form)) == (True, set())
    AdminSchedule.objects.create(**given, name=f"odd{ODD}", changed_at=timezone.now())
    assert not seen(legible(admin_client, url("schedulestate_changelist")))
    problem = admin_client.get(url("adminschedule_preview", expression=f"* * {ODD}"))
    assert not seen(json.loads(problem.content)["problem"])


def test_a_text_that_is_shown_written_out_is_kept_as_it_is(admin_client, exposed):
    given = {"name": "mine", "expression": "0 5 * * *", "timezone": "UTC",
             "handler": DOOMED, "missed": "latest", "overlap": "allow",
             "priority": 0, "queue": "default"}  # fmt: skip
    mine = AdminSchedule.objects.create(
        **given,
        description=f"a{ODD}",
        payload={"args": [], "kwargs": {}},
        changed_at=timezone.now(),
    )
    form = admin_client.get(url("adminschedule_change", mine.pk)).context["adminform"].form
    again = {name: form[name].value() for name in form.fields}
    assert again["description"] == f"a{WRITTEN_OUT}"
    changed = {**again, "timeout": "", "deadline": "", "max_retries": "", "expression": "0 6 * * *"}
    answer = admin_client.post(url("adminschedule_change", mine.pk), changed)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    mine.refresh_from_db()
    assert (mine.expression, mine.description) == ("0 6 * * *", f"a{ODD}")


def test_a_failed_job_is_still_found_by_the_queue_that_is_written_out(admin_client):
    row = fill(die())
    page = admin_client.get(url("failedjob_changelist", queue=row.queue))
    assert [found.pk for found in page.context["cl"].result_list] == [row.pk]
    assert FailedJob.objects.get(pk=row.pk).queue == row.queue
