"""What has been decided about a job before anybody asks for its handler."""

from dataclasses import replace

import pytest

from django_jobs.backends.base import Lease
from django_jobs.conf import JobsSettings
from django_jobs.execution.outcome import Cancelled, Rejected, Skipped
from django_jobs.handlers.registry import Registry
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.wire.envelope import Header, Message, index_of
from django_jobs.worker.admission import Admitted, Gatekeeper

NOW = 1_700_000_000_000_000


class Plain:
    """A handler that cannot tell what it takes."""

    key = "tests.noop"


def gatekeeper():
    registry = Registry()
    registry.register(Plain())
    return Gatekeeper(JobsSettings(), make_opener(), registry)


def lease(header=None, **given):
    made = make_outgoing(max_retries=1, expires_at=NOW)
    header = header or Header(available_at=0)
    index = index_of(made.id, made.terms)
    message = Message(made.body, made.signature, made.key_id, header, index)
    return Lease(made.id, "default", "t" * 32, NOW, message, **given)


def decided(found, now=NOW - 1):
    return gatekeeper().admit(found, now)


def test_a_handler_that_cannot_tell_is_given_what_it_is_asked():
    admitted = decided(lease())
    assert isinstance(admitted, Admitted)
    assert admitted.envelope.payload == {"args": [], "kwargs": {}}


@pytest.mark.parametrize(
    ("given", "outcome", "word"),
    [
        ({"replayed": True, "cancelled": True, "done_by": "j7"}, Rejected, "put its message back"),
        ({"cancelled": True, "done_by": "j7"}, Cancelled, "stop"),
        ({"done_by": "j7"}, Skipped, "the job j7 did the work"),
    ],
    ids=["a copy", "called off", "done"],
)
def test_what_was_decided_elsewhere(given, outcome, word):
    refused = decided(lease(**given))
    assert isinstance(refused.outcome, outcome)
    assert word in (getattr(refused.outcome, "detail", "") or refused.outcome.reason)
    assert refused.envelope is not None


@pytest.mark.parametrize(
    ("header", "now", "reason"),
    [
        (Header(available_at=0, crashes=3), NOW - 1, "crashed"),
        (Header(available_at=0, attempts=2), NOW - 1, "exhausted"),
        (Header(available_at=0), NOW, "expired"),
    ],
    ids=["crashed", "exhausted", "expired"],
)
def test_what_is_over_is_dead_and_not_called_done(header, now, reason):
    refused = decided(lease(header, done_by="j7"), now)
    assert (refused.outcome.reason, refused.envelope is None) == (reason, False)


def test_only_what_can_be_opened_is_believed():
    sound = lease()
    assert gatekeeper().believed(sound).identifier == sound.id
    forged = sound._replace(message=replace(sound.message, signature="0" * 64))
    assert gatekeeper().believed(forged) is None
