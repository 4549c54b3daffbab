"""A settle that was not answered is asked again, until it is clear whether it counted."""

import threading
from types import SimpleNamespace

import pytest
from django.db import DataError, OperationalError, ProgrammingError, connection

from django_jobs.backends.base import Settled
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.values import why_not_kept
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.exceptions import StoreUnavailable
from django_jobs.outcome import ErrorText, Failed, Snoozed, Succeeded
from django_jobs.telemetry import events
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.worker import store
from django_jobs.worker.settle import Run, Settler, SettleTerms
from django_jobs.worker.store import Asker, Outage, Store

FAILED = Failed(ErrorText("ValueError", "no"))
LEASE = 30.0
MIGRATE = "run manage.py migrate django_jobs --database jobs"


class Moody(MemoryBackend):
    """Loses its connection as the plan says: before the work, or after it."""

    def __init__(self, *plan):
        self.plan = list(plan)
        self.settles = 0
        super().__init__("default", {"CLOCK": ManualClock()})

    def _moody(self, work):
        self.settles += 1
        mood = self.plan.pop(0) if self.plan else "well"
        if isinstance(mood, Exception):
            raise mood
        if mood == "before":
            return Settled.UNKNOWN
        answer = work()
        return Settled.UNKNOWN if mood == "after" else answer

    def ack(self, leases, results=None, **how):
        return [self._moody(lambda: super(Moody, self).ack(leases, results, **how)[0])]

    def nack(self, *args, **kwargs):
        return self._moody(lambda: super(Moody, self).nack(*args, **kwargs))

    def abandon(self, *args, **kwargs):
        return self._moody(lambda: super(Moody, self).abandon(*args, **kwargs))


class Desk:
    def __init__(self, *plan, **terms):
        self.backend = Moody(*plan)
        self.asker = Asker(Settler(self.backend, JobsSettings()), Outage("default"))
        self.backend.enqueue([make_outgoing(**terms)])
        (self.lease,) = self.backend.fetch(["default"], 1, LEASE)

    def settle(self, outcome, seconds=LEASE):
        envelope = make_opener().open(self.lease.message, "default")
        run = Run(
            lease=self.lease,
            terms=SettleTerms.of(envelope),
            attempts=0,
            crashes=0,
            started_at=0,
            finished_at=1,
        )
        return self.asker.settle(run, outcome, seconds)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(store, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(store, "LONGEST_PAUSE", 0.002)


@pytest.fixture
def told():
    heard = []

    def hear(event):
        heard.append(type(event))

    events.subscribe(hear)
    yield heard
    events.unsubscribe(hear)


def test_an_answer_is_taken_as_it_is(told):
    desk = Desk()
    assert desk.settle(Succeeded(1)).answer is Settled.SETTLED
    assert (desk.backend.settles, told) == (1, [])


OUTCOMES = {
    "ack": (Succeeded(1), 0),
    "retry": (FAILED, 1),
    "dead letter": (FAILED, 0),
    "snooze": (Snoozed(9), 0),
}


@pytest.mark.parametrize("name", OUTCOMES)
@pytest.mark.parametrize(
    "plan",
    [
        ("before",),
        ("after",),
        ("before", "after"),
        ("before", "before", "before"),
        (OperationalError("gone"), OSError("reset"), "before"),
    ],
    ids=lambda plan: "-".join(map(str, plan)),
)
def test_a_settle_that_counted_at_last_is_settled_and_counted_once(name, plan, told):
    outcome, max_retries = OUTCOMES[name]
    desk = Desk(*plan, max_retries=max_retries)
    assert desk.settle(outcome).answer is Settled.SETTLED
    assert told == [events.StoreLost, events.StoreFound]
    job = desk.backend.jobs.get(desk.lease.id)
    if name == "retry":
        assert (job.attempts, len(desk.backend.attempts[desk.lease.id])) == (1, 1)
    elif name == "snooze":
        assert (job.attempts, job.state) == (0, "scheduled")
    else:
        assert job is None
        assert len(desk.backend.results) + len(desk.backend.dead) == 1


@pytest.mark.parametrize(
    "outcome", [Succeeded(1), Snoozed(9), FAILED], ids=["ack", "snooze", "die"]
)
def test_a_lease_that_was_lost_meanwhile_stays_lost(outcome):
    desk = Desk("before")
    desk.backend.clock.advance(LEASE + 1)
    desk.backend.reap_expired()
    (other,) = desk.backend.fetch(["default"], 1, LEASE)
    assert desk.settle(outcome).answer is Settled.LOST
    assert desk.backend.jobs[desk.lease.id].token == other.token


def test_when_the_lease_is_over_nobody_can_say(told):
    desk = Desk(*["before"] * 10_000)
    verdict = desk.settle(Succeeded(1), seconds=0.5)
    assert (verdict.status, verdict.answer, verdict.ends) == ("error", Settled.UNKNOWN, False)
    assert told[0] is events.StoreLost
    assert set(told[1:]) <= {events.BreakerOpened}
    assert desk.backend.settles > 1


def test_a_worker_in_a_hurry_does_not_ask_for_long():
    desk = Desk(*["before"] * 10_000)
    desk.asker.hurried = lambda: desk.backend.settles >= 3
    assert desk.settle(Succeeded(1)).answer is Settled.UNKNOWN
    assert desk.backend.settles == 3


REFUSED = DataError("character 0xf09f has no equivalent")


@pytest.mark.parametrize("refusals", [1, 2, 3])
def test_work_that_was_done_is_acked_with_ever_less_of_its_record(refusals, told):
    desk = Desk(*[REFUSED] * refusals)
    verdict = desk.settle(Succeeded({"done": True}, output="café"))
    assert (verdict.status, verdict.answer) == ("acked", Settled.SETTLED)
    assert desk.backend.settles == refusals + 1
    assert told == [events.SettleRefused]
    kept = desk.backend.results.get(desk.lease.id)
    if refusals == 1:
        assert (kept.value_json, kept.output) == ('{"done":true}', "caf\\xe9")
    elif refusals == 2:
        assert "character 0xf09f has no equivalent" in why_not_kept(kept.value_json)
        assert "character 0xf09f has no equivalent" in kept.output
    else:
        assert kept is None
    assert not desk.backend.jobs


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_failure_keeps_its_reason_and_says_what_the_store_refused(refusals):
    desk = Desk(*[REFUSED] * refusals)
    failed = Failed(ErrorText("ValueError", "café", "trace: café"), output="é")
    assert desk.settle(failed).status == "dead-lettered"
    (dead,) = desk.backend.dead.values()
    assert dead.failure.reason == "exhausted"
    assert dead.failure.error_type == "ValueError"
    wanted = "caf\\xe9" if refusals == 1 else "character 0xf09f has no equivalent"
    assert wanted in dead.failure.error_message


def test_a_retry_happens_also_where_no_attempt_can_be_kept():
    desk = Desk(REFUSED, REFUSED, max_retries=1)
    assert desk.settle(FAILED).status == "requeued"
    (job,) = desk.backend.jobs.values()
    assert job.attempts == 1
    assert not desk.backend.attempts


@pytest.mark.parametrize(("outcome", "settles"), [(Succeeded(1), 3), (FAILED, 3), (Snoozed(9), 3)])
def test_what_is_refused_altogether_is_given_back_later_and_charged_nothing(outcome, settles, told):
    desk = Desk(*[REFUSED] * settles)
    verdict = desk.settle(outcome)
    assert (verdict.status, verdict.answer) == ("requeued", Settled.SETTLED)
    assert verdict.delay == store.REFUSED_PAUSE
    assert "character 0xf09f" in verdict.reason
    (job,) = desk.backend.jobs.values()
    assert (job.state, job.attempts, job.crashes, job.suspect) == ("scheduled", 0, 0, False)
    assert told == [events.SettleRefused]


def test_an_error_that_nobody_knows_is_a_refusal_when_it_comes_twice():
    desk = Desk(OperationalError("odd"), OperationalError("odd"))
    verdict = desk.settle(Succeeded(1))
    assert (verdict.status, verdict.answer) == ("acked", Settled.SETTLED)
    assert desk.backend.settles == 3


def test_a_row_that_is_gone_is_told():
    desk = Desk()
    run = Run(lease=desk.lease, terms=None, attempts=0, crashes=0, started_at=0, finished_at=1)
    assert not desk.asker.is_gone(run, LEASE)
    desk.settle(Succeeded(1))
    assert desk.asker.is_gone(run, LEASE)


def test_of_a_row_that_the_store_will_not_show_nobody_says_that_it_is_gone():
    desk = Desk()
    desk.backend.find = lambda _: (_ for _ in ()).throw(of_driver(DataError, "22P02"))
    run = Run(desk.lease, None, 0, 0, 0, 1)
    assert desk.asker.is_gone(run, LEASE) is False


# -- the store of the worker -------------------------------------------------------------------


def test_h8_an_outage_is_told_once_waited_out_and_never_empty(told, monkeypatch):
    monkeypatch.setattr(store, "FIRST_PAUSE", 0.001)
    answers = [OperationalError("gone"), OSError("refused"), OperationalError("gone"), "work"]

    def work():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    calls = Store(Outage("default"), lambda: False)
    assert [calls.call(work) for _ in range(4)] == [None, None, None, "work"]
    assert told == [events.StoreLost, events.StoreFound]


class NotThere(Exception):
    """What a driver raises; psycopg's codes."""

    def __init__(self, sqlstate):
        super().__init__("no")
        self.sqlstate = sqlstate


def of_driver(kind, sqlstate):
    error = kind("no")
    error.__cause__ = NotThere(sqlstate)
    return error


@pytest.fixture
def problems():
    """What is told of stores that are lost and found."""
    heard = []

    def hear(event):
        if isinstance(event, events.StoreLost | events.StoreFound):
            heard.append(getattr(event, "problem", "found"))

    events.subscribe(hear)
    yield heard
    events.unsubscribe(hear)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError("refused"), "the backend default does not answer"),
        (OperationalError("gone"), "the backend default does not answer"),
        (StoreUnavailable("timed out"), "the backend default does not answer"),
        (StoreUnavailable("OOM", answered=True), "the backend default answers with an error"),
        (of_driver(OperationalError, "57014"), "the backend default answers with an error"),
        (of_driver(ProgrammingError, "42501"), "the backend default answers with an error"),
        (
            of_driver(ProgrammingError, "42P01"),
            f"the database 'jobs' lacks tables or columns of django_jobs ({MIGRATE})",
        ),
    ],
    ids=["socket", "driver", "broker", "full", "timeout", "permission", "tables"],
)
def test_a_store_that_answers_with_an_error_is_not_said_to_be_silent(error, problem, problems):
    outage = Outage("default", database="jobs")
    outage.begins(error)
    outage.begins(error)
    assert problems == [problem]


def test_a_store_that_comes_back_with_errors_says_so_once(problems):
    outage = Outage("default")
    for error in (OSError("refused"), of_driver(ProgrammingError, "42P01"), OSError("refused")):
        outage.begins(error)
        outage.begins(error)
    outage.ends()
    assert problems == [
        "the backend default does not answer",
        "the backend default answers with an error",
        "found",
    ]


def test_while_some_calls_still_fail_those_that_go_well_end_no_outage(problems, monkeypatch):
    outage = Outage("default")
    for _ in range(3):
        outage.begins(of_driver(ProgrammingError, "42703"))
        outage.ends()
    assert problems == ["the backend default answers with an error"]
    monkeypatch.setattr(store, "CALM_SECONDS", 0.0)
    outage.begins(of_driver(ProgrammingError, "42703"))
    outage.ends()
    assert problems[1:] == ["found"]


def test_an_outage_ends_though_a_thread_that_met_it_has_nothing_more_to_ask(problems, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(store, "time", SimpleNamespace(monotonic=lambda: now[0]))
    outage = Outage("default")

    def fail_and_go_well():
        outage.begins(of_driver(OperationalError, "53100"))
        outage.ends()

    beside = threading.Thread(target=fail_and_go_well)
    beside.start()
    beside.join()
    now[0] += store.CALM_SECONDS + 1.0
    outage.ends()
    assert problems[1:] == ["found"]
    assert outage.seconds == 0.0


def test_a_settle_waits_for_tables_that_are_missing(told, monkeypatch):
    monkeypatch.setattr(store, "CALM_SECONDS", 0.0)
    desk = Desk(of_driver(ProgrammingError, "42P01"))
    assert desk.settle(Succeeded(1)).answer is Settled.SETTLED
    assert (desk.backend.settles, told) == (2, [events.StoreLost, events.StoreFound])


def beside(work):
    """Do something in a thread of its own, to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.django_db(transaction=True)
def test_a_connection_from_before_an_outage_is_not_asked_after_it():
    outage = Outage("default")
    calls = Store(outage, lambda: True)
    calls.call(connection.ensure_connection)
    before = connection.connection
    beside(lambda: outage.begins(OSError("gone")) or outage.ends())
    assert calls.call(lambda: connection.ensure_connection() or "went well") == "went well"
    assert connection.connection is not before


def test_a_call_that_hung_until_an_outage_was_over_tells_of_no_new_one(told):
    outage = Outage("default")

    def hang():
        beside(lambda: outage.begins(OSError("met by another thread")) or outage.ends())
        outage.begins(OSError("told by what settles, inside of the call"))
        raise OSError("cut")

    calls = Store(outage, lambda: True)
    assert calls.call(hang) is None
    assert told == [events.StoreLost, events.StoreFound]
    calls.call(lambda: (_ for _ in ()).throw(OSError("again")))
    assert told == [events.StoreLost, events.StoreFound, events.StoreLost]


def test_a_stopped_worker_does_not_wait_for_its_store(monkeypatch):
    monkeypatch.setattr(store, "FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(store, "LONGEST_PAUSE", 1000.0)
    calls = Store(Outage("default"), lambda: True)
    assert calls.call(lambda: (_ for _ in ()).throw(OSError("gone"))) is None


def test_an_error_that_nobody_foresaw_is_told_and_ends_no_worker(told):
    outage = Outage("default")
    calls = Store(outage, lambda: True)
    assert calls.call(lambda: 1 / 0) is None
    assert outage.seconds == 0.0  # the store itself was there, and leases were renewed
    assert told == [events.StoreLost]
