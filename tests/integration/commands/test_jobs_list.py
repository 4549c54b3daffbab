"""jobs_list: every state, words for people, stable JSON for scripts, and nothing that tricks."""

import re

import pytest

from django_jobs.backends.registry import backends
from django_jobs.management import jobs
from django_jobs.models import Job, JobAttempt, JobResult
from django_jobs.operations.cancel import cancel
from django_jobs.worker.build import process_once
from testproject.shop.jobs import doomed, flaky
from tests.integration.commands.conftest import HOSTILE, assert_harmless

pytestmark = pytest.mark.django_db
KEYS = [
    *("id", "state", "handler", "queue", "backend", "name", "priority", "attempts"),
    *("suspect", "due", "ended", "error", "outbox", "reason"),
]


def test_nothing(run):
    done = run("jobs_list")
    assert (done.code, done.out) == (0, "There are no live jobs like that.\n")
    assert run("jobs_list", "--json").json() == {"jobs": [], "more": False}


def test_those_that_wait_for_a_key(run):
    doomed.using(concurrency_key="k").enqueue()
    blocked = doomed.using(concurrency_key="k").enqueue()
    backends["database"].fetch(["default"], 5, 60.0)
    (told,) = run("jobs_list", "--state", "blocked", "--json").json()["jobs"]
    assert (told["id"], told["state"]) == (blocked.id, "blocked")


def test_live_jobs(run):
    later = doomed.using(delay=200).enqueue()
    ready = doomed.using(priority=5, name="Now").enqueue()
    doomed.using(queue="other").enqueue()
    backends["database"].fetch(["other"], 1, 60.0)
    rows = {line.split()[0]: line for line in run("jobs_list").out.splitlines()}
    assert re.search(r"scheduled .* in 3 min", rows[later.id])
    assert re.search(r"ready .* now", rows[ready.id])
    running = run("jobs_list", "--state", "running", "--json").json()["jobs"]
    assert [one["queue"] for one in running] == ["other"]
    (one,) = run("jobs_list", "--state", "ready", "--json").json()["jobs"]
    assert list(one) == KEYS
    assert one["id"] == ready.id
    assert (one["priority"], one["name"], one["error"], one["ended"]) == (5, "Now", None, None)
    assert one["due"].endswith("+00:00")


def test_the_last_error_of_a_job_that_waits_for_its_retry(run):
    flaky.using(retry=[60]).enqueue()
    assert process_once().status == "requeued"
    line = run("jobs_list").out.splitlines()[1]
    assert "ConnectionError: attempt 1 found nobody at home" in line
    assert "in 60 s" in line or "in 59 s" in line or "in 1 min" in line


def test_jobs_that_ended(run, die):
    (dead,) = die()
    flaky.using(retry=[0]).enqueue()
    while process_once():
        pass
    cancelled = doomed.enqueue()
    assert cancel(cancelled.id, by="me")
    for state, count in (("dead", 1), ("succeeded", 1), ("cancelled", 1), ("skipped", 0)):
        told = run("jobs_list", "--state", state, "--json").json()["jobs"]
        assert [one["state"] for one in told] == [state] * count
        assert all(one["ended"] and one["due"] is None for one in told)
    (one,) = run("jobs_list", "--state", "dead", "--json").json()["jobs"]
    assert one["id"] == str(dead.job_id)
    assert one["error"] == {"type": "RuntimeError", "message": "this handler never succeeds"}
    assert "ended now" in run("jobs_list", "--state", "dead").out


def test_a_handler_is_looked_for_among_so_many_and_no_more(run, monkeypatch):
    for _ in range(3):
        doomed.enqueue()
    found = flaky.using(queue="z").enqueue()
    monkeypatch.setattr(jobs, "LOOKS_AT_MOST", 3)
    done = run("jobs_list", "--handler", flaky.key)
    assert done.out.startswith("There are no live jobs like that.\nIt was looked among the first")
    assert run("jobs_list", "--handler", flaky.key, "--json").json() == {"jobs": [], "more": True}
    assert found.id in run("jobs_list", "--handler", flaky.key, "--queue", "z").out


def test_results_are_looked_for_among_the_latest(run, monkeypatch):
    cancelled = doomed.enqueue()
    cancel(cancelled.id, by="me")
    for _ in range(2):
        flaky.using(retry=[0]).enqueue()
    while process_once():
        pass
    assert cancelled.id in run("jobs_list", "--state", "cancelled").out
    monkeypatch.setattr(jobs, "LOOKS_AT_MOST", 2)
    assert run("jobs_list", "--state", "cancelled", "--json").json() == {"jobs": [], "more": True}
    assert len(run("jobs_list", "--state", "succeeded", "--json").json()["jobs"]) == 2


def test_filters_and_limit(run):
    for queue in ("a", "a", "b"):
        doomed.using(queue=queue).enqueue()
    done = run("jobs_list", "--queue", "a", "--limit", "1")
    assert "There are more; --limit 10 shows more of them." in done.out
    told = run("jobs_list", "--queue", "a", "--limit", "1", "--json").json()
    assert (len(told["jobs"]), told["more"]) == (1, True)
    assert not run("jobs_list", "--handler", "nobody", "--json").json()["jobs"]
    assert len(run("jobs_list", "--handler", doomed.key, "--json").json()["jobs"]) == 3


def test_hostile_texts_are_written_out(run, hostile_letter):
    handle = doomed.enqueue()
    Job.objects.update(handler="\x1b[2Jx")
    hostile = HOSTILE.replace("\x00", "")
    JobAttempt.objects.create(
        backend="database",
        job_id=handle.id,
        number=1,
        outcome="failed",
        started_at=hostile_letter.failed_at,
        finished_at=hostile_letter.failed_at,
        error_type=hostile,
        error_message=hostile,
    )
    for options in ((), ("--json",), ("--state", "dead"), ("--state", "dead", "--json")):
        assert_harmless(run("jobs_list", *options).out)
    assert r"\x1b[31mred" in run("jobs_list").out


def test_the_memory_backend_is_looked_into(run, settings):
    settings.DJANGO_JOBS = {
        "BACKENDS": {"memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}},
        "DEFAULT_BACKEND": "memory",
    }
    handle = doomed.using(priority=3).enqueue()
    doomed.using(delay=60).enqueue()
    (one,) = run("jobs_list", "--state", "ready", "--queue", "default", "--json").json()["jobs"]
    assert (one["id"], one["backend"], one["priority"]) == (handle.id, "memory", 3)


def test_results_come_latest_first(run):
    handles = [flaky.using(retry=[0]).enqueue() for _ in range(2)]
    while process_once():
        pass
    assert JobResult.objects.count() == 2
    told = run("jobs_list", "--state", "succeeded", "--json").json()["jobs"]
    assert [one["id"] for one in told] == [handle.id for handle in reversed(handles)]


@pytest.mark.django_db(transaction=True)
def test_usage(manage):
    refused = manage("jobs_list", "--state", "lost")
    assert refused.returncode == 2
    assert "invalid choice: 'lost'" in refused.stderr
    assert manage("jobs_list", "--limit", "0").returncode == 2
    assert manage("jobs_list").returncode == 0
