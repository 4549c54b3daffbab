"""What goes over the wire between parent and child comes out as it went in."""

import marshal
from dataclasses import replace
from typing import get_args

import pytest

from django_jobs.backends.base import Lease, Settled
from django_jobs.backends.values import why_not_kept
from django_jobs.execution.return_value import Encoded
from django_jobs.outcome import (
    Cancelled,
    Crashed,
    ErrorText,
    Failed,
    Interrupted,
    Outcome,
    Rejected,
    Skipped,
    Snoozed,
    Succeeded,
)
from django_jobs.wire.envelope import (
    Envelope,
    Header,
    Message,
    Terms,
)
from django_jobs.worker.executor import Execution
from django_jobs.worker.pool.children import Child, Held, Lane
from django_jobs.worker.pool.messages import (
    BadFrame,
    end_to_tuple,
    lease_from_tuple,
    lease_to_tuple,
    outcome_from_tuple,
    outcome_to_tuple,
    terms_from_tuple,
)
from django_jobs.worker.settle import Run, SettleTerms, Verdict

OUTCOMES = [
    Succeeded({"a": [1, None]}, "said"),
    Failed(ErrorText("ValueError", "no", "trace"), False, 2.5, "said", True, "f" * 32),
    Failed(ErrorText("ValueError", "no")),
    Snoozed(3.5, "later"),
    Cancelled("why", "said"),
    Rejected("rejected-signature", "detail"),
    Skipped("done before"),
    Crashed("SIGSEGV"),
    Interrupted("stop"),
    Interrupted("not now", suspect=True, delay=0.5),
]
LEASE = Lease(
    id="0199",
    queue="default",
    token="t" * 32,
    expires_at=5,
    message=Message(b"body", "signature", "key", Header(1, 2, 3, 4), {"handler": "shop.send"}),
    suspect=True,
)


def travelled(plain):
    return marshal.loads(marshal.dumps(plain))  # noqa: S302 - as the channel does


def test_every_kind_of_outcome_is_here():
    assert {type(outcome) for outcome in OUTCOMES} == set(get_args(Outcome))


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_outcomes_come_back(outcome):
    back = outcome_from_tuple(travelled(outcome_to_tuple(outcome)))
    if isinstance(outcome, Succeeded):
        assert back == replace(outcome, value=Encoded('{"a":[1,null]}'))
    else:
        assert back == outcome


def test_a_value_that_cannot_be_kept_does_not_fail_the_job():
    back = outcome_from_tuple(travelled(outcome_to_tuple(Succeeded(object()))))
    assert "value is of type object" in why_not_kept(back.value.stored)


def test_leases_come_back():
    assert lease_from_tuple(travelled(lease_to_tuple(LEASE))) == LEASE


def test_settling_finds_what_it_has_to_know():
    terms = Terms(
        job="shop.send",
        queue="default",
        backend="database",
        site="shop",
        max_retries=4,
        max_crashes=2,
        retry=[1.0, 2.0],
        result_ttl=9.0,
        trace_id="trace",
        atomic=True,
    )
    envelope = Envelope(identifier="0199", payload={"n": 1}, enqueued_at=1, terms=terms)
    run = Run(LEASE, SettleTerms.of(envelope), 1, 2, 10, 20, "host:1")
    _, _, plain, counts, times = travelled(end_to_tuple(Execution(run, Succeeded())))
    assert Run(LEASE, terms_from_tuple(plain), *counts, *times, "host:1") == run
    assert run.terms == SettleTerms("shop.send", 4, 2, [1.0, 2.0], 9.0, "trace", atomic=True)


def test_of_a_message_that_was_not_believed_there_are_no_terms():
    run = Run(LEASE, SettleTerms.of(None), 0, 0, 1, 1, "w")
    _, _, plain, *_ = travelled(end_to_tuple(Execution(run, Rejected("rejected-signature"))))
    assert terms_from_tuple(plain) is run.terms is None


@pytest.mark.parametrize("answer", [Settled.SETTLED, Settled.LOST])
def test_what_the_handlers_transaction_settled_is_only_reported(answer):
    run = Run(LEASE, SettleTerms("shop.send", atomic=True), 0, 0, 0, 2_000_000)
    end = travelled(end_to_tuple(Execution(run, Succeeded(), Verdict("acked", answer))))
    assert end == ("settled", "acked" if answer is Settled.SETTLED else "lease-lost", 2.0)


def test_a_commit_that_was_not_answered_is_for_the_parent_to_settle():
    run = Run(LEASE, SettleTerms("shop.send", atomic=True), 0, 0, 0, 1)
    failed, committed = Failed(ErrorText("Gone", "no answer")), Verdict("acked", Settled.SETTLED)
    kind, outcome, *_ = end_to_tuple(Execution(run, failed, unanswered=committed))
    assert (kind, outcome_from_tuple(travelled(outcome))) == ("ran", failed)


TERMS = ("shop.send", 3, None, [1.0, 2], 60, None, False)
SUCCEEDED = ("Succeeded", "7", "", "")
FAILED = ("Failed", ("ValueError", "no", ""), True, None, "", False, "")
SOUND = (0, 1, "ran", SUCCEEDED, TERMS, (0, 0), (5, 6))


def changed(frame, place, value):
    return (*frame[:place], value, *frame[place + 1 :])


def outcome(*told):
    return changed(SOUND, 3, told)


def terms(place, value):
    return changed(SOUND, 4, changed(TERMS, place, value))


UNSOUND = [
    7, None, "text", (), (0, 1), (0, 1, "sung"), (0, 1, ["ran"]), (0, 1, "skipped", 2),
    (0, 1, "settled", "acked"), (0, 1, "settled", 5, 0.1), (0, 1, "settled", "acked", "soon"),
    (0, 1, "settled", "acked", float("nan")), (0, 1, "alike", 5), (0, 1, "alike", 5, "soon"),
    (0, 1, "alike", -5, 1), (0, 1, "alike", 5.0, 1), (0, 1, "alike", 1 << 63, 1),
    (7, 1, "skipped"), ("0", 1, "skipped"), (0, [1], "skipped"),
    SOUND[:-1], (*SOUND, 1), changed(SOUND, 5, (0,)), changed(SOUND, 5, (-1, 0)),
    changed(SOUND, 5, ("0", 0)), changed(SOUND, 5, (1 << 40, 0)), changed(SOUND, 6, (5,)),
    changed(SOUND, 6, ("5", "6")), changed(SOUND, 6, (5, -6)), changed(SOUND, 4, ()),
    changed(SOUND, 3, ()), outcome("Vanished"), outcome("Succeeded", "7", ""),
    outcome("Succeeded", 7, "", ""), outcome(*SUCCEEDED, ""), outcome(["Succeeded"], "7", "", ""),
    outcome(*changed(FAILED, 1, ("ValueError", "no"))), outcome(*changed(FAILED, 1, (1, 2, 3))),
    outcome(*changed(FAILED, 3, -1.0)), outcome(*changed(FAILED, 3, float("nan"))),
    outcome(*changed(FAILED, 3, float("inf"))), outcome(*changed(FAILED, 2, "yes")),
    outcome("Snoozed", -1, ""), outcome("Snoozed", "soon", ""), outcome("Crashed", b"how"),
    outcome("Interrupted", "why"), terms(0, 7), terms(1, "3"), terms(1, 3.5), terms(3, 7),
    terms(3, ["soon"]), terms(3, {}), terms(3, {"strategy": "fixed", "base": "x"}), terms(6, 0),
]  # fmt: skip


@pytest.fixture
def child():
    child = Child(slot=0, pid=1, channel=None)
    child.lanes.append(Lane(child, 0, marks=None))
    child.lanes[0].held[1] = Held.of(LEASE, 30.0, 1e9)
    return child


@pytest.mark.parametrize("retry", [None, "none", "shop.Policy", [3, 4.5], {"strategy": "fixed"}])
def test_what_children_send_is_believed(child, retry):
    held, ran = child.read_frame(terms(3, retry))
    assert held.lease == LEASE
    assert ran == (child.last_report, (5, 6))
    assert child.last_report.terms.retry == retry


@pytest.mark.parametrize("frame", UNSOUND, ids=repr)
def test_what_no_child_sends_is_refused_before_anything_is_done_with_it(child, frame):
    with pytest.raises(BadFrame):
        child.read_frame(frame)
    assert list(child.lanes[0].held) == [1]
