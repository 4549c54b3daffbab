"""What has been decided about a job before anybody asks for its handler."""

import json
from dataclasses import replace

import pytest

from django_jobs.backends.base import Lease
from django_jobs.clock import SECOND
from django_jobs.conf import JobsSettings, UnknownHandlerPolicy
from django_jobs.exceptions import HandlerRefused, InvalidPayload
from django_jobs.handlers.base import Handler
from django_jobs.handlers.registry import Registry
from django_jobs.outcome import Cancelled, Failed, Rejected, Skipped, Snoozed
from django_jobs.retry import LONGEST_DELAY
from django_jobs.testing.factories import make_opener, make_outgoing, make_signer
from django_jobs.wire.envelope import Header, Message, index_of
from django_jobs.wire.opening import CLOCKS_APART, MOMENTS_APART
from django_jobs.worker.admission import Admitted, Gatekeeper

NOW = 1_700_000_000_000_000


class Plain(Handler):
    """A handler that cannot tell what it takes."""

    key = "tests.noop"


def gatekeeper(handler=None):
    registry = Registry()
    registry.register(handler or Plain())
    return Gatekeeper(JobsSettings(), make_opener(), registry)


def lease(header=None, terms=None, **given):
    made = make_outgoing(**{"max_retries": 1, "expires_at": NOW, **(terms or {})})
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
        (
            {"replayed": True, "cancelled": True, "done_by": "j7"},
            Rejected,
            "its message was put back",
        ),
        ({"cancelled": True, "done_by": "j7"}, Cancelled, "stop"),
        ({"done_by": "j7"}, Skipped, "the job j7 did the work"),
    ],
    ids=["a copy", "cancelled", "done"],
)
def test_what_was_decided_elsewhere(given, outcome, word):
    refused = decided(lease(**given))
    assert isinstance(refused.outcome, outcome)
    assert word in (getattr(refused.outcome, "detail", "") or refused.outcome.reason)
    assert refused.envelope is not None


@pytest.mark.parametrize(
    "terms", [{"idempotency_key": "i"}, {"concurrency_key": "c"}, {"single_instance": "s"}]
)
def test_what_was_leased_without_the_keys_of_its_signed_terms_is_never_run(terms):
    refused = decided(lease(terms=terms, keyed=False))
    assert isinstance(refused.outcome, Rejected)
    assert refused.outcome.reason == "rejected-mismatch"
    assert isinstance(decided(lease(terms=terms)), Admitted)
    assert isinstance(decided(lease(terms={"unique_key": "u"}, keyed=False)), Admitted)
    assert isinstance(decided(lease(keyed=False)), Admitted)


def test_a_job_that_became_due_before_its_delay_waits_for_the_rest_of_it():
    terms = {"delay": 3600, "enqueued_at": NOW - SECOND, "expires_at": None}
    refused = decided(lease(Header(available_at=NOW - SECOND), terms), NOW)
    assert isinstance(refused.outcome, Snoozed)
    assert not refused.outcome.put_off
    assert refused.outcome.delay == 3600 - 1 - CLOCKS_APART / SECOND
    assert isinstance(decided(lease(None, terms), NOW + 3600 * SECOND), Admitted)
    at_once = replace(gatekeeper(), runs_delayed=True)
    assert isinstance(at_once.admit(lease(None, terms), NOW), Admitted)


def test_a_job_that_is_leased_before_its_schedule_waits_for_it_whatever_its_due_says():
    schedule = NOW + 3600 * SECOND
    terms = {"schedule": schedule, "expires_at": None}
    early = decided(lease(Header(available_at=schedule), terms), NOW)
    assert isinstance(early.outcome, Snoozed)
    assert early.outcome.delay == 3600 - MOMENTS_APART / SECOND
    assert isinstance(decided(lease(Header(available_at=schedule), terms), schedule), Admitted)


def test_no_wait_for_the_rest_of_a_delay_is_longer_than_a_child_may_ask_for():
    terms = {"delay": 10 * LONGEST_DELAY, "enqueued_at": NOW, "expires_at": None}
    assert decided(lease(None, terms), NOW).outcome.delay == LONGEST_DELAY


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


@pytest.mark.parametrize(("crashes", "times"), [(1, "once"), (4, "4 times")])
def test_a_job_that_crashed_too_often_is_told_of_what_is_known_and_nothing_else(crashes, times):
    refused = decided(lease(Header(available_at=0, crashes=crashes), {"max_crashes": 1}))
    told = f"its lease ended {times} without a verdict while it was to run alone"
    assert refused.outcome == Rejected("crashed", told)


def test_only_what_can_be_opened_is_believed():
    sound = lease()
    assert gatekeeper().believed(sound).identifier == sound.id
    forged = sound._replace(message=sound.message._replace(signature="0" * 64))
    assert gatekeeper().believed(forged) is None


class Choosy(Plain):
    """A handler that tells at once what it does not take."""

    def __init__(self, raised):
        self.raised = raised
        self.asked = []

    def admit(self, payload):
        self.asked.append(payload)
        if self.raised is not None:
            raise self.raised


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (HandlerRefused("not\x00 this"), "rejected-target"),
        (InvalidPayload("not\x00 that"), "rejected-payload"),
    ],
    ids=["target", "payload"],
)
def test_what_a_handler_does_not_take_is_rejected_with_its_reason(raised, reason):
    refused = gatekeeper(Choosy(raised)).admit(lease(), NOW - 1)
    assert refused.outcome.reason == reason
    assert "not\\x00 th" in refused.outcome.detail


def test_what_a_handler_takes_is_admitted_after_it_was_asked():
    choosy = Choosy(None)
    assert isinstance(gatekeeper(choosy).admit(lease(), NOW - 1), Admitted)
    assert choosy.asked == [{"args": [], "kwargs": {}}]


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("coroutine", [True, False, None])
def test_only_a_coroutine_that_is_to_be_atomic_is_refused(atomic, coroutine):
    handler = Plain()
    if coroutine is not None:
        handler.is_coroutine = coroutine
    answer = gatekeeper(handler).admit(lease(terms={"atomic": atomic}), NOW - 1)
    if atomic and coroutine:
        assert answer.outcome.reason == "rejected-atomic"
    else:
        assert isinstance(answer, Admitted)


def test_how_late_an_expired_one_is_is_told_in_seconds():
    refused = decided(lease(), NOW + 90_000_000)
    assert "before 90 s ago" in refused.outcome.detail


def test_a_copy_has_a_reason_of_its_own():
    assert decided(lease(replayed=True)).outcome.reason == "rejected-replayed"


def unknown(body_changes=None, deliveries=1, put_off_since=None, **settings):
    """What is said to a message whose handler this process does not have."""
    keeper = Gatekeeper(JobsSettings(**settings), make_opener(), Registry())
    header = Header(available_at=0, deliveries=deliveries, put_off_since=put_off_since)
    found = lease(header)
    if body_changes:
        body = json.dumps({**json.loads(found.message.body), **body_changes})
        signed = found.message._replace(body=body, signature=make_signer().sign(body))
        found = found._replace(message=signed)
    return keeper.admit(found, NOW - 1)


@pytest.mark.parametrize(
    ("deliveries", "delay"), [(0, 0.1), (1, 0.1), (2, 0.2), (11, 102.4), (12, 102.4), (299, 102.4)]
)
def test_an_unknown_handler_is_waited_for_ever_longer(deliveries, delay):
    snoozed = unknown(deliveries=deliveries, snooze_delay=0.1).outcome
    assert snoozed.delay == pytest.approx(delay)


A_DAY = 86_400 * 1_000_000


def test_an_unknown_handler_is_not_waited_for_without_end():
    dead = unknown(put_off_since=NOW - 1 - A_DAY).outcome
    assert (type(dead), dead.reason) == (Rejected, "unknown-handler")
    snoozed = unknown(put_off_since=NOW - A_DAY, deliveries=9_999).outcome
    assert (round(snoozed.delay, 6), snoozed.put_off) == (0.000001, True)


@pytest.mark.parametrize("forged", [-(2**53), -1, 0])
def test_a_forged_beginning_long_ago_ends_patience_and_no_more(forged):
    assert unknown(put_off_since=forged).outcome.reason == "unknown-handler"


@pytest.mark.parametrize("forged", [NOW, 2**53 - 1, 2**63 - 1])
def test_a_forged_beginning_in_the_future_counts_as_now(forged):
    assert unknown(put_off_since=forged, snooze_delay=5.0).outcome.delay == 5.0


def test_of_a_newer_version_nothing_is_known_so_it_cannot_fail_as_a_run_does():
    failed = unknown(unknown_handler=UnknownHandlerPolicy.FAIL)
    assert isinstance(failed.outcome, Failed)
    newer = unknown({"v": 2}, unknown_handler=UnknownHandlerPolicy.FAIL)
    assert (newer.outcome.reason, newer.envelope) == ("unknown-version", None)
