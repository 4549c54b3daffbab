"""Breakers of queues and handlers, as one process sees them on the run's database."""

import io
import json
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import Count
from django.test.utils import CaptureQueriesContext

from django_jobs import Cancel, enqueue_many, job, signals
from django_jobs.backends import shared_breakers
from django_jobs.backends.database import breakers
from django_jobs.backends.database.backend import TURNS
from django_jobs.backends.registry import backends
from django_jobs.models import Breaker, FailedJob, Job, JobResult, JobState, OperatorEvent
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db
COOLDOWN = 60
calls = []


@job(key="breakers.work", max_retries=100, retry="fixed")
def work(how="succeed"):
    calls.append(how)
    if how == "fail":
        raise RuntimeError("the other side is down")
    if how == "cancel":
        raise Cancel


@pytest.fixture(autouse=True)
def site(settings):
    settings.DJANGO_JOBS = {
        "RETRY": [0],
        "CIRCUIT_BREAKER": {
            "THRESHOLD": 3,
            "COOLDOWN": COOLDOWN,
            "HANDLERS": {"breakers.work": {}},
        },
    }
    calls.clear()
    look()


@pytest.fixture
def opened():
    opened = []

    def hear(sender, signal, **facts):
        opened.append(facts)

    signals.breaker_opened.connect(hear)
    yield opened
    signals.breaker_opened.disconnect(hear)


def look():
    """As half a second later."""
    backends["database"]._breakers._looked_at = float("-inf")
    backends["database"]._closed._until.clear()


def once(queue="default"):
    look()
    return process_once(queue).status


def forge(count, queue="default"):
    """Jobs whose bodies somebody changed."""
    ids = [work.using(queue=queue).enqueue().id for _ in range(count)]
    Job.objects.filter(pk__in=ids).update(signature="0" * 64)


def later(seconds=COOLDOWN):
    for breaker in Breaker.objects.filter(opened_at__isnull=False):
        breaker.opened_at -= seconds * 1_000_000
        breaker.save()


def open_by_rejections():
    forge(10)
    assert {once() for _ in range(10)} == {"rejected"}


def test_ten_rejections_in_a_row_close_a_queue_and_nobody_loses_an_attempt(opened, caplog):
    forge(9)
    assert {once() for _ in range(9)} == {"rejected"}
    assert opened == []
    forge(1)
    assert once() == "rejected"
    (facts,) = opened
    assert facts == {
        "kind": "queue",
        "backend": "database",
        "subject": "default",
        "failures": 10,
        "seconds": 60.0,
    }
    (logged,) = [record for record in caplog.records if record.key == "breaker.opened"]
    assert "breaker of the queue default (database) is open after 10" in logged.getMessage()
    handle = work.enqueue()
    assert [once() for _ in range(3)] == ["circuit-open"] * 3
    waiting = Job.objects.get()
    assert (waiting.attempts, waiting.deliveries, str(waiting.pk)) == (0, 0, handle.id)
    assert calls == []


def test_a_message_that_is_believed_begins_the_count_anew(opened):
    forge(9)
    assert {once() for _ in range(9)} == {"rejected"}
    work.enqueue()
    assert once() == "acked"
    forge(9)
    assert {once() for _ in range(9)} == {"rejected"}
    assert opened == []
    work.enqueue()
    assert once() == "acked"


def test_other_queues_go_on():
    open_by_rejections()
    work.using(queue="mail").enqueue()
    work.enqueue()
    look()
    assert process_once(["default", "mail"]).queue == "mail"


def test_one_job_tries_and_what_it_comes_to_decides(opened):
    open_by_rejections()
    forge(1)
    for _ in range(2):
        work.enqueue()
    assert once() == "circuit-open"
    later()
    assert [once(), once()] == ["rejected", "circuit-open"]  # anew, for another while
    assert len(opened) == 2
    later()
    assert [once(), once(), once()] == ["acked", "acked", "empty"]
    assert Breaker.objects.get().failures == 0


def test_while_one_tries_no_other_does():
    open_by_rejections()
    later()
    for _ in range(3):
        work.enqueue()
    backend = backends["database"]
    look()
    (probe,) = backend.fetch(["default"], 10, 30)
    assert probe.probe
    for _ in range(3):
        look()
        assert backend.fetch(["default"], 10, 30) == []
    # Its worker is lost: when the lease ends, another one may try.
    Job.objects.filter(pk=probe.id).update(lease_expires=1)
    look()
    (another,) = backend.fetch(["default"], 10, 30)
    assert (another.probe, another.id != probe.id) == (True, True)


def test_a_probe_that_runs_for_long_was_not_refused():
    open_by_rejections()
    later()
    for _ in range(3):
        work.enqueue()
    backend = backends["database"]
    look()
    (probe,) = backend.fetch(["default"], 10, 30)
    long_ago = int((shared_breakers.TRUSTED_SECONDS + 1) * 1_000_000)
    job_row = Job.objects.get(pk=probe.id)
    Job.objects.filter(pk=probe.id).update(leased_at=job_row.leased_at - long_ago)
    look()
    assert len(backend.fetch(["default"], 10, 30)) == 1
    look()
    assert len(backend.fetch(["default"], 10, 30)) == 1


def test_rejections_may_be_told_to_open_nothing(settings):
    settings.DJANGO_JOBS = {"CIRCUIT_BREAKER": {"REJECTIONS": None}}
    forge(20)
    assert {once() for _ in range(20)} == {"rejected"}
    assert not Breaker.objects.exists()


def test_failures_in_a_row_open_the_breaker_of_a_handler(opened):
    for _ in range(3):
        work.using(max_retries=0).enqueue("fail")
    assert [once() for _ in range(3)] == ["dead-lettered"] * 3
    assert [(one["kind"], one["subject"]) for one in opened] == [("handler", "breakers.work")]
    work.enqueue()
    work.enqueue()
    assert once() == "empty"
    assert set(Job.objects.values_list("state", "attempts", "deliveries")) == {(0, 0, 0)}
    assert min(Job.objects.values_list("due", flat=True)) > Breaker.objects.get().opened_at
    later()
    Job.objects.update(due=0)
    assert once() == "acked"
    Job.objects.update(due=0)
    assert once() == "acked"
    assert JobResult.objects.filter(attempts=0).count() == 2


def test_a_success_between_two_failures_keeps_the_handlers_breaker_closed(opened):
    for how in ("fail", "fail", "succeed", "fail", "fail"):
        work.using(max_retries=0).enqueue(how)
        once()
    assert opened == []


def test_a_probe_that_comes_to_nothing_lets_another_one_try():
    for _ in range(3):
        work.using(max_retries=0).enqueue("fail")
    assert [once() for _ in range(3)] == ["dead-lettered"] * 3
    later()
    for how in ("cancel", "succeed"):
        work.enqueue(how)
    assert once() == "cancelled"
    assert Breaker.objects.get().opened_at is not None
    Job.objects.update(due=0)
    assert once() == "acked"
    assert Breaker.objects.get().opened_at is None


def test_a_handler_without_one_fails_as_often_as_it_likes(settings):
    settings.DJANGO_JOBS = {"CIRCUIT_BREAKER": {"THRESHOLD": 1}}
    for _ in range(5):
        work.using(max_retries=0).enqueue("fail")
    assert [once() for _ in range(5)] == ["dead-lettered"] * 5
    assert not Breaker.objects.exists()
    assert FailedJob.objects.count() == 5


def run(*arguments):
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_an_operator_sees_and_closes_it():
    open_by_rejections()
    work.enqueue()
    told = json.loads(run("jobs_status", "--json"))
    assert told["queues"][0]["breaker"] == "open"
    (breaker,) = told["breakers"]
    assert (breaker["kind"], breaker["name"], breaker["state"]) == ("queue", "default", "open")
    assert "open" in run("jobs_status")
    assert json.loads(run("jobs_queue", "reset-breaker", "default", "--json"))["changed"]
    assert not json.loads(run("jobs_queue", "reset-breaker", "default", "--json"))["changed"]
    assert OperatorEvent.objects.values_list("action", "queue").get() == (
        "reset-breaker",
        "default",
    )
    assert once() == "acked"


def test_an_operator_closes_that_of_a_handler():
    for _ in range(3):
        work.using(max_retries=0).enqueue("fail")
        once()
    assert json.loads(run("jobs_status", "--json"))["breakers"][0]["kind"] == "handler"
    arguments = ("jobs_queue", "reset-breaker", "default", "--handler", "breakers.work", "--json")
    assert json.loads(run(*arguments))["changed"]
    assert OperatorEvent.objects.get().subject == "breakers.work"
    work.enqueue()
    assert once() == "acked"


@job(key="breakers.sound")
def sound(how=""):
    calls.append(how)


def open_by_failures():
    for _ in range(3):
        work.using(max_retries=0, priority=50).enqueue("fail")
        once()
    look()


def states():
    counted = Job.objects.order_by().values_list("handler", "state").annotate(n=Count("pk"))
    return {(handler, JobState(state).label): n for handler, state, n in counted}


def test_a_fetch_beside_many_jobs_of_a_broken_handler_is_short_and_says_so():
    open_by_failures()
    backend = backends["database"]
    enqueue_many(work.prepare() for _ in range(40))
    sound.enqueue()
    with mock.patch.object(breakers, "PUT_OFF_AT_ONCE", 5):
        with CaptureQueriesContext(connection) as sent:
            assert backend.fetch(["default"], 1, 30) == []
        assert backend.fetch_ended_early
        assert len(sent) < 100
        assert states() == {
            ("breakers.work", "scheduled"): TURNS * 6,
            ("breakers.work", "ready"): 40 - TURNS * 6,
            ("breakers.sound", "ready"): 1,
        }
        (lease,) = backend.fetch(["default"], 1, 30)
    assert (lease.message.index["handler"], backend.fetch_ended_early) == ("breakers.sound", False)
    assert once() == "empty"
    assert not backend.fetch_ended_early


def test_one_cycle_passes_over_all_of_them():
    open_by_failures()
    enqueue_many(work.prepare() for _ in range(40))
    sound.enqueue("after them")
    with mock.patch.object(breakers, "PUT_OFF_AT_ONCE", 5):
        assert once() == "acked"
    assert calls[-1] == "after them"
    assert set(Job.objects.values_list("deliveries", "attempts")) == {(0, 0)}


def test_what_runs_or_is_of_another_backend_or_later_is_not_put_off():
    open_by_failures()
    backend = backends["database"]
    ids = [work.enqueue().id for _ in range(5)]
    due = Job.objects.get(pk=ids[0]).due
    Job.objects.filter(pk=ids[1]).update(state=JobState.RUNNING, lease_token="x")
    Job.objects.filter(pk=ids[2]).update(backend="another")
    Job.objects.filter(pk=ids[3]).update(state=JobState.SCHEDULED, due=due + 10**12)
    Job.objects.filter(pk=ids[4]).update(state=JobState.SCHEDULED)
    now = backend.clock.read(connection)
    backend._breakers._put_off_next("breakers.work", "default", now, now + 5)
    found = {str(pk): told for pk, *told in Job.objects.values_list("pk", "state", "due")}
    assert [found[one][0] for one in ids] == [0, JobState.RUNNING, JobState.READY, 0, 0]
    assert [found[one][1] - now for one in (ids[0], ids[4])] == [5, 5]
    assert found[ids[3]][1] == due + 10**12


def test_jobs_of_other_handlers_that_wait_for_the_key_of_one_put_off_go_on():
    """The one put off was next in line for the key."""
    backend = backends["database"]
    handles = [one.using(concurrency_key="k").enqueue() for one in (sound, work, work, sound)]
    (first,) = backend.fetch(["default"], 1, 30)
    assert first.id == handles[0].id
    assert backend.fetch(["default"], 9, 30) == []
    open_by_failures()
    backend.ack([first])  # the place is free for the second
    assert once() == "acked"
    assert str(JobResult.objects.latest("finished_at").pk) == handles[3].id
