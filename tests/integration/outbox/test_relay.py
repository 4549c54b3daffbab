"""The outbox: written with the caller's rows, moved on in order, and by one relay at a time."""

from contextlib import ExitStack, contextmanager
from itertools import count

import pytest
from django.db import OperationalError, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs import enqueue_many, job
from django_jobs.backends.base import ResultRecord
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.db.clock import StoreClock
from django_jobs.exceptions import (
    EnqueueOutcomeUnknown,
    InvalidPayload,
    NotSupported,
    StoreUnavailable,
)
from django_jobs.models import FailedJob, Job, OutboxJob
from django_jobs.outbox import relay as module
from django_jobs.outbox.lookup import backlogs
from django_jobs.redaction import HIDDEN
from django_jobs.worker.build import build_relay, process_once
from django_jobs.worker.relay import Relaying

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@job(key="relay.note", takes_context=True)
def note(context, word):
    return word


class HandClock:
    """Stands still until it is moved."""

    def __init__(self):
        self.at = 1_700_000_000 * SECOND

    def now(self):
        return self.at


@pytest.fixture
def carrier(broker):
    return broker(OUTBOX="default")


def relay_of(backend, clock=None):
    found = build_relay(backend, get_settings())
    if clock is not None:
        found = module.Relay(
            backend, "default", found._opener, lease_seconds=30.0, clock=StoreClock(clock)
        )
    return found


def waiting():
    return [str(row) for row in OutboxJob.objects.order_by("id").values_list("job_id", flat=True)]


def arrived(carrier):
    return [lease.id for lease in carrier.fetch(["default"], 1000, 30.0)]


def test_a_job_is_a_row_of_the_transaction_and_is_moved_by_the_relay(carrier):
    with transaction.atomic():
        handle = note.enqueue("a")
        assert waiting() == [handle.id]
    assert not Job.objects.using("other").exists()
    assert handle.status == "ready"
    assert relay_of(carrier).step().jobs == 1
    assert waiting() == []
    assert carrier.find(handle.id)


def test_a_rolled_back_transaction_leaves_nothing_to_move(carrier):
    with transaction.atomic():
        note.enqueue("a")
        transaction.set_rollback(True)
    assert waiting() == []
    assert relay_of(carrier).step() == (0, False)


def test_without_a_transaction_it_goes_through_the_outbox_too(carrier):
    handle = note.enqueue("a")
    assert waiting() == [handle.id]


def test_jobs_keep_their_order_through_batches(carrier, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 7)
    handles = enqueue_many(note.prepare(str(number)) for number in range(30))
    handles += [note.enqueue(str(number)) for number in range(5)]
    assert relay_of(carrier).step() == (35, False)
    assert arrived(carrier) == [handle.id for handle in handles]


def test_a_step_is_bounded_and_says_that_there_is_more(carrier, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(module, "BATCHES_PER_STEP", 2)
    enqueue_many(note.prepare(str(number)) for number in range(5))
    relay = relay_of(carrier)
    assert [relay.step(), relay.step()] == [(4, True), (1, False)]


def test_one_relay_at_a_time_moves_a_queue(carrier):
    note.enqueue("a")
    note.using(queue="mail").enqueue("b")
    mine, yours = relay_of(carrier), relay_of(carrier)
    assert mine._leases.take("default")
    assert yours.step() == (1, True)  # of the queue that is free
    mine._leases.release("default")
    assert yours.step() == (1, False)


def test_the_lease_of_a_relay_that_was_killed_ends_on_the_stores_clock(carrier):
    clock = HandClock()
    note.enqueue("a")
    mine, yours = relay_of(carrier, clock), relay_of(carrier, clock)
    assert mine._leases.take("default")
    clock.at += 30 * SECOND - 1
    assert yours.step() == (0, True)
    clock.at += 1
    assert yours.step() == (1, False)


def test_a_lease_begins_anew_with_each_batch(carrier, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)
    clock, push, taken = HandClock(), carrier.push, []
    handles = [note.enqueue(str(number)) for number in range(4)]
    mine, yours = relay_of(carrier, clock), relay_of(carrier, clock)

    def slow(outgoing, **how):
        clock.at += 20 * SECOND  # of a lease of 30
        monkeypatch.setattr(carrier, "push", push)
        taken.append(yours.step().jobs)
        monkeypatch.setattr(carrier, "push", slow)
        return push(outgoing, **how)

    monkeypatch.setattr(carrier, "push", slow)
    assert mine.step().jobs == len(handles)
    assert taken == [0] * len(handles)
    assert arrived(carrier) == [handle.id for handle in handles]


def test_only_who_holds_the_lease_gives_it_back(carrier):
    clock = HandClock()
    mine, yours = relay_of(carrier, clock), relay_of(carrier, clock)
    assert mine._leases.take("default")
    clock.at += 31 * SECOND
    assert yours._leases.take("default")
    mine._leases.release("default")
    assert not mine._leases.take("default")


def pushed_and_not_removed(carrier):
    """What a relay leaves that is killed between the two."""
    relay = relay_of(carrier)
    relay._remove = lambda _rows: 0
    relay.step()


def test_what_was_pushed_before_and_lives_is_left_alone(carrier):
    handle = note.enqueue("a")
    pushed_and_not_removed(carrier)
    assert waiting() == [handle.id]
    (lease,) = carrier.fetch(["default"], 10, 30.0)
    relay_of(carrier).step()
    assert waiting() == []
    assert arrived(carrier) == []
    assert carrier.ack([lease])[0].value == "settled"


@pytest.mark.parametrize("end", ["ack", "abandon", "cancel"])
def test_what_was_pushed_before_and_has_ended_is_refused(carrier, end):
    handle = note.enqueue("a")
    pushed_and_not_removed(carrier)
    if end == "cancel":
        assert carrier.cancel(handle.id)
    else:
        (lease,) = carrier.fetch(["default"], 10, 30.0)
        if end == "ack":
            carrier.ack([lease], {lease.id: ResultRecord(status="succeeded")})
        else:
            carrier.abandon(lease, module.Failure(reason="exhausted"))
    relay_of(carrier).step()
    assert waiting() == []
    assert not Job.objects.using("other").exists()


def test_the_same_prepared_job_is_one_job(carrier):
    prepared = note.prepare("a")
    first = prepared.enqueue()
    second = prepared.enqueue()
    assert (first.id, first.created) == (second.id, True)
    assert not second.created
    assert waiting() == [first.id]
    relay_of(carrier).step()
    assert not prepared.enqueue().created  # it lives
    (lease,) = carrier.fetch(["default"], 1, 30.0)
    carrier.ack([lease], {lease.id: ResultRecord(status="succeeded")})
    assert waiting() == []
    fresh = note.prepare("b")
    assert [one.created for one in enqueue_many([prepared, fresh])] == [False, True]
    assert waiting() == [fresh.id]


@contextmanager
def counted():
    """Counts the statements of both databases."""
    with ExitStack() as stack:
        seen = [
            stack.enter_context(CaptureQueriesContext(connections[alias]))
            for alias in ("default", "other")
        ]
        found = []
        yield found
        found.append(sum(map(len, seen)))


def test_enqueueing_many_again_costs_a_fixed_number_of_statements(carrier):
    found = {}
    for size in (2, 60):  # Django 5.2 writes fewer than a hundred such rows of SQLite at once
        jobs = [note.prepare(str(number)) for number in range(size)]
        enqueue_many(jobs[: size // 2])
        relay_of(carrier).step()
        with counted() as cost:
            created = [one.created for one in enqueue_many(jobs)]
        assert created == [False] * (size // 2) + [True] * (size // 2)
        found[size] = cost[0]
    assert found[60] == found[2]


def test_jobs_are_enqueued_again_while_their_backend_does_not_answer(carrier, monkeypatch):
    prepared = note.prepare("a")
    prepared.enqueue()
    relay_of(carrier).step()

    def away(*_args):
        raise StoreUnavailable("nobody answers")

    monkeypatch.setattr(carrier, "known_ids", away)
    assert prepared.enqueue().created  # as far as can be told
    relay_of(carrier).step()
    assert waiting() == []
    assert arrived(carrier) == [prepared.id]


def test_a_delay_counts_from_the_push_and_is_kept(carrier):
    note.using(delay=60).enqueue("a")
    relay_of(carrier).step()
    assert arrived(carrier) == []
    assert carrier.next_due_in(["default"]) > 55


@pytest.mark.parametrize("change", ["body", "signature", "queue", "job_id"])
def test_a_row_that_was_changed_is_a_dead_letter_and_no_job(carrier, change):
    note.enqueue("a")
    sound = note.enqueue("b")
    forged = {
        "body": "{}",
        "signature": "0" * 64,
        "queue": "mail",
        "job_id": "00000000-0000-7000-8000-000000000000",
    }
    OutboxJob.objects.exclude(job_id=sound.id).update(**{change: forged[change]})
    relay_of(carrier).step()
    assert arrived(carrier) == [sound.id]
    assert waiting() == []
    assert FailedJob.objects.get().reason.startswith("rejected-")


OLD, NEW = ("old", "o" * 32), ("new", "n" * 32)


def test_what_a_relay_cannot_judge_waits_for_one_that_can(carrier, broker, settings):
    made = settings.DJANGO_JOBS
    settings.DJANGO_JOBS = {**made, "SIGNING_KEYS": [NEW]}
    unknown = note.enqueue("a")
    settings.DJANGO_JOBS = {**made, "SIGNING_KEYS": [OLD]}
    sound = note.enqueue("b")
    clock = HandClock()
    old = relay_of(carrier, clock)
    old.step()
    assert arrived(carrier) == [sound.id]
    assert waiting() == [unknown.id]
    assert "'new'" in OutboxJob.objects.get().problem
    clock.at += int(old.due_in() * SECOND)
    settings.DJANGO_JOBS = {**made, "SIGNING_KEYS": [OLD, NEW]}
    relay_of(carrier, clock).step()
    assert waiting() == []
    assert arrived(carrier) == [unknown.id]


def test_what_no_relay_can_judge_is_a_dead_letter_when_patience_ends(carrier, settings):
    note.enqueue("a")
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "SITE": "elsewhere"}
    clock = HandClock()
    began = clock.at
    relay = relay_of(carrier, clock)
    relay.step()
    while (pause := relay.due_in()) is not None:
        assert 0 < pause <= module.LONGEST_PAUSE
        clock.at += int(pause * SECOND)
        relay.step()
    assert clock.at - began == 86_400 * SECOND
    assert FailedJob.objects.get().reason == "other-site"
    assert not OutboxJob.objects.exists()


class Picky:
    """Refuses the jobs of some ids, in the way of ``error``."""

    def __init__(self, carrier, monkeypatch):
        self.refused, self.error, self.pushes = set(), None, count()
        self._push = carrier.push
        monkeypatch.setattr(carrier, "push", self)

    def __call__(self, outgoing, **how):
        next(self.pushes)
        if self.refused & {message.id for message in outgoing}:
            raise self.error
        return self._push(outgoing, **how)


@pytest.fixture
def picky(carrier, monkeypatch):
    return Picky(carrier, monkeypatch)


def test_what_a_backend_will_never_take_is_a_dead_letter_and_blocks_nobody(carrier, picky):
    handles = [note.enqueue(word) for word in "abc"]
    picky.refused, picky.error = {handles[0].id}, InvalidPayload("too large, password=s3cret")
    relay_of(carrier).step()
    assert arrived(carrier) == [handle.id for handle in handles[1:]]
    dead = FailedJob.objects.get()
    assert (str(dead.job_id), dead.reason) == (handles[0].id, "refused-by-backend")
    assert dead.error_message == f"too large, password={HIDDEN}"
    assert handles[0].status == "dead"


def test_what_a_backend_refuses_while_it_takes_others_waits_and_then_dies(carrier, picky):
    clock = HandClock()
    relay = relay_of(carrier, clock)
    handle = note.enqueue("poison")
    picky.refused, picky.error = {handle.id}, RuntimeError("no idea of amqp://me:s3cret@mq/")
    for refusals in range(1, module.MOST_REFUSALS):
        note.enqueue("good")
        relay.step()
        row = OutboxJob.objects.get()
        assert (str(row.job_id), row.refusals) == (handle.id, refusals)
        assert row.problem == "RuntimeError: no idea of amqp://••••@mq/"
        pause = relay.due_in()
        assert pause == min(2.0**refusals, module.LONGEST_PAUSE)
        clock.at += int(pause * SECOND)
    note.enqueue("good")
    relay.step()
    assert waiting() == []
    assert str(FailedJob.objects.get().job_id) == handle.id
    assert len(arrived(carrier)) == module.MOST_REFUSALS


def test_a_broker_that_takes_nothing_is_an_outage_and_no_fault_of_the_jobs(carrier, picky):
    handles = [note.enqueue(word) for word in "abc"]
    picky.refused, picky.error = {handle.id for handle in handles}, RuntimeError("out of memory")
    with pytest.raises(RuntimeError):
        relay_of(carrier).step()
    assert waiting() == [handle.id for handle in handles]
    assert not OutboxJob.objects.filter(refusals__gt=0).exists()
    picky.refused = set()
    relay_of(carrier).step()
    assert arrived(carrier) == [handle.id for handle in handles]


AWAY = StoreUnavailable("its shard is away", undone=True)


def enqueue_in(queues):
    return [note.using(queue=queue).enqueue("x") for queue in queues]


@pytest.mark.parametrize(
    "error", [AWAY, EnqueueOutcomeUnknown([], "no answer"), RuntimeError("no such thing")]
)
def test_a_queue_that_cannot_be_pushed_holds_up_no_other(carrier, picky, error):
    stuck, *others = enqueue_in(["alpha", "beta", "beta", "gamma"])
    picky.refused, picky.error = {stuck.id}, error
    relay = relay_of(carrier)
    assert relay.step() == (3, True)
    assert waiting() == [stuck.id]
    assert relay.due_in() is not None
    (late,) = enqueue_in(["beta"])
    assert relay.step().jobs == 1  # while the other rests, too
    picky.refused = set()
    OutboxJob.objects.update(retry_at=0)
    relay_of(carrier).step()
    leases = carrier.fetch(["alpha"], 9, 30.0) + carrier.fetch(["beta"], 9, 30.0)
    assert [lease.id for lease in leases] == [stuck.id, *[one.id for one in others[:2]], late.id]


def test_a_queue_whose_shard_is_away_is_not_the_fault_of_its_jobs(carrier, picky, monkeypatch):
    monkeypatch.setattr(module, "FIRST_REST", 0.0)
    stuck, _ = enqueue_in(["alpha", "beta"])
    picky.refused, picky.error = {stuck.id}, AWAY
    relay = relay_of(carrier)
    for _ in range(module.MOST_REFUSALS + 1):
        enqueue_in(["beta"])
        relay.step()
    assert OutboxJob.objects.get().refusals == 0


def test_the_only_job_of_a_queue_dies_of_refusals_while_others_are_taken(
    carrier, picky, monkeypatch
):
    monkeypatch.setattr(module, "FIRST_REST", 0.0)
    clock = HandClock()
    relay = relay_of(carrier, clock)
    (poison,) = enqueue_in(["alpha"])
    picky.refused, picky.error = {poison.id}, RuntimeError("no such thing")
    for refusals in range(1, module.MOST_REFUSALS):
        enqueue_in(["beta"])
        relay.step()
        assert OutboxJob.objects.get().refusals == refusals
        clock.at += int(relay.due_in() * SECOND)
    enqueue_in(["beta"])
    relay.step()
    assert waiting() == []
    assert (str(FailedJob.objects.get().job_id), poison.status) == (poison.id, "dead")


def test_a_refusal_counts_when_others_were_taken_since_the_one_before(carrier, picky, monkeypatch):
    monkeypatch.setattr(module, "FIRST_REST", 0.0)
    (poison,) = enqueue_in(["alpha"])
    picky.refused, picky.error = {poison.id}, RuntimeError("no such thing")
    relay = relay_of(carrier)
    for _ in range(3):  # nothing says yet whose fault it is
        with pytest.raises(RuntimeError):
            relay.step()
    assert OutboxJob.objects.get().refusals == 0
    enqueue_in(["beta"])
    relay.step()
    assert OutboxJob.objects.get().refusals == 1


def test_of_a_queue_that_is_refused_as_a_whole_only_the_first_job_is_blamed(carrier, picky):
    handles = enqueue_in(["alpha"] * 5)
    enqueue_in(["beta"])
    picky.refused, picky.error = {one.id for one in handles}, RuntimeError("a key of another type")
    assert relay_of(carrier).step() == (1, True)
    assert list(OutboxJob.objects.order_by("id").values_list("refusals", flat=True)) == [
        1, 0, 0, 0, 0,
    ]  # fmt: skip


def test_a_refusal_that_two_relays_met_is_counted_once(carrier, picky):
    (poison,) = enqueue_in(["alpha"])
    enqueue_in(["beta"])
    picky.refused, picky.error = {poison.id}, RuntimeError("no such thing")
    mine, yours = relay_of(carrier), relay_of(carrier)

    def beside(queue):
        """The other relay has its turn while this one is at the next queue."""
        if queue == "beta":
            enqueue_in(["gamma"])
            yours._queues = lambda: ["alpha", "gamma"]
            yours.step()
        return leased(queue)

    leased, mine._leased = mine._leased, beside
    mine.step()
    assert OutboxJob.objects.get().refusals == 1


def test_a_job_that_another_relay_is_pushing_by_now_is_no_dead_letter(carrier, picky):
    (poison,) = enqueue_in(["alpha"])
    enqueue_in(["beta"])
    OutboxJob.objects.filter(queue="alpha").update(refusals=module.MOST_REFUSALS - 1)
    picky.refused, picky.error = {poison.id}, RuntimeError("no such thing")
    mine, yours = relay_of(carrier), relay_of(carrier)
    leased, begun = mine._leased, []

    def beside(queue):
        if queue == "beta":
            picky.refused = set()  # and is to be pushed just now
            begun.append(yours._begun("alpha"))
        return leased(queue)

    mine._leased = beside
    mine.step()
    assert len(begun[0]) == 1
    assert not FailedJob.objects.exists()
    yours._queue("alpha", begun[0])
    assert waiting() == []
    assert poison.status == "ready"


def test_queues_that_time_out_are_not_all_waited_for_in_one_step(carrier, picky, monkeypatch):
    monkeypatch.setattr(module, "MOST_FAILING_SECONDS", -1.0)  # each takes too long
    handles = enqueue_in(["alpha", "beta", "gamma"])
    picky.refused, picky.error = {one.id for one in handles[:2]}, AWAY
    relay = relay_of(carrier)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            relay.step()
    assert relay.step().jobs == 1  # its turn came, though those before it still fail
    assert waiting() == [one.id for one in handles[:2]]


def test_it_is_said_once_that_a_queue_stands_still_and_once_that_it_moves(
    carrier, picky, monkeypatch, caplog
):
    monkeypatch.setattr(module, "FIRST_REST", 0.0)
    stuck, _ = enqueue_in(["alpha", "beta"])
    picky.refused, picky.error = {stuck.id}, AWAY
    duty = Relaying(relay_of(carrier), 0.0)
    for _ in range(3):
        duty.step()
        duty._due_at = 0.0
        duty.step()  # nothing else is there to be moved
        duty._due_at = 0.0
        enqueue_in(["beta"])
    picky.refused = set()
    duty.step()
    said = [(record.key, record.queue) for record in caplog.records]
    assert said == [("relay.lost", "alpha"), ("relay.found", "alpha")]


def test_when_nobody_answers_each_job_is_not_tried_by_itself(carrier, picky):
    handles = [note.enqueue(word) for word in "abc"]
    picky.refused, picky.error = {handles[-1].id}, ConnectionError("nobody answers")
    with pytest.raises(ConnectionError):
        relay_of(carrier).step()
    assert next(picky.pushes) == 1
    assert len(waiting()) == 3


def test_a_step_that_fails_gives_the_lease_back(carrier, picky):
    handle = note.enqueue("a")
    picky.refused, picky.error = {handle.id}, OperationalError("nobody answers")
    with pytest.raises(OperationalError):
        relay_of(carrier).step()
    picky.refused = set()
    assert relay_of(carrier).step().jobs == 1


def test_a_queue_can_have_an_outbox_where_the_backend_has_none(settings):
    settings.DJANGO_JOBS = {
        "BACKENDS": {"memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}},
        "DEFAULT_BACKEND": "memory",
        "QUEUES": {"mail": {"OUTBOX": True}, "default": {}},
    }
    memory = backends["memory"]
    direct = note.enqueue("a")
    kept = note.using(queue="mail").enqueue("b")
    assert list(memory.jobs) == [direct.id]
    assert waiting() == [kept.id]
    relay_of(memory).step()
    assert list(memory.jobs) == [direct.id, kept.id]


def test_a_queue_can_do_without_the_outbox_of_its_backend(broker):
    broker({"mail": {}, "default": {"OUTBOX": False}}, OUTBOX="default")
    note.enqueue("a")
    kept = note.using(queue="mail").enqueue("b")
    assert waiting() == [kept.id]
    assert Job.objects.using("other").count() == 1


def test_a_unique_key_is_refused(carrier):
    with pytest.raises(NotSupported, match="idempotency_key"):
        note.using(unique_key="k").enqueue("a")


@pytest.mark.parametrize("ttl", [0, 60])
def test_a_result_too_short_to_remember_by_is_refused(carrier, ttl):
    with pytest.raises(NotSupported, match="3600"):
        note.using(result_ttl=ttl).enqueue("a")


def test_an_outbox_in_the_backends_own_database_is_left_out(broker):
    broker(OUTBOX="other")
    note.enqueue("a")
    assert waiting() == []
    assert Job.objects.using("other").count() == 1


def test_the_backlog_tells_depth_and_age(carrier):
    assert backlogs() == []
    note.enqueue("a")
    note.enqueue("b")
    OutboxJob.objects.update(created=OutboxJob.objects.latest("id").created - 90 * SECOND)
    (seen,) = backlogs()
    assert (seen.backend, seen.queue, seen.jobs, seen.refused) == ("broker", "default", 2, 0)
    assert 90 <= seen.oldest_seconds < 120
    assert seen.stalled


@pytest.mark.django_db(transaction=False, databases=["default", "other"])
def test_process_once_moves_the_outbox_first_also_inside_a_test(carrier):
    handle = note.enqueue("a")
    report = process_once()
    assert (report.status, report.job_id) == ("acked", handle.id)
    assert handle.result() == "a"
