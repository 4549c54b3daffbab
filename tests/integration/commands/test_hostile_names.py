"""Every name and text of the tables is hostile: no command lets one begin a line of its own."""

import pytest
from django.db import models

from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob, Job, JobAttempt, QueueControl, Worker
from django_jobs.worker import process_once
from django_jobs.worker.duties import Presence
from testproject.shop.jobs import doomed
from tests.integration.commands.conftest import HOSTILE, assert_harmless

pytestmark = pytest.mark.django_db
TEXT = HOSTILE.replace("\x00", "")
KEPT = {"backend", "body", "signature", "key_id"}
COMMANDS = [
    ["jobs_status"], ["jobs_status", "--check"], ["jobs_list"], ["jobs_list", "--state", "dead"],
    ["jobs_dlq", "list"], ["jobs_dlq", "show", "DEAD"], ["jobs_dlq", "replay", "DEAD"],
    ["jobs_dlq", "discard", "DEAD", "--reason", TEXT],
    ["jobs_explain", "LIVE"], ["jobs_explain", "DEAD"], ["jobs_cancel", "LIVE", TEXT],
    ["jobs_queue", "show", "mail"], ["jobs_queue", "pause", "mail", "--reason", TEXT],
    ["jobs_cron", "--list"], ["jobs_cron", "--pause", TEXT],
    ["jobs_cron", "--history", TEXT], ["jobs_drain", "--all"], ["jobs_drain", TEXT],
    ["jobs_reap"], ["jobs_reap", "--queue", TEXT], ["jobs_enqueue", TEXT, "[]"],
    ["jobs_enqueue", doomed.key, "{}", "--queue", TEXT], ["jobs_preflight"],
    ["jobs_work", "--queue", TEXT], ["jobs_work", "--until-empty", "--processes", "0"],
]  # fmt: skip


@pytest.fixture
def ids():
    """Rows of every kind, whose texts are as hostile as their columns have room."""
    live, dead = doomed.using(queue="mail").enqueue(), doomed.enqueue()
    assert process_once().status == "dead-lettered"
    Presence(backends["database"], "mail").write()
    QueueControl.objects.create(backend="database", queue="mail", paused=True)
    for model in (Job, FailedJob, JobAttempt, QueueControl, Worker):
        fill(model)
    QueueControl.objects.update(queue="mail")
    return {"LIVE": live.id, "DEAD": dead.id}


def fill(model):
    texts = [
        field
        for field in model._meta.get_fields()
        if isinstance(field, models.CharField | models.TextField) and field.name not in KEPT
    ]
    model.objects.update(**{field.name: TEXT[: field.max_length] for field in texts})


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command).replace(TEXT, "…")
)
def test_nothing_hostile_reaches_a_terminal(run, ids, command):
    told = run(*(ids.get(word, word) for word in command))
    assert told.out or told.err
    assert_harmless(told.out)
    assert_harmless(told.err)


def test_json_tells_names_exactly(run, ids):
    told = run("jobs_list", "--json")
    assert_harmless(told.out)
    assert {job["handler"] for job in told.json()["jobs"]} == {TEXT}


def test_what_a_worker_leaves_is_named_without_harm(run):
    doomed.using(queue="mail").enqueue()
    QueueControl.objects.create(backend="database", queue="mail", paused=True, reason=TEXT[:255])
    doomed.using(queue="other").enqueue()
    Job.objects.filter(queue="other").update(queue=TEXT[:64])
    told = run("jobs_work", "--until-empty", "--processes", "0", "--queue", "mail")
    assert told.out.count("left in the queue ") == 2
    assert_harmless(told.out)
    assert_harmless(told.err)
