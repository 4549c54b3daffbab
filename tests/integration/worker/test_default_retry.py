"""A job that has retries and names no policy backs off, however it was made."""

import pytest
from django.core.management import call_command

from django_jobs import JobHandler, define, job
from django_jobs.clock import SECOND
from django_jobs.models import Job, JobAttempt
from django_jobs.tasks import task
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db


@job(key="default-retry.fails", max_retries=2)
def fails():
    raise ConnectionError("not yet")


@job(key="default-retry.class", max_retries=2)
class Fails(JobHandler[None, None]):
    def handle(self, context):
        raise ConnectionError("not yet")


@task(max_retries=2)
def fails_as_task():
    raise ConnectionError("not yet")


SETTINGS = {
    "QUEUES": {
        "default": {
            "HANDLERS": ["command", fails.key, "default-retry.class", f"{__name__}.fails_as_task"]
        }
    },
    "TASK_MODULES": [__name__],
    "ALLOWED_COMMANDS": ["check"],
    "SCHEDULE": {
        "failing": {
            "CRON": "@yearly",
            "HANDLER": "default-retry.fails",
            "MAX_RETRIES": 2,
            "QUEUE": "default",
        }
    },
}


def by_command():
    payload = '{"args": [], "kwargs": {}}'
    call_command("jobs_enqueue", "default-retry.fails", payload, "--max-retries", "1", verbosity=0)


WAYS = {
    "decorator": fails.enqueue,
    "define": lambda: define("command", ["check", "--tag", "no-such-tag"], max_retries=1).enqueue(),
    "class": lambda: Fails.enqueue(None),
    "task": fails_as_task.enqueue,
    "command": by_command,
    "schedule": lambda: call_command("jobs_cron", "--run-now", "failing", verbosity=0),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_retry_waits_about_five_seconds(settings, way):
    settings.DJANGO_JOBS = SETTINGS
    WAYS[way]()
    assert process_once().status == "requeued"
    waiting = Job.objects.get()
    failed_at = JobAttempt.objects.get().finished_at
    waits = waiting.due / SECOND - failed_at.timestamp()
    assert 4.2 < waits < 8.5  # up to what a second one may wait, for machines that are busy


@pytest.mark.parametrize("asked", [{"retry": "none"}, {}])
def test_none_stays_available_for_a_job_and_for_a_site(settings, asked):
    settings.DJANGO_JOBS = {} if asked else {"RETRY": "none"}
    fails.using(**asked).enqueue()
    assert [process_once().status for _ in range(4)] == [
        "requeued",
        "requeued",
        "dead-lettered",
        "empty",
    ]
