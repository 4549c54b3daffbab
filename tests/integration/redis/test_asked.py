"""Running jobs of Redis are asked to stop, as those of a database are."""

import io
import json
import signal

import pytest
from django.core.management import call_command

from django_jobs.models import JobAttempt, OperatorEvent
from django_jobs.operations.cancel import cancel_or_ask_to_stop
from django_jobs.worker import process_once
from testproject.shop import jobs as shop
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


def take(backend):
    (lease,) = backend.fetch(["default"], 1, 30.0)
    return lease


def test_what_runs_is_asked_once(backend):
    handle, other = shop.doomed.enqueue(), shop.doomed.enqueue()
    mine, others = take(backend), take(backend)
    assert backend.asked_to_stop([mine, others]) == set()
    assert cancel_or_ask_to_stop(handle.id, by="ada", reason="wrong order").status == "asked"
    out = io.StringIO()
    call_command("jobs_cancel", handle.id, "--json", stdout=out)
    assert [one["status"] for one in json.loads(out.getvalue())["jobs"]] == ["already-asked"]
    assert backend.asked_to_stop([mine, others]) == {handle.id}
    event = OperatorEvent.objects.get()
    assert (event.action, event.actor, event.reason) == ("stop", "ada", "wrong order")
    backend.ack([mine])
    assert cancel_or_ask_to_stop(handle.id, by="ada").status == "gone"
    assert backend.store.connection.client.keys("*stops") == []
    assert not backend.ask_to_stop("00000000-0000-7000-8000-000000000000")
    backend.nack(others)
    assert not backend.ask_to_stop(other.id)
    assert cancel_or_ask_to_stop(other.id, by="ada").status == "cancelled"


def test_what_comes_back_after_it_was_asked_is_not_run_again(backend):
    handle = shop.doomed.using(max_retries=5).enqueue()
    mine = take(backend)
    cancel_or_ask_to_stop(handle.id, by="ada")
    backend.nack(mine)
    assert process_once().status == "cancelled"
    assert handle.status == "cancelled"
    assert backend.queues() == []


@pytest.mark.parametrize(
    ("processes", "how", "status"),
    [(1, "progress", "cancelled"), (0, "looks", "cancelled"), (1, "returns", "succeeded")],
)
def test_a_handler_hears_that_it_is_to_stop(jobs, start, diary, processes, how, status):
    handle = gang.watch.using(max_retries=5).enqueue(str(diary), how)
    pool = start(processes=processes, **{**jobs, "KILL_GRACE": 20})
    until(lambda: "watch-begins" in diary.words)
    child = diary.pid("watch-begins")
    assert cancel_or_ask_to_stop(handle.id, by="ada").status == "asked"
    until(lambda: handle.status == status)
    assert is_alive(child)
    assert not JobAttempt.objects.exists()
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0


def test_one_that_does_not_listen_is_stopped_and_not_run_again(jobs, start, diary):
    handle = gang.hold.using(max_retries=5).enqueue(str(diary), str(diary.gate))
    pool = start(processes=1, **{**jobs, "KILL_GRACE": 1})
    until(lambda: "hold-begins" in diary.words)
    child = diary.pid("hold-begins")
    cancel_or_ask_to_stop(handle.id, by="ada")
    until(lambda: handle.status == "cancelled")
    until(lambda: not is_alive(child))
    assert diary.words.count("hold-begins") == 1
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
