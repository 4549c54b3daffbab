"""One attempt: every way a run can end, the hooks around it, and what user code may break."""

import asyncio
import time
from datetime import timedelta

import pytest

from django_jobs.execution import attempt as attempt_module
from django_jobs.execution import coroutines
from django_jobs.execution import timeout as timeout_module
from django_jobs.execution.attempt import (
    MAX_REASON,
    Attempt,
    StopNow,
    is_running,
)
from django_jobs.handlers.base import Cancel, Conduct, JobContext, Retry, Snooze
from django_jobs.handlers.function import FunctionHandler
from django_jobs.outcome import Cancelled, Failed, Interrupted, Snoozed, Succeeded
from django_jobs.retry import LONGEST_DELAY
from django_jobs.telemetry import events


def attempt(function, *, timeout=None, own_policy=None, number=1, **conduct):
    handler = FunctionHandler("tests.it", function, takes_context=False, conduct=Conduct(**conduct))
    payload = {"args": [], "kwargs": {}}
    context = JobContext(id="1", payload=payload, name="it", queue="default", attempt=number)
    return Attempt(handler=handler, context=context, timeout=timeout, own_policy=own_policy)


def run(function, **options):
    return attempt(function, **options).run()


def raising(error):
    def handler():
        raise error

    return handler


@pytest.fixture
def told_events():
    heard = []

    def hear(event):
        heard.append(event)

    events.subscribe(hear)
    yield heard
    events.unsubscribe(hear)


class Nasty(BaseException):
    pass


# -- outcomes ----------------------------------------------------------------------------------


def test_what_a_handler_returns_and_prints_is_its_success():
    def handler():
        print("working")
        return {"n": 1}

    assert run(handler) == Succeeded({"n": 1}, "working\n")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(0),
        SystemExit("text"),
        KeyboardInterrupt(),
        GeneratorExit(),
        Nasty("x"),
        asyncio.CancelledError(),
        MemoryError(),
        RecursionError(),
        StopIteration(1),
    ],
    ids=lambda error: f"{type(error).__name__}-{error}",
)
def test_whatever_a_handler_raises_fails_its_attempt_and_nothing_else(error):
    outcome = run(raising(error))
    assert isinstance(outcome, Failed)
    assert outcome.error.type.endswith(type(error).__name__)
    assert outcome.error.message == str(error)
    assert (outcome.retryable, outcome.delay, outcome.timed_out) == (True, None, False)
    assert len(outcome.fingerprint) == 32


def test_a_failure_keeps_what_was_printed_before_it():
    def handler():
        print("as far as here")
        raise ValueError

    assert run(handler).output == "as far as here\n"


@pytest.mark.parametrize(
    ("signal", "delay"),
    [
        (Retry(7), 7),
        (Retry(timedelta(minutes=1)), 60),
        (Retry(0), 0),
        (Retry(), None),
        (Retry(float("inf")), LONGEST_DELAY),
    ],
    ids=["seconds", "timedelta", "zero", "none said", "endless"],
)
def test_retry_fails_the_attempt_with_the_delay_that_was_asked_for(signal, delay):
    outcome = run(raising(signal))
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.delay) == (True, delay)


@pytest.mark.parametrize(
    ("asked", "delay"),
    [(5, 5), (0, 1), (0.01, 1), (1.5, 1.5), (float("inf"), LONGEST_DELAY), (1e300, LONGEST_DELAY)],
)
def test_snooze_waits_as_long_as_asked_within_reason(asked, delay):
    assert run(raising(Snooze(asked, "not yet"))) == Snoozed(delay, "not yet")


def test_a_snooze_into_the_past_is_a_plain_failure():
    def handler():
        raise Snooze(-1)

    assert run(handler).error.type == "ValueError"


def test_cancel_ends_the_job_with_its_reason_and_output():
    def handler():
        print("looked at it")
        raise Cancel("no longer wanted")

    assert run(handler) == Cancelled("no longer wanted", "looked at it\n")


def test_a_reason_is_kept_printable_and_short():
    outcome = run(raising(Cancel("\0" + "x" * 100_000 + "\ud800")))
    assert outcome.reason.startswith("\\x00xxx")
    assert len(outcome.reason) <= MAX_REASON
    assert run(raising(Cancel(42))).reason == "42"


def test_a_signal_class_that_forgets_its_parent_fails_the_attempt():
    class Forgetful(Retry):
        def __init__(self):
            pass

    assert run(raising(Forgetful())).error.type == "AttributeError"


# -- retry_on and discard_on ---------------------------------------------------------------------


def test_retry_on_makes_everything_else_final():
    assert run(raising(OSError()), retry_on=(OSError,)).retryable
    assert run(raising(ConnectionError()), retry_on=(OSError,)).retryable
    assert not run(raising(ValueError()), retry_on=(OSError,)).retryable


def test_discard_on_ends_the_job_without_a_failure():
    outcome = run(raising(LookupError("gone")), discard_on=(LookupError,))
    assert outcome == Cancelled("discarded on LookupError: gone")


def test_discard_on_goes_before_retry_on():
    conduct = {"retry_on": (Exception,), "discard_on": (KeyError,)}
    assert isinstance(run(raising(KeyError("k")), **conduct), Cancelled)


def test_an_exception_class_with_a_broken_instance_check_fails_the_attempt():
    class Meta(type):
        def __instancecheck__(cls, instance):
            raise RuntimeError("broken check")

    class Odd(Exception, metaclass=Meta):
        pass

    outcome = run(raising(ValueError("first")), retry_on=(Odd,))
    assert (outcome.error.type, outcome.error.message) == ("RuntimeError", "broken check")
    assert "ValueError: first" in outcome.error.traceback


# -- hooks ---------------------------------------------------------------------------------------


def test_hooks_run_around_the_handler_and_see_its_context_and_error():
    seen = []
    outcome = run(
        raising(ValueError("no")),
        before=lambda context: seen.append(("before", context.queue)),
        after=lambda context, error: seen.append(("after", context.queue, str(error))),
    )
    assert outcome.error.message == "no"
    assert seen == [("before", "default"), ("after", "default", "no")]


def test_a_raising_before_hook_fails_the_attempt_unrun_and_after_still_runs():
    calls, errors = [], []
    outcome = run(
        lambda: calls.append("ran"),
        before=lambda _context: 1 / 0,
        after=lambda _context, error: errors.append(type(error)),
    )
    assert outcome.error.type == "ZeroDivisionError"
    assert (calls, errors) == ([], [ZeroDivisionError])


def test_a_before_hook_may_snooze_the_job():
    assert run(lambda: 1, before=lambda _context: raising(Snooze(3))()) == Snoozed(3)


@pytest.mark.parametrize("error", [ValueError("late"), SystemExit(1), Nasty()])
@pytest.mark.parametrize("handler", [lambda: "value", raising(OSError("first"))])
def test_a_raising_after_hook_is_told_and_changes_nothing(handler, error, told_events):
    quiet = run(handler)
    outcome = run(handler, after=lambda _context, _error: raising(error)())
    if isinstance(quiet, Succeeded):
        assert outcome == quiet
    else:
        assert outcome.error.message == quiet.error.message == "first"
    (event,) = told_events
    assert isinstance(event, events.AfterHookFailed)
    assert (event.error, event.handler, event.attempt) == (error, "tests.it", 1)


@pytest.mark.parametrize("where", ["before", "after"])
def test_hooks_are_inside_the_timeout(where):
    hooks = {where: lambda *_: time.sleep(30)}
    started = time.monotonic()
    outcome = run(lambda: "done", timeout=0.05, **hooks)
    assert outcome.timed_out
    assert time.monotonic() - started < 5


def test_an_after_hook_that_hangs_after_a_timeout_is_interrupted_too(monkeypatch):
    monkeypatch.setattr(timeout_module, "REPEAT_SECONDS", 0.05)
    outcome = run(lambda: time.sleep(30), timeout=0.05, after=lambda *_: time.sleep(30))
    assert outcome.timed_out


# -- coroutines ----------------------------------------------------------------------------------


def test_a_coroutine_is_awaited_and_its_output_captured():
    async def handler():
        await asyncio.sleep(0)
        print("from a coroutine")
        return 7

    assert run(handler) == Succeeded(7, "from a coroutine\n")


def test_a_coroutine_is_cancelled_when_its_time_is_up():
    ended = []

    async def handler():
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)

    outcome = run(handler, timeout=0.05)
    assert outcome.timed_out
    assert outcome.error.type == "django_jobs.handlers.base.JobTimeout"
    assert ended


def test_a_timeout_of_the_coroutine_itself_is_a_plain_failure():
    async def handler():
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)

    outcome = run(handler, timeout=20)
    assert (outcome.error.type, outcome.timed_out) == ("TimeoutError", False)
    assert not run(raising(TimeoutError("theirs")), timeout=20).timed_out


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_coroutine_that_blocks_or_resists_is_interrupted_by_the_alarm(stubborn, monkeypatch):
    monkeypatch.setattr(attempt_module, "LOOP_GRACE", 0.05)
    monkeypatch.setattr(timeout_module, "REPEAT_SECONDS", 0.05)

    async def handler():
        while stubborn:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                continue
        time.sleep(30)  # noqa: ASYNC251 - a handler that should not, and does

    started = time.monotonic()
    outcome = run(handler, timeout=0.05)
    assert outcome.timed_out
    # As it was set, and not with the grace that the loop gets.
    assert outcome.error.message == "the job exceeded its timeout of 0.05 seconds"
    assert time.monotonic() - started < 5


def test_a_coroutine_thrown_away_in_the_middle_awaits_nothing_more(monkeypatch):
    monkeypatch.setattr(coroutines, "_any_beside", True)

    async def begin_and_throw_away():
        begun = coroutines.within(asyncio.sleep(30), None)
        begun.send(None)
        begun.close()  # raises RuntimeError where the coroutine goes on awaiting

    asyncio.run(begin_and_throw_away())


# -- own retry policies --------------------------------------------------------------------------


class Policy:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def delay(self, retry_number):
        self.asked.append(retry_number)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "delay"),
    [(12, 12.0), (-3, 0.0), (float("nan"), 0.0), (float("inf"), LONGEST_DELAY), ("4", 4.0)],
)
def test_an_own_policy_says_the_delay_within_reason(answer, delay):
    policy = Policy(answer)
    outcome = run(raising(ValueError()), own_policy=policy, number=3)
    assert (outcome.retryable, outcome.delay, policy.asked) == (True, delay, [3])


def test_an_own_policy_that_says_none_gives_up():
    outcome = run(raising(ValueError()), own_policy=Policy(None))
    assert (outcome.retryable, outcome.delay) == (False, None)


@pytest.mark.parametrize("answer", [RuntimeError("broken"), SystemExit(1), "soon", object()])
def test_a_broken_policy_is_reported_and_leaves_the_wait_to_the_default(answer, told_events):
    outcome = run(raising(ValueError("the job's")), own_policy=Policy(answer))
    assert (outcome.retryable, outcome.delay) == (True, None)
    assert outcome.error.message == "the job's"
    assert [type(event) for event in told_events] == [events.RetryPolicyFailed]


def test_a_policy_that_hangs_is_interrupted(monkeypatch, told_events):
    monkeypatch.setattr(attempt_module, "POLICY_SECONDS", 0.05)

    class Slow:
        def delay(self, retry_number):
            time.sleep(30)

    assert run(raising(ValueError()), own_policy=Slow()).delay is None
    assert [type(event) for event in told_events] == [events.RetryPolicyFailed]


def test_a_policy_is_not_asked_where_the_answer_is_known():
    policy = Policy(99)
    assert run(raising(Retry(3)), own_policy=policy).delay == 3
    assert not run(raising(KeyError()), own_policy=policy, retry_on=(OSError,)).retryable
    assert run(lambda: 1, own_policy=policy) == Succeeded(1)
    assert policy.asked == []


# -- a stop at once ------------------------------------------------------------------------------


def test_a_stop_at_once_interrupts_the_run_and_passes_except_exception():
    def handler():
        assert is_running()
        try:
            raising(StopNow())()
        except Exception:  # noqa: BLE001 - what many handlers do
            return "swallowed"

    assert isinstance(run(handler), Interrupted)
    assert not is_running()


def test_a_stop_at_once_inside_a_run_within_a_run_ends_both():
    inner = attempt(raising(StopNow()))
    assert isinstance(run(inner.run), Interrupted)
    assert not is_running()
