"""What operators are told of the outbox: a job that waits there, and one that waits too long."""

import pytest
from django.core.management import call_command

from django_jobs import job, operations
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.models import OutboxJob
from django_jobs.operations.health import Limits, troubles
from django_jobs.worker.build import build_relay

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@job(key="outbox.watched")
def watched():
    pass


def stalls(**limits):
    return [one for one in troubles(Limits(min_workers=0, **limits)) if one.kind == "outbox"]


def wait(seconds):
    for row in OutboxJob.objects.all():
        row.created -= seconds * SECOND
        row.save()


@pytest.fixture
def carrier(broker):
    return broker(OUTBOX="default")


def test_a_job_that_waits_there_is_told_of(carrier):
    handle = watched.enqueue()
    found = operations.explain(handle.id)
    assert (found.state, found.backend, found.found) == ("in the outbox", "broker", True)
    (cause,) = found.causes
    assert cause.kind == "in-outbox"
    assert cause.told.startswith("It waits in the outbox since 20")
    OutboxJob.objects.update(refusals=2, problem="QueueFull: no")
    (cause,) = operations.explain(handle.id).causes
    assert "refused there 2 times, the last time so: QueueFull: no" in cause.told


def test_once_it_was_moved_on_its_backend_is_asked(carrier):
    handle = watched.enqueue()
    assert build_relay(carrier, get_settings()).step().jobs == 1
    found = operations.explain(handle.id)
    assert (found.state, found.causes[0].kind) == ("ready", "no-worker")


def test_a_probe_finds_an_outbox_that_nobody_empties(carrier, capsys):
    watched.enqueue()
    wait(59)
    assert stalls() == []
    wait(241)
    (one,) = stalls()
    assert (one.backend, one.queue, one.jobs) == ("broker", "default", 1)
    assert one.seconds == pytest.approx(300, abs=30)
    assert stalls(queue="mail") == []
    assert len(stalls(queue="default")) == 1
    with pytest.raises(SystemExit) as ended:
        call_command("jobs_status", "--check", "--min-workers", "0")
    assert ended.value.code == 1
    assert "outbox: default (broker) has 1 that no relay has moved on" in capsys.readouterr().out
