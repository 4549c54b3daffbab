"""A job that waits in an outbox can be cancelled; exactly one of a push and a cancel happens."""

import json
import time
from contextlib import contextmanager

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from django_jobs import enqueue_many, job
from django_jobs.clock import SECOND
from django_jobs.exceptions import EnqueueOutcomeUnknown, JobFailed, StoreUnavailable
from django_jobs.models import Job, JobResult, OperatorEvent, OutboxJob, RelayLease
from django_jobs.operations import cancel as stopping
from django_jobs.operations.cancel import cancel, cancel_or_ask_to_stop
from django_jobs.operations.explain import explain
from django_jobs.tasks.compat import TaskResultStatus, task_backends
from tests.integration.children import Crew
from tests.integration.outbox.conftest import BROKER
from tests.integration.outbox.test_relay import HandClock, relay_of
from tests.integration.tasks.chores import tasks as chores
from tests.integration.test_locked_rows import IMPATIENT

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

JOBS = 200


@job(key="withdrawal.note")
def note(word):
    return word


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(stopping, "MOVING_SECONDS", 0.0)


@pytest.fixture
def carrier(broker):
    return broker(OUTBOX="default")


def withdraw(handle):
    return cancel_or_ask_to_stop(handle.id, by="ada", reason="by mistake").status


def there(handle):
    """Whether the broker has the job, or has had it."""
    jobs = Job.objects.using("other").filter(pk=handle.id)
    return jobs.exists() or JobResult.objects.using("other").filter(pk=handle.id).exists()


def test_a_job_in_the_outbox_is_cancelled_and_never_pushed(carrier):
    handle = note.enqueue("a")
    assert withdraw(handle) == "cancelled"
    assert not OutboxJob.objects.exists()
    assert relay_of(carrier).step() == (0, False)
    assert not there(handle)
    assert withdraw(handle) == "gone"
    (event,) = OperatorEvent.objects.all()
    said = (event.action, event.actor, event.reason, event.backend, event.queue, event.subject)
    assert said == ("cancel", "ada", "by mistake", "broker", "default", handle.id)


def test_it_is_told_like_a_job_that_was_cancelled_elsewhere(carrier, capsys):
    handle = note.using(name="a note", trace_id="f" * 32).enqueue("a")
    body = OutboxJob.objects.get().body
    assert cancel(handle.id, by="ada")
    assert handle.status == "cancelled"
    with pytest.raises(JobFailed, match="cancelled"):
        handle.result()
    assert explain(handle.id).state == "cancelled"
    kept = JobResult.objects.get()
    assert (kept.name, kept.trace_id, kept.body) == ("a note", "f" * 32, body)
    assert kept.finished_at >= kept.enqueued_at
    call_command("jobs_list", "--state", "cancelled", "--json")
    (listed,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (listed["id"], listed["state"], listed["backend"]) == (handle.id, "cancelled", "broker")


def test_a_task_in_the_outbox_that_was_cancelled_tells_so(carrier, settings):
    settings.TASKS = {"default": {"BACKEND": "django_jobs.tasks.JobsBackend"}}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "TASK_MODULES": [chores.__name__]}
    result = chores.add.enqueue(1, right=2)
    assert cancel_or_ask_to_stop(result.id, by="ada").status == "cancelled"
    found = task_backends["default"].get_result(result.id)
    assert (found.status, found.args, found.kwargs) == (
        TaskResultStatus.FAILED,
        [1],
        {"right": 2},
    )
    assert found.finished_at is not None


def test_it_is_cancelled_by_its_command_while_the_broker_is_away(settings, capsys):
    settings.DJANGO_JOBS = {
        "BACKENDS": {
            "redis": {
                "BACKEND": "django_jobs.backends.redis.RedisBackend",
                "OPTIONS": {"URL": "redis://127.0.0.1:1/0"},
                "OUTBOX": True,
            }
        },
        "DEFAULT_BACKEND": "redis",
    }
    handle = note.using(delay=60).enqueue("a")
    call_command("jobs_cancel", handle.id)
    assert capsys.readouterr().out == f"{handle.id} cancelled\n"
    assert not OutboxJob.objects.exists()


def test_enqueued_again_it_stays_cancelled(carrier):
    prepared = note.prepare("a")
    handle = prepared.enqueue()
    assert withdraw(handle) == "cancelled"
    assert not prepared.enqueue().created
    assert not OutboxJob.objects.exists()


def test_a_witness_that_fails_undoes_it(carrier):
    handle = note.enqueue("a")

    def witness(_):
        raise RuntimeError("no log")

    with pytest.raises(RuntimeError):
        cancel_or_ask_to_stop(handle.id, by="ada", witness=witness)
    assert handle.status == "ready"
    assert not OperatorEvent.objects.exists()


class Broken:
    """Does something in the middle of a push."""

    def __init__(self, carrier, monkeypatch):
        self.before = self.after = lambda: None
        self._push = carrier.push
        monkeypatch.setattr(carrier, "push", self)

    def __call__(self, outgoing, **how):
        self.before()
        stored = self._push(outgoing, **how)
        self.after()
        return stored


@pytest.fixture
def push(carrier, monkeypatch):
    return Broken(carrier, monkeypatch)


def lose():
    raise EnqueueOutcomeUnknown([], "no answer")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_is_being_pushed_is_not_cancelled_in_the_outbox(carrier, push, moment):
    handle = note.enqueue("a")
    said = []
    setattr(push, moment, lambda: said.append(withdraw(handle)))
    relay_of(carrier).step()
    assert said == ["moving"]
    assert handle.status == "ready"
    assert withdraw(handle) == "cancelled"  # where it is by now
    assert not JobResult.objects.using("default").exists()


def test_what_a_relay_is_not_at_yet_is_cancelled_beside_it(carrier, push, monkeypatch):
    monkeypatch.setattr("django_jobs.outbox.relay.BATCH", 1)
    first, second = note.enqueue("a"), note.enqueue("b")
    said = []
    push.before = lambda: said.append(withdraw(second))
    assert relay_of(carrier).step().jobs == 1
    assert said == ["cancelled"]
    assert there(first)
    assert not there(second)


def test_when_a_push_got_no_answer_the_backend_is_asked(carrier, push):
    arrived, lost = note.using(queue="arrived").enqueue("a"), note.using(queue="lost").enqueue("b")
    relay = relay_of(carrier)
    push.after = lose
    relay._queues = lambda: ["arrived"]
    with pytest.raises(EnqueueOutcomeUnknown):
        relay.step()
    push.before = lose
    relay._queues = lambda: ["lost"]
    with pytest.raises(EnqueueOutcomeUnknown):
        relay.step()
    assert OutboxJob.objects.count() == 2
    assert (withdraw(arrived), withdraw(lost)) == ("cancelled", "cancelled")
    push.before = push.after = lambda: None
    relay_of(carrier).step()
    assert not OutboxJob.objects.exists()
    assert (arrived.status, lost.status) == ("cancelled", "cancelled")
    assert (there(arrived), there(lost)) == (True, False)
    assert not Job.objects.using("other").exists()


def test_when_the_backend_cannot_be_asked_nothing_is_claimed(carrier, push, monkeypatch):
    handle = note.enqueue("a")
    push.after = lose
    with pytest.raises(EnqueueOutcomeUnknown):
        relay_of(carrier).step()

    def away(*_args):
        raise StoreUnavailable("nobody answers")

    monkeypatch.setattr(carrier, "known_ids", away)
    assert withdraw(handle) == "moving"
    monkeypatch.undo()
    assert handle.status == "ready"


def test_after_a_push_that_certainly_failed_the_backend_is_not_asked(carrier, push, monkeypatch):
    handle = note.enqueue("a")

    def refuse():
        raise StoreUnavailable("connection refused", undone=True)

    push.before = refuse
    with pytest.raises(StoreUnavailable):
        relay_of(carrier).step()
    monkeypatch.setattr(carrier, "known_ids", None)
    assert withdraw(handle) == "cancelled"


def test_a_push_that_certainly_failed_forgets_none_that_got_no_answer(carrier, push):
    handle = note.enqueue("a")
    push.after = lose
    with pytest.raises(EnqueueOutcomeUnknown):
        relay_of(carrier).step()

    def refuse():
        raise StoreUnavailable("connection refused", undone=True)

    push.before = refuse
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            relay_of(carrier).step()
    assert withdraw(handle) == "cancelled"
    assert there(handle)  # it had arrived, and is cancelled there
    assert not Job.objects.using("other").exists()


def test_what_got_no_answer_and_was_put_off_since_is_asked_for(carrier, push, settings):
    handle = note.enqueue("a")
    push.after = lose
    with pytest.raises(EnqueueOutcomeUnknown):
        relay_of(carrier).step()
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "SIGNING_KEYS": [("old", "o" * 32)]}
    relay_of(carrier).step()
    assert OutboxJob.objects.get().put_off_since
    assert withdraw(handle) == "cancelled"
    assert not Job.objects.using("other").exists()


def test_of_a_relay_that_was_killed_the_lease_is_waited_for(carrier):
    handle = note.enqueue("a")
    clock = HandClock()
    clock.at = OutboxJob.objects.get().created
    relay = relay_of(carrier, clock)
    assert relay._begun("default") is None
    assert relay._leases.create("default")
    assert len(relay._begun("default")) == 1  # and then no push, and no end
    assert withdraw(handle) == "moving"
    RelayLease.objects.update(expires=clock.at - 40 * SECOND)
    assert withdraw(handle) == "cancelled"


@pytest.fixture
def uncommitted():
    """A transaction of another process, which stays open while the test goes on.

    Who would wait for one of its locks fails after a second.
    """
    other = connection.copy()
    with connection.cursor() as cursor:
        cursor.execute(IMPATIENT[connection.vendor])

    @contextmanager
    def theirs():
        mine, connections["default"] = connections["default"], other
        try:
            yield
        finally:
            connections["default"] = mine

    with theirs():
        atomic = transaction.atomic()
        atomic.__enter__()
    yield theirs
    with theirs():
        atomic.__exit__(None, None, None)
        other.close()
    connection.close()


@pytest.mark.only_on("postgres", "mariadb", "mysql")
def test_a_cancel_that_is_not_committed_holds_up_only_its_own_queue(carrier, uncommitted):
    note.using(queue="alpha").enqueue("an earlier one")
    relay_of(carrier).step()
    cancelled, other = (note.using(queue=name).enqueue("x") for name in ("alpha", "beta"))
    with uncommitted():
        assert withdraw(cancelled) == "cancelled"
    assert relay_of(carrier).step() == (1, True)
    assert there(other)
    assert not there(cancelled)


@pytest.mark.only_on("postgres", "mariadb", "mysql")
def test_a_relay_gets_on_beside_a_cancel_that_came_while_it_pushed(
    carrier, push, monkeypatch, uncommitted
):
    monkeypatch.setattr("django_jobs.outbox.relay.BATCH", 1)
    note.using(queue="alpha").enqueue("an earlier one")
    first, second, other = (note.using(queue=name).enqueue(name) for name in ("b", "b", "c"))
    said = []

    def cancel_second():
        push.before = lambda: None
        with uncommitted():
            said.append(withdraw(second))

    relay = relay_of(carrier)
    relay._queues = lambda: ["b", "c"]
    RelayLease.objects.create(backend="broker", queue="b")
    push.before = cancel_second
    assert relay.step() == (2, True)
    assert said == ["cancelled"]
    assert [there(one) for one in (first, second, other)] == [True, False, True]


def test_a_relay_that_stood_still_for_longer_than_its_lease_pushes_nothing(carrier):
    handle = note.enqueue("a")
    relay = relay_of(carrier)
    assert relay._leases.create("default")
    rows = relay._begun("default")
    relay._held_since = time.monotonic() - relay._lease_seconds  # as a stopped process finds it
    RelayLease.objects.update(expires=1)
    assert withdraw(handle) == "cancelled"
    assert relay._queue("default", rows) == (0, True)
    assert not there(handle)


def test_what_was_refused_together_is_not_pushed_alone_after_the_lease(carrier, push):
    handles = [note.enqueue(word) for word in "ab"]

    def stand_still():
        push.before = lambda: None
        RelayLease.objects.update(expires=1)
        assert [withdraw(one) for one in handles] == ["cancelled", "cancelled"]
        raise RuntimeError("too much at once")

    push.before = stand_still
    assert relay_of(carrier).step() == (0, True)
    assert not any(there(one) for one in handles)


def test_what_there_was_no_time_to_push_alone_is_asked_for(carrier, push, monkeypatch):
    first, second = (note.enqueue(word) for word in "ab")
    relay = relay_of(carrier)

    def refuse():
        push.before = take_long
        raise RuntimeError("too much at once")

    def take_long():
        relay._held_since -= relay._lease_seconds * 0.6

    push.before = refuse
    assert relay.step() == (1, True)
    assert there(first)
    assert RelayLease.objects.get().moving_to == OutboxJob.objects.get().pk
    monkeypatch.setattr(carrier, "known_ids", set)
    assert withdraw(second) == "gone"


def test_a_relay_and_a_cancel_beside_it_never_both_have_a_job(site_environment, carrier):
    handles = enqueue_many(note.prepare(str(number)) for number in range(JOBS))
    ids = [handle.id for handle in handles]
    site = {
        "BACKENDS": {"broker": {**BROKER, "OUTBOX": "default"}},
        "DEFAULT_BACKEND": "broker",
    }
    environment = {
        **site_environment,
        "DJANGO_SETTINGS_MODULE": "tests.integration.outbox.depot.settings",
        "DEPOT_JOBS": json.dumps(site),
    }
    with Crew(environment) as crew:
        crew.add("move_outbox", batch=3)
        crew.add("cancel_or_ask_to_stop", ids=ids[::-1])
        moved, answers = crew.work()
    assert not OutboxJob.objects.exists()
    assert set(answers) == {"cancelled"}
    withdrawn = {str(pk) for pk in JobResult.objects.values_list("pk", flat=True)}
    cancelled = {str(pk) for pk in JobResult.objects.using("other").values_list("pk", flat=True)}
    assert withdrawn | cancelled == set(ids)
    assert not withdrawn & cancelled
    assert not Job.objects.using("other").exists()
    assert moved == len(cancelled)
    assert min(moved, len(withdrawn)) > 0, "they did not meet"
