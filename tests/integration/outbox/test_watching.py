"""What operators are told of the outbox: a job that waits there, and one that waits too long."""

import json

import pytest
from django.core.management import call_command

from django_jobs import job
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.exceptions import StoreUnavailable
from django_jobs.models import OutboxJob
from django_jobs.operations.explain import explain
from django_jobs.operations.health import HealthLimits, find_problems
from django_jobs.outbox import relay
from django_jobs.worker.build import build_relay

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@job(key="outbox.watched")
def watched():
    pass


def stalls(**limits):
    return [
        one for one in find_problems(HealthLimits(min_workers=0, **limits)) if one.kind == "outbox"
    ]


def wait(seconds):
    for row in OutboxJob.objects.all():
        row.created -= seconds * SECOND
        row.save()


@pytest.fixture
def carrier(broker):
    return broker(OUTBOX="default")


def test_a_job_that_waits_there_is_told_of(carrier):
    handle = watched.enqueue()
    found = explain(handle.id)
    assert (found.state, found.backend, found.found) == ("in the outbox", "broker", True)
    (cause,) = found.causes
    assert cause.kind == "in-outbox"
    assert cause.text.startswith("It waits in the outbox since 20")
    OutboxJob.objects.update(refusals=2, problem="QueueFull: no")
    (cause,) = explain(handle.id).causes
    assert "refused there 2 times, the last time so: QueueFull: no" in cause.text


def listed(capsys, *options):
    call_command("jobs_list", "--json", *options)
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    return [(one["id"], one["state"], one["outbox"]) for one in jobs]


def test_a_job_that_waits_there_is_listed(carrier, capsys):
    ready = watched.enqueue()
    later = watched.using(delay=60, queue="mail").enqueue()
    both = [(ready.id, "ready", True), (later.id, "scheduled", True)]
    assert listed(capsys) == both
    assert listed(capsys, "--state", "scheduled") == both[1:]
    assert listed(capsys, "--queue", "default") == both[:1]
    assert listed(capsys, "--handler", "other.handler") == []
    assert listed(capsys, "--state", "running") == []
    call_command("jobs_list", "--limit", "1")
    assert "ready (outbox)" in capsys.readouterr().out
    assert build_relay(carrier, get_settings()).step().jobs == 2
    assert (ready.id, "ready", False) in listed(capsys)


@pytest.mark.parametrize("rest", [relay.FIRST_REST, 0.0])  # 0: tried again before the end
def test_moving_by_hand_names_a_queue_that_cannot_be_moved(carrier, capsys, monkeypatch, rest):
    monkeypatch.setattr(relay, "FIRST_REST", rest)
    stuck, _ = watched.using(queue="alpha").enqueue(), watched.using(queue="beta").enqueue()
    push = carrier.push

    def refuse(outgoing, **how):
        if outgoing[0].id == stuck.id:
            raise StoreUnavailable("its shard is away", undone=True)
        return push(outgoing, **how)

    monkeypatch.setattr(carrier, "push", refuse)
    with pytest.raises(SystemExit) as ended:
        call_command("jobs_reap")
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "1 jobs moved from the outbox, 1 are left",
        "the queue alpha cannot be moved: StoreUnavailable: its shard is away",
    ]


def test_once_it_was_moved_on_its_backend_is_asked(carrier):
    handle = watched.enqueue()
    assert build_relay(carrier, get_settings()).step().jobs == 1
    found = explain(handle.id)
    assert (found.state, found.causes[0].kind) == ("ready", "no-worker")


def test_a_probe_finds_an_outbox_that_nobody_empties(carrier, capsys):
    watched.enqueue()
    wait(30)
    assert stalls() == []
    wait(270)
    (one,) = stalls()
    assert (one.backend, one.queue, one.jobs) == ("broker", "default", 1)
    assert one.seconds == pytest.approx(300, abs=30)
    assert stalls(queue="mail") == []
    assert len(stalls(queue="default")) == 1
    with pytest.raises(SystemExit) as ended:
        call_command("jobs_status", "--check", "--min-workers", "0")
    assert ended.value.code == 1
    assert "outbox: default (broker) has 1 that no relay has moved on" in capsys.readouterr().out
