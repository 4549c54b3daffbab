"""A secret of a job, from its payload to its dead letter: nobody who looks is shown it."""

import io

import pytest
from django.core.management import call_command

from django_jobs import job
from django_jobs.models import FailedJob, JobAttempt
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db
SECRET = "hunter2-not-to-be-shown"


@job(key="secrets.fail", max_retries=1, retry=[0])
def fail(user, password=None, api_key=None):
    raise ValueError(f"login as {user} failed: password={password}, at https://me:{api_key}@host/")


@pytest.fixture
def dead():
    return died()


def died():
    fail.enqueue("ann", password=SECRET, api_key=SECRET)
    assert [process_once().status for _ in range(2)] == ["requeued", "dead-lettered"]
    return FailedJob.objects.get()


def test_errors_and_attempts_are_kept_without_it(dead):
    assert "login as ann failed" in dead.error_message
    (attempt, *_) = JobAttempt.objects.all()
    for row in (dead, attempt):
        assert SECRET not in row.error_message
        assert SECRET not in row.traceback


def test_the_log_says_what_happened_without_it(caplog):
    died()
    told = [(record.getMessage(), str(vars(record))) for record in caplog.records]
    assert any("login as ann failed" in message for message, _ in told)
    assert not any(SECRET in message or SECRET in facts for message, facts in told)


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_the_commands_show_the_rest(dead, options):
    for arguments in (["jobs_dlq", "show", str(dead.pk)], ["jobs_dlq", "list"]):
        out = io.StringIO()
        call_command(*arguments, *options, stdout=out)
        assert "secrets.fail" in out.getvalue()
        assert SECRET not in out.getvalue()


def test_the_admin_shows_the_rest(dead, admin_client):
    page = admin_client.get(f"/admin/django_jobs/failedjob/{dead.pk}/change/").content.decode()
    assert "secrets.fail" in page
    assert "ann" in page
    assert SECRET not in page
