"""What an event is: fields, as a frozen dataclass has them."""

import copy
import pickle

import pytest

from django_jobs.telemetry import events, logs

JOB = {"job_id": "0190", "queue": "mail", "handler": "shop.send"}


def test_the_fields_of_its_bases_come_first():
    own = ("delay", "error_type", "error_message", "seconds", "waited")
    assert events.JobRetried.names == ("job_id", "queue", "handler", "attempt", "trace_id", *own)
    assert events.JobClaimed.names == events.JobEvent.names
    assert events.SchedulerStarted.names == ()


def test_what_is_not_named_has_its_default():
    event = events.JobSucceeded(**JOB, seconds=0.5)
    assert (event.queue, event.attempt, event.seconds, event.waited) == ("mail", 0, 0.5, 0.0)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"job_id": "1"}, "handler, queue"),
        ({**JOB, "colour": "red"}, "colour"),
        ({"job_id": "1", "queue": "mail", "colour": "red"}, "colour, handler"),
    ],
)
def test_other_fields_are_refused(fields, wrong):
    with pytest.raises(TypeError, match=f"JobClaimed.*: {wrong}$"):
        events.JobClaimed(**fields)


def test_it_cannot_be_changed():
    event = events.JobClaimed(**JOB)
    with pytest.raises(AttributeError, match="queue"):
        event.queue = "other"
    with pytest.raises(AttributeError, match="queue"):
        del event.queue
    assert event.queue == "mail"


def test_those_of_one_kind_with_the_same_fields_are_equal():
    event = events.JobClaimed(**JOB)
    same = events.JobClaimed(**JOB, attempt=0)
    assert event == same
    assert hash(event) == hash(same)
    assert event != events.JobClaimed(**JOB, attempt=1)
    assert event != events.JobStarted(**JOB)
    assert event != JOB


def test_it_is_shown_as_it_is_written():
    shown = repr(events.WorkerStarted(queues="mail", backend="database"))
    assert shown == "WorkerStarted(backend='database', queues='mail')"


def test_it_can_be_copied_and_sent_to_another_process():
    event = events.JobEnded(**JOB, status="cancelled")
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own
    assert copy.copy(event) == copy.deepcopy(event) == event


def test_a_subscriber_named_by_its_path_is_imported_with_the_first_event(monkeypatch, caplog):
    monkeypatch.setattr(events, "_subscribers", {})
    monkeypatch.setattr(events, "_paths", [])
    events.subscribe_path("django_jobs.telemetry.logs.write", "django_jobs.telemetry.logs.wants")
    assert events._subscribers == {}
    with caplog.at_level("WARNING", "django_jobs"):
        assert not events.is_wanted(events.JobClaimed)
        events.emit(events.Reaped(backend="database", count=2))
    assert events._subscribers == {logs.write: logs.wants}
    assert [record.key for record in caplog.records] == ["lease.reaped"]


def test_a_subscriber_that_is_known_by_its_path_can_leave_before_the_first_event(monkeypatch):
    monkeypatch.setattr(events, "_subscribers", {})
    monkeypatch.setattr(events, "_paths", [])
    path = f"{logs.__name__}.{logs.write.__name__}"
    events.subscribe_path(path, f"{logs.__name__}.{logs.wants.__name__}")
    events.unsubscribe(logs.write)
    assert not events.is_wanted(events.SchedulerStarted)
