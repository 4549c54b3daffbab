"""jobs_purge deletes what ended long enough ago, asks first, and never touches live jobs."""

from datetime import timedelta

import pytest
from django.db.models import F

from django_jobs.management import base
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, OperatorEvent
from django_jobs.worker.build import process_once
from testproject.shop.jobs import doomed, flaky

pytestmark = pytest.mark.django_db


@pytest.fixture
def ended(die):
    """Ten days ago: one dead letter, one success; and one job that lives."""
    die()
    flaky.using(retry=[0]).enqueue()
    while process_once():
        pass
    ten_days = timedelta(days=10)
    FailedJob.objects.update(failed_at=F("failed_at") - ten_days)
    JobResult.objects.update(finished_at=F("finished_at") - ten_days)
    JobAttempt.objects.update(finished_at=F("finished_at") - ten_days)
    doomed.enqueue()


def counts():
    return [table.objects.count() for table in (JobResult, FailedJob, JobAttempt, Job)]


@pytest.mark.parametrize(
    ("state", "left"),
    [("succeeded", [0, 1, 1, 1]), ("dead", [1, 0, 2, 1]), ("all", [0, 0, 0, 1])],
)
def test_states(run, ended, state, left):
    assert counts() == [1, 1, 3, 1]
    done = run("jobs_purge", "--state", state, "--older-than", "7d", "--force")
    assert done.code == 0
    assert counts() == left
    assert OperatorEvent.objects.get().action == "purge"


def test_it_says_what_it_did(run, ended):
    command = ("jobs_purge", "--state", "all", "--older-than", "1w")
    dry = run(*command, "--dry-run")
    assert dry.out == "1 results, 1 dead letters and 3 attempts would be deleted\n"
    assert run(*command, "--dry-run", "--json").json() == {
        "dry_run": True,
        "results": 1,
        "dead_letters": 1,
        "attempts": 3,
        "total": 5,
    }
    assert counts() == [1, 1, 3, 1]
    assert run(*command, "--force").out == "1 results, 1 dead letters and 3 attempts deleted\n"
    again = run(*command)
    assert (again.code, again.out) == (0, "There is nothing to delete.\n")


@pytest.mark.parametrize(
    "options", [("--older-than", "2w"), ("--older-than", "7d", "--queue", "x")]
)
def test_nothing_is_old_enough_or_of_that_queue(run, ended, options):
    assert run("jobs_purge", "--state", "all", *options, "--force").code == 0
    assert counts() == [1, 1, 3, 1]


@pytest.mark.parametrize(("answer", "code"), [("yes", 0), ("", 1)])
def test_it_asks(run, ended, monkeypatch, answer, code):
    questions = []
    monkeypatch.setattr(base.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or answer)
    assert run("jobs_purge", "--state", "all", "--older-than", "7d").code == code
    (question,) = questions
    assert question.startswith("Delete 1 results, 1 dead letters and 3 attempts (1 of the dead")
    assert question.endswith("were neither replayed nor discarded)? [y/N] ")
    assert (FailedJob.objects.count() == 0) is (code == 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--state", "running", "--older-than", "7d"), "invalid choice: 'running'"),
        (("--state", "all"), "--older-than"),
        (("--older-than", "7d"), "--state"),
        (("--state", "all", "--older-than", "7"), "write 30s, 15m, 12h, 7d or 2w"),
        (("--state", "all", "--older-than", "-7d"), "--older-than"),
        (("--state", "all", "--older-than", "7 days"), "is no length of time"),
        (("--state", "all", "--older-than", "7d", "--database", "no"), "use default"),
    ],
)
def test_bad_values_delete_nothing(run, ended, arguments, told):
    refused = run("jobs_purge", *arguments, "--force")
    assert refused.code
    assert told in refused.err
    assert counts() == [1, 1, 3, 1]


@pytest.mark.django_db(transaction=True)
def test_exit_codes_in_a_process(manage, die):
    die()
    command = ("jobs_purge", "--state", "dead", "--older-than", "0s")
    refused = manage(*command)
    assert refused.returncode == 2
    assert "add --force" in refused.stderr
    assert manage("jobs_purge", "--state", "dead", "--older-than", "soon").returncode == 2
    assert manage(*command, "--dry-run").returncode == 0
    assert manage(*command, "--force").returncode == 0
    assert not FailedJob.objects.exists()
