"""What operators do with the jobs of Redis: look, explain, replay, discard, delete."""

import contextlib
import io
import json
import logging

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob
from django_jobs.operations.cancel import cancel_or_ask_to_stop
from django_jobs.operations.overview import overview
from django_jobs.worker import process_once
from testproject.shop import jobs as shop
from tests.integration.redis.conftest import jobs_in
from tests.integration.worker.pool.conftest import until
from tests.redis_servers import Server

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def site(jobs):
    pass


def run(*arguments):
    out = io.StringIO()
    call_command(*arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def kinds(job_id):
    return [cause["kind"] for cause in run("jobs_explain", job_id)["causes"]]


@contextlib.contextmanager
def renamed(jobs, server):
    """The site under another name, to which its keys were handed over, and back."""
    with override_settings(DJANGO_JOBS={**jobs, "SITE": "web"}):
        server.client.delete(backends["redis"].store.layout.site)
        yield
    server.client.delete(backends["redis"].store.layout.site)


def doomed():
    handle = shop.doomed.using(max_retries=0).enqueue()
    assert process_once().status == "dead-lettered"
    return handle


def test_live_and_dead_jobs_are_listed():
    dead = doomed()
    later = shop.doomed.using(delay=600).enqueue()
    listed = {one["id"]: one["state"] for one in run("jobs_list")["jobs"]}
    assert listed == {later.id: "scheduled"}
    assert [one["id"] for one in run("jobs_list", "--state", "dead")["jobs"]] == [dead.id]


def test_preflight_tells_of_messages_that_would_not_be_run_here(jobs, server):
    with renamed(jobs, server):
        other = shop.doomed.enqueue()
    shop.doomed.using(delay=600).enqueue()
    before = backends["redis"].find(other.id)
    out = io.StringIO()
    call_command("jobs_preflight", "--json", stdout=out)
    texts = [one["text"] for one in json.loads(out.getvalue())["findings"]]
    assert (
        "1 of the first 2 that wait on redis would not be run here (other-site, in default): "
        "the job was made for the site 'web', not 'testproject'"
    ) in texts
    now = backends["redis"].find(other.id)
    assert (now.state, now.message.header) == (before.state, before.message.header)


def test_what_cannot_be_judged_waits_in_redis_until_it_can(jobs, server):
    with renamed(jobs, server):
        handle = shop.doomed.using(max_retries=0).enqueue()
    with override_settings(DJANGO_JOBS={**jobs, "SNOOZE_DELAY": 0.05}):
        for _ in range(2):
            until(lambda: process_once().status == "snoozed")
        since = backends["redis"].find(handle.id).message.header.put_off_since
        assert since is not None
    with renamed(jobs, server):
        until(lambda: process_once().status == "dead-lettered")
    assert FailedJob.objects.get().reason == "exhausted"


def test_what_nobody_can_judge_in_redis_is_dead_when_patience_ends(jobs):
    with override_settings(DJANGO_JOBS={**jobs, "SIGNING_KEYS": ["another key " * 4]}):
        shop.doomed.enqueue()
    patience = {"SNOOZE_DELAY": 0.05, "UNKNOWN_PATIENCE": 0.3}
    with override_settings(DJANGO_JOBS={**jobs, **patience}):
        assert process_once().status == "snoozed"
        until(lambda: process_once().status == "dead-lettered")
    assert FailedJob.objects.get().reason == "unknown-key"


def test_a_replay_goes_to_redis_once():
    dead = doomed()
    run("jobs_dlq", "replay", dead.id)
    run("jobs_dlq", "replay", dead.id)
    letter = FailedJob.objects.get()
    (waiting,) = backends["redis"].peek("default")
    assert (letter.resolution, str(letter.replayed_as)) == ("replayed", waiting.id)
    assert process_once().status == "dead-lettered"
    assert FailedJob.objects.count() == 2


def test_a_discarded_letter_is_settled_and_can_be_deleted():
    run("jobs_dlq", "discard", doomed().id)
    assert run("jobs_dlq", "list")["dead_letters"] == []
    call_command(
        "jobs_purge", "--state", "dead", "--older-than", "0d", "--force", stdout=io.StringIO()
    )
    assert not FailedJob.objects.exists()


def test_what_keeps_a_job_waiting_is_told():
    assert kinds(shop.doomed.using(delay=600).enqueue().id) == ["not-due", "no-worker"]
    handle = shop.doomed.enqueue()
    assert kinds(handle.id) == ["no-worker"]
    run("jobs_queue", "pause", "default")
    assert kinds(handle.id) == ["paused", "no-worker"]


def take(seconds=30.0):
    (lease,) = backends["redis"].fetch(["default"], 1, seconds)
    return lease


def test_running_and_blocked_jobs_are_listed():
    single = shop.doomed.using(concurrency_key="disk")
    running, blocked, ready = single.enqueue(), single.enqueue(), shop.doomed.enqueue()
    take()
    assert take().id == ready.id
    listed = {one["id"]: one["state"] for one in run("jobs_list")["jobs"]}
    assert listed == {running.id: "running", blocked.id: "blocked", ready.id: "running"}
    only = [one["id"] for one in run("jobs_list", "--state", "running")["jobs"]]
    assert sorted(only) == sorted([running.id, ready.id])
    assert kinds(blocked.id) == ["key-held", "no-worker"]


def test_a_lease_that_is_held_or_over_and_what_it_makes_of_its_job_are_told():
    backend, handle = backends["redis"], shop.doomed.enqueue()
    lease = take(0.05)
    until(lambda: kinds(handle.id) == ["lease-ended", "no-worker"])
    assert backend.reap_expired() == 1
    assert kinds(handle.id) == ["suspect", "no-worker"]
    held = take()
    assert (lease.id, held.id) == (handle.id, handle.id)
    assert kinds(handle.id)[1:] == ["suspect"]
    cancel_or_ask_to_stop(handle.id, by="ada")
    assert kinds(handle.id)[1:] == ["stop-asked", "suspect"]


def test_a_queue_that_is_full_or_has_used_its_rate_is_told():
    run("jobs_queue", "set", "default", "concurrency=1")
    shop.doomed.enqueue()
    waiting = shop.doomed.enqueue()
    lease = take()
    assert kinds(waiting.id) == ["no-worker", "concurrency"]
    backends["redis"].ack([lease])
    run("jobs_queue", "set", "default", "concurrency=none", "rate_limit=1/m")
    assert kinds(waiting.id) == ["no-worker"]
    until(lambda: backends["redis"].fetch(["default"], 1, 30.0))
    last = shop.doomed.enqueue()
    until(lambda: kinds(last.id) == ["no-worker", "rate-limited"])


def test_what_ended_is_told_to_have_ended():
    handle = shop.doomed.enqueue()
    assert backends["redis"].cancel(handle.id)
    assert kinds(handle.id) == ["cancelled"]
    assert kinds(doomed().id) == ["dead"]


def test_the_overview_finds_queues_that_only_the_broker_knows():
    shop.doomed.using(queue="nowhere-configured").enqueue()
    (found,) = [one for one in overview() if one.queue == "nowhere-configured"]
    assert (found.backend, found.ready, found.problem) == ("redis", 1, "")


def test_a_monitor_is_not_told_where_redis_is_and_the_log_is(client, caplog):
    gone = Server()  # never started
    token = "a-token-that-is-only-for-tests"
    site = {**jobs_in(gone), "QUEUES": {"default": {}}, "MONITOR_TOKEN": token}
    with override_settings(DJANGO_JOBS=site):
        told = client.get("/jobs/health/", headers={"Authorization": f"Bearer {token}"})
    problems = {one["detail"] for one in told.json()["problems"] if one["kind"] == "unreachable"}
    assert problems == {"StoreUnavailable (ConnectionError)"}
    for secret in ("127.0.0.1", str(gone.port)):
        assert secret not in told.content.decode()
    (logged, *_) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert f"127.0.0.1:{gone.port}" in logged.getMessage()


def preflight_of_backends():
    """The findings, though the command ends with 1 where there is one that failed."""
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command("jobs_preflight", "--json", stdout=out)
    return [one for one in json.loads(out.getvalue())["findings"] if one["what"] == "backend"]


def test_preflight_asks_the_server(own_server):
    with override_settings(DJANGO_JOBS=jobs_in(own_server)):
        (found,) = preflight_of_backends()
        assert found["state"] == "ok"
        assert found["text"].startswith("redis answers in ")
        own_server.kill()
        (found,) = preflight_of_backends()
    assert found["state"] == "failed"
    assert found["text"].startswith("redis cannot be used: StoreUnavailable: ")
    assert "BACKENDS['redis']" in found["way_out"]
