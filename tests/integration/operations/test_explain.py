"""Why a job is not running: one test for each cause, which is really there."""

from datetime import date

import pytest

from django_jobs import job
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.registry import backends
from django_jobs.clock import ManualClock, SystemClock
from django_jobs.handlers.registry import registry
from django_jobs.models import Job
from django_jobs.operations.cancel import cancel, cancel_or_ask_to_stop
from django_jobs.operations.explain import explain
from django_jobs.operations.queues import limit_queue, pause_queue
from django_jobs.operations.replay import replay
from django_jobs.operations.workers import drain, workers
from django_jobs.worker.build import process_once
from django_jobs.worker.duties import Presence
from testproject.shop.jobs import doomed, flaky
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db


@job(key="explained.of_today")
def of_today():
    return date(2026, 1, 1)


@pytest.fixture
def worker():
    """One that is there and serves every queue."""
    presence = Presence(backends["database"], "every queue")
    presence.write()
    return presence


@pytest.fixture
def clock(monkeypatch):
    """The database's clock, in the hands of the test."""
    from django_jobs.db.clock import StoreClock  # noqa: PLC0415 - for this one

    clock = ManualClock(SystemClock().now())
    monkeypatch.setattr(backends["database"], "clock", StoreClock(clock))
    return clock


def kinds(handle):
    return [cause.kind for cause in explain(handle.id).causes]


def cause(handle, kind):
    (found,) = [one for one in explain(handle.id).causes if one.kind == kind]
    assert found.way_out
    return found.text


def lease():
    """Of a backend that has not looked at any limits yet."""
    backend = DatabaseBackend("database", {})
    backend.clock = backends["database"].clock
    return backend.fetch(["default"], 1, 30)


def test_nothing_is_in_its_way(worker):
    handle = doomed.enqueue()
    assert kinds(handle) == ["its-turn"]
    assert cause(handle, "its-turn") == "Nothing is in its way."
    later = doomed.enqueue()
    assert "but 1 jobs of its queue that come before it" in cause(later, "its-turn")


def test_it_is_not_due(worker):
    handle = doomed.using(delay=3600).enqueue()
    assert kinds(handle) == ["not-due"]
    assert "UTC, in 60 minutes" in cause(handle, "not-due")


def test_it_waits_for_a_retry(worker):
    handle = flaky.using(retry=[600]).enqueue()
    process_once()
    assert kinds(handle) == ["not-due"]
    assert "It waits after 1 failed attempts" in cause(handle, "not-due")


def test_its_queue_is_paused(worker):
    handle = doomed.enqueue()
    pause_queue("default", by="ada", reason="the mail server moves")
    limit_queue("default", {"rate_limit": "60/m"}, by="bob")
    assert kinds(handle) == ["paused"]
    told = cause(handle, "paused")
    assert told.startswith("The queue default was paused by ada at ")
    assert "the mail server moves" in told


def test_no_worker_is_there():
    assert "no worker is running at all" in cause(doomed.enqueue(), "no-worker")


def test_no_worker_listens_on_its_queue():
    Presence(backends["database"], "mail:3,reports:1").write()
    handle = doomed.enqueue()
    assert kinds(handle) == ["no-worker"]
    assert "those there are serve mail:3,reports:1" in cause(handle, "no-worker")
    assert kinds(doomed.using(queue="reports").enqueue()) == ["its-turn"]


def test_the_worker_has_not_been_seen_for_a_while(clock):
    Presence(backends["database"], "every queue").write()
    handle = doomed.enqueue()
    assert kinds(handle) == ["its-turn"]
    clock.advance(31)
    assert kinds(handle) == ["no-worker"]


def test_every_worker_drains(worker):
    (seen,) = workers()
    drain(str(seen.worker.pk), by="ada")
    assert "was asked to drain" in cause(doomed.enqueue(), "no-worker")


def test_its_queue_is_rate_limited(worker):
    limit_queue("default", {"rate_limit": "1/h"}, by="ada")
    doomed.enqueue()
    handle = doomed.enqueue()
    assert kinds(handle) == ["its-turn"]
    assert len(lease()) == 1
    assert kinds(handle) == ["rate-limited"]
    assert "default, 1/h, is used up for the next 6" in cause(handle, "rate-limited")


def test_all_places_of_its_queue_are_taken(worker):
    limit_queue("default", {"concurrency": 1}, by="ada")
    doomed.enqueue()
    handle = doomed.enqueue()
    lease()
    assert kinds(handle) == ["concurrency"]


@pytest.mark.parametrize("key", ["concurrency_key", "idempotency_key"])
def test_another_job_holds_its_key(worker, key):
    holder = doomed.using(**{key: "k"}).enqueue()
    handle = doomed.using(**{key: "k"}).enqueue()
    assert kinds(handle) == ["its-turn"]
    lease()
    lease()  # finds no place for it, and parks it
    assert explain(handle.id).state == "blocked"
    assert kinds(handle) == ["key-held"]
    assert f"{key} lets 1 run at a time, and is held by job {holder.id} on" in cause(
        handle, "key-held"
    )


def test_no_handler_is_known_here(worker, monkeypatch):
    @job(key="tests.renamed")
    def renamed():
        """Is gone in a moment."""

    handle = renamed.enqueue()
    monkeypatch.delitem(registry._handlers, "tests.renamed")
    assert kinds(handle) == ["unknown-handler"]
    assert "'tests.renamed'" in cause(handle, "unknown-handler")


def test_its_queue_does_not_allow_the_handler(worker, settings):
    handle = doomed.enqueue()
    settings.DJANGO_JOBS = {"QUEUES": {"default": {"HANDLERS": []}}}
    assert kinds(handle) == ["not-allowed"]


def test_a_worker_has_it(worker):
    handle = doomed.enqueue()
    lease()
    row = Job.objects.get()
    assert kinds(handle) == ["leased"]
    assert cause(handle, "leased").startswith(f"{row.worker} has held it for 0 seconds; its lease")


def test_its_lease_ended_and_nobody_cares(clock):
    handle = doomed.enqueue()
    lease()
    clock.advance(45)
    assert kinds(handle) == ["lease-ended", "no-worker"]
    assert "ended 15 seconds ago without a verdict" in cause(handle, "lease-ended")


def test_it_is_a_suspect(clock):
    handle = doomed.enqueue()
    lease()
    clock.advance(45)
    assert backends["database"].reap_expired() == 1
    Presence(backends["database"], "").write()
    assert kinds(handle) == ["suspect"]


def test_it_was_asked_to_stop(worker):
    handle = doomed.enqueue()
    (mine,) = lease()
    cancel_or_ask_to_stop(handle.id, by="ada")
    assert kinds(handle) == ["leased", "stop-asked"]
    backends["database"].nack(mine, 60)
    assert kinds(handle) == ["not-due", "stop-asked"]


def test_its_time_is_over(worker, clock):
    handle = doomed.using(expires=5).enqueue()
    clock.advance(6)
    Presence(backends["database"], "").write()
    assert kinds(handle) == ["expired"]


def test_it_was_cancelled():
    handle = doomed.enqueue()
    cancel(handle.id, by="ada")
    assert explain(handle.id).state == "cancelled"
    assert cause(handle, "cancelled").startswith("It was cancelled at ")


def test_it_succeeded_and_its_return_value_is_not_kept():
    handle = of_today.enqueue()
    assert process_once().status == "acked"
    (cause,) = explain(handle.id).causes
    assert "Its return value was not kept: value is of type date, which is not JSON" in cause.text


def test_it_succeeded():
    handle = flaky.using(max_retries=3, retry="none").enqueue()
    for _ in range(3):
        process_once()
    assert explain(handle.id).state == "succeeded"
    assert kinds(handle) == ["ended"]


def test_it_is_dead_or_was_replayed():
    failed = die()
    found = explain(str(failed.job_id))
    assert (found.state, found.causes[0].kind) == ("dead", "dead")
    assert f"jobs_dlq replay {failed.pk}" in found.causes[0].way_out
    replayed = replay(failed.pk, by="ada")
    found = explain(str(failed.job_id))
    assert f"replayed as {replayed.new_id}" in found.causes[0].text


@pytest.mark.parametrize("text", ["", "elephant", "00000000-0000-7000-8000-000000000000"])
def test_nobody_knows_it(text):
    found = explain(text)
    assert (found.state, found.found, len(found.causes)) == ("unknown", False, 1)


def test_two_causes_are_told_in_their_order():
    handle = doomed.using(delay=60).enqueue()
    pause_queue("default", by="ada")
    assert kinds(handle) == ["not-due", "paused", "no-worker"]


def test_a_job_elsewhere(settings):
    settings.DJANGO_JOBS = {
        "BACKENDS": {
            "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
            "memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
        }
    }
    handle = doomed.using(backend="memory", delay=60).enqueue()
    found = explain(handle.id)
    assert (found.backend, [one.kind for one in found.causes]) == ("memory", ["not-due"])


def test_asking_changes_nothing(worker):
    handle = doomed.enqueue()
    before = Job.objects.values().get()
    explain(handle.id)
    assert Job.objects.values().get() == before
