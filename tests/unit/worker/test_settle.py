"""Settling: what each outcome means for its job, read back from the store."""

import json
import math
import random

import pytest

from django_jobs.backends.base import Settled
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.values import why_not_kept
from django_jobs.clock import SECOND, ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.outcome import (
    Cancelled,
    Crashed,
    ErrorText,
    Failed,
    Interrupted,
    Rejected,
    Skipped,
    Snoozed,
    Succeeded,
)
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.worker.settle import Run, Settler, SettleTerms

ERROR = ErrorText("ValueError", "no", "Traceback …")


class Desk:
    """A memory store, a job in it, and the settler that ends its deliveries."""

    def __init__(self, settings=None, *, capabilities=None, **terms):
        self.clock = ManualClock()
        self.backend = MemoryBackend("default", {"CLOCK": self.clock})
        if capabilities:
            self.backend.capabilities = capabilities(self.backend.capabilities)
        self.settler = Settler(self.backend, JobsSettings(**(settings or {})))
        (self.job,) = self.backend.enqueue([make_outgoing(**terms)])

    def claim(self):
        (lease,) = self.backend.fetch(["default"], 1, 30.0)
        return lease

    def settle(self, outcome, lease=None):
        lease = lease or self.claim()
        envelope = make_opener().open(lease.message, "default")
        counted = lease.message.header.clamped(envelope.terms)
        now = self.clock.now()
        run = Run(
            lease=lease,
            terms=SettleTerms.of(envelope),
            attempts=counted.attempts,
            crashes=counted.crashes,
            started_at=now - SECOND,
            finished_at=now,
            worker="host:1",
        )
        return self.settler.settle(run, outcome)

    @property
    def live(self):
        return self.backend.jobs.get(self.job.id)

    @property
    def dead(self):
        return self.backend.dead.get(self.job.id)

    @property
    def result(self):
        return self.backend.results.get(self.job.id)

    @property
    def wait(self):
        return (self.live.due - self.clock.now()) / SECOND


# -- failures: attempts × max_retries × retryable ----------------------------------------------


@pytest.mark.parametrize("retryable", [True, False])
@pytest.mark.parametrize("timed_out", [True, False])
@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_a_job_runs_once_and_as_often_again_as_it_has_retries(max_retries, retryable, timed_out):
    desk = Desk(max_retries=max_retries, retry="none")
    failed = Failed(ERROR, retryable=retryable, timed_out=timed_out, fingerprint="f" * 32)
    runs = max_retries + 1 if retryable else 1
    for run in range(1, runs):
        verdict = desk.settle(failed)
        assert (verdict.status, verdict.answer) == ("requeued", Settled.SETTLED)
        assert not verdict.ends
        assert (desk.live.attempts, desk.live.crashes, desk.live.state) == (run, 0, "ready")
    verdict = desk.settle(failed)
    assert (verdict.status, verdict.dead, verdict.ends) == ("dead-lettered", True, True)
    assert desk.live is None
    message, failure = desk.dead
    reason = "timed-out" if timed_out and retryable else "exhausted"
    assert failure.reason == (reason if retryable else "not-retryable")
    assert message.header.attempts == runs
    assert (failure.error_type, failure.error_message) == ("ValueError", "no")
    assert failure.fingerprint == "f" * 32
    numbers = [(one.number, one.outcome) for one in desk.backend.attempts[desk.job.id]]
    assert numbers == [(n, "timed-out" if timed_out else "failed") for n in range(1, runs + 1)]


def test_the_delays_5_10_20_40_are_in_the_store_after_each_failure():
    spec = {"strategy": "exponential", "base": 5, "multiplier": 2, "max": 300, "jitter": False}
    desk = Desk(max_retries=4, retry=spec)
    for attempts, delay in enumerate((5, 10, 20, 40), start=1):
        verdict = desk.settle(Failed(ERROR))
        assert (verdict.delay, desk.wait) == (delay, delay)
        assert (desk.live.attempts, desk.live.state) == (attempts, "scheduled")
        desk.clock.advance(delay - 0.001)
        assert desk.backend.fetch(["default"], 1, 30.0) == []
        desk.clock.advance(0.001)
    assert desk.settle(Failed(ERROR)).dead


def test_jitter_spreads_a_delay_by_15_percent_and_the_cap_holds():
    random.seed(7)
    waits = []
    for _ in range(200):
        desk = Desk(max_retries=1, retry="exponential")
        desk.settle(Failed(ERROR))
        waits.append(desk.wait)
    assert 4.25 <= min(waits) < 4.5
    assert 5.5 < max(waits) <= 5.75


def test_a_job_without_a_policy_has_the_one_of_the_site():
    desk = Desk({"retry": [3.0, 7.0]}, max_retries=3)
    waits = []
    for _ in range(3):
        desk.settle(Failed(ERROR))
        waits.append(desk.wait)
        desk.clock.advance(desk.wait)
    assert waits == [3, 7, 7]


def test_without_any_policy_a_job_that_has_retries_backs_off():
    desk = Desk(max_retries=3)
    for base in (5, 10, 20):
        desk.settle(Failed(ERROR))
        assert desk.live.state == "scheduled"
        assert desk.wait == pytest.approx(base, rel=0.15)
        desk.clock.advance(desk.wait)


def test_a_delay_that_came_with_the_outcome_goes_before_every_policy():
    desk = Desk(max_retries=1, retry="exponential")
    assert desk.settle(Failed(ERROR, delay=1.5)).delay == 1.5
    assert desk.wait == 1.5


@pytest.mark.parametrize("site", ["none", "shop.policies.Ours"])
def test_where_a_policy_of_ones_own_gave_no_delay_it_waits_as_exponential_does(site):
    """Its process was killed, and the policy ends with it."""
    desk = Desk({"retry": site}, max_retries=2, retry="shop.policies.Mine")
    for base in (5, 10):
        delay = desk.settle(Failed(ERROR, timed_out=True)).delay
        assert delay == pytest.approx(base, rel=0.15)
        assert desk.live.state == "scheduled"
        desk.clock.advance(delay)


def test_attempts_of_a_header_are_believed_no_further_than_the_body_allows():
    desk = Desk(max_retries=2)
    desk.live.attempts = 2**31
    assert desk.settle(Failed(ERROR)).dead


# -- what consumes nothing ---------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 12.0])
def test_a_snooze_waits_and_consumes_nothing(delay):
    desk = Desk()
    verdict = desk.settle(Snoozed(delay, "later"))
    assert (verdict.status, verdict.delay, verdict.reason) == ("snoozed", delay, "later")
    assert (desk.wait, desk.live.attempts, desk.live.crashes) == (delay, 0, 0)
    assert desk.live.deliveries == 1


def test_where_nothing_can_wait_a_snooze_is_a_dead_letter():
    desk = Desk(capabilities=lambda can: can._replace(delay=False))
    verdict = desk.settle(Snoozed(12.0, "later"))
    assert (verdict.status, verdict.dead) == ("dead-lettered", True)
    assert desk.dead.failure.reason == "cannot-wait"


def test_an_interruption_returns_the_job_to_its_place_and_consumes_nothing():
    desk = Desk()
    due = desk.live.due
    desk.clock.advance(5)
    assert desk.settle(Interrupted("stop")).status == "requeued"
    live = desk.live
    assert (live.due, live.attempts, live.crashes, live.suspect) == (due, 0, 0, False)


def test_an_interrupted_suspect_stays_one_and_is_charged_nothing():
    desk = Desk()
    desk.live.suspect = True
    desk.settle(Interrupted("stop"))
    assert (desk.live.suspect, desk.live.crashes) == (True, 0)


@pytest.mark.parametrize(("can_wait", "delay"), [(True, 7.0), (False, 0.0)])
def test_a_suspect_that_is_put_off_stays_one_and_waits_where_its_store_can(can_wait, delay):
    desk = Desk(capabilities=lambda can: can._replace(delay=can_wait))
    desk.live.suspect = True
    due = desk.live.due
    verdict = desk.settle(Interrupted("others first", suspect=True, delay=7.0))
    assert (verdict.status, verdict.delay, verdict.dead) == ("requeued", delay, False)
    live = desk.live
    assert (live.due - due, live.attempts) == (delay * SECOND, 0)
    assert (live.suspect, live.crashes) == (True, 0)


# -- crashes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "allowed"), [(None, 3), (1, 1), (5, 5)])
def test_crashes_are_counted_apart_from_attempts_up_to_their_own_limit(own, allowed):
    desk = Desk(max_crashes=own)
    for crashes, delay in zip(range(1, allowed), (1, 10, 60, 60), strict=False):
        verdict = desk.settle(Crashed("signal 9"))
        assert (verdict.status, verdict.dead, verdict.delay) == ("crashed", False, delay)
        live = desk.live
        assert (live.attempts, live.crashes, live.suspect) == (0, crashes, True)
        desk.clock.advance(delay)
    verdict = desk.settle(Crashed("signal 9"))
    assert (verdict.status, verdict.dead) == ("crashed", True)
    message, failure = desk.dead
    assert (failure.reason, message.header.crashes, message.header.attempts) == (
        "crashed",
        allowed,
        0,
    )


def test_a_crash_is_run_again_at_once_where_the_backend_cannot_wait():
    desk = Desk(capabilities=lambda can: can._replace(delay=False))
    verdict = desk.settle(Crashed("signal 9"))
    assert (verdict.delay, desk.live.state, desk.live.crashes) == (0.0, "ready", 1)


def test_the_limit_of_the_site_holds_where_the_job_names_none():
    assert Desk({"max_crashes": 1}).settle(Crashed("signal 9")).dead


# -- ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 5, "text", {"a": [1, 2.5, None]}, [], True, "Grüße"])
def test_a_return_value_is_kept(value):
    desk = Desk()
    verdict = desk.settle(Succeeded(value, "printed"))
    assert (verdict.status, verdict.ends, desk.live) == ("acked", True, None)
    assert json.loads(desk.result.value_json) == value
    assert (desk.result.status, desk.result.output) == ("succeeded", "printed")
    assert (desk.result.worker, desk.result.ttl_seconds) == ("host:1", 86_400.0)
    assert desk.result.finished_at - desk.result.started_at == SECOND


class Hostile(dict):
    def items(self):
        raise RuntimeError("no items for you")


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, math.nan, b"bytes", "\0", "\ud800", {1: "a"}, 10**5000, Hostile(a=1)],
    ids=["object", "set", "nan", "bytes", "nul", "surrogate", "key", "digits", "hostile"],
)
def test_a_value_that_is_no_json_is_not_kept_but_the_work_is_done(value):
    desk = Desk()
    assert desk.settle(Succeeded(value, "printed")).status == "acked"
    assert why_not_kept(desk.result.value_json)
    assert desk.result.output == "printed"
    desk.result.value_json.encode()


def test_a_value_that_contains_itself_is_not_kept_either():
    loop = []
    loop.append(loop)
    desk = Desk()
    assert desk.settle(Succeeded(loop)).status == "acked"
    assert "nested deeper than 64" in why_not_kept(desk.result.value_json)


def test_a_value_that_is_too_large_is_not_kept():
    desk = Desk()
    assert desk.settle(Succeeded("x" * 262_144)).status == "acked"
    assert "MAX_RESULT_BYTES allows 262,144" in why_not_kept(desk.result.value_json)


@pytest.mark.parametrize(
    ("terms", "settings", "kept"),
    [
        ({}, {}, 86_400),
        ({"result_ttl": 60}, {}, 60),
        ({}, {"result_ttl": 5}, 5),
        ({"result_ttl": 0}, {}, None),
        ({}, {"result_ttl": 0}, None),
    ],
)
def test_a_result_is_kept_for_its_time_and_with_0_not_at_all(terms, settings, kept):
    desk = Desk(settings, **terms)
    assert desk.settle(Succeeded(1)).status == "acked"
    assert (desk.result and desk.result.ttl_seconds) == kept
    assert desk.live is None


def test_a_cancelled_and_a_skipped_job_leave_a_result_that_says_why():
    for outcome, status, report in (
        (Cancelled("not wanted", "printed"), "cancelled", "cancelled"),
        (Skipped("done before"), "skipped", "skipped-idempotent"),
    ):
        desk = Desk()
        verdict = desk.settle(outcome)
        assert (verdict.status, verdict.reason, verdict.ends) == (report, outcome.reason, True)
        assert (desk.result.status, desk.live) == (status, None)
        assert desk.result.output.startswith(outcome.reason)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("rejected-signature", "rejected"),
        ("expired", "dead-lettered"),
        ("exhausted", "dead-lettered"),
        ("unknown-handler", "dead-lettered"),
        ("crashed", "crashed"),
    ],
)
def test_a_rejection_is_a_dead_letter_that_was_charged_nothing(reason, status):
    desk = Desk(max_retries=5)
    verdict = desk.settle(Rejected(reason, "because"))
    assert (verdict.status, verdict.dead, verdict.reason) == (status, True, f"{reason}: because")
    message, failure = desk.dead
    assert (failure.reason, failure.error_message) == (reason, "because")
    assert (message.header.attempts, message.header.crashes) == (0, 0)


# -- the lease belongs to somebody else --------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded(1),
        Failed(ERROR),
        Failed(ERROR, retryable=False),
        Snoozed(5),
        Cancelled(),
        Rejected("expired"),
        Skipped(),
        Crashed("9"),
        Interrupted(),
    ],
    ids=lambda outcome: f"{type(outcome).__name__}-{getattr(outcome, 'retryable', '')}",
)
def test_h3_a_late_settle_with_an_old_token_changes_nothing(outcome):
    desk = Desk(max_retries=1)
    stale = desk.claim()
    desk.clock.advance(31)
    assert desk.backend.reap_expired() == 1
    current = desk.claim()
    before = (desk.live.attempts, desk.live.crashes, desk.live.token, desk.live.due)
    assert desk.settle(outcome, stale).answer is Settled.LOST
    assert (desk.live.attempts, desk.live.crashes, desk.live.token, desk.live.due) == before
    assert (desk.dead, desk.result) == (None, None)
    assert desk.settle(Succeeded(1), current).answer is Settled.SETTLED
