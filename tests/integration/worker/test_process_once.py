"""``process_once()``: its reports, in every kind of test case, and what handlers leave behind."""

import logging
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from django_jobs import Cancel, Retry, Snooze, define, job
from django_jobs.backends.registry import backends
from django_jobs.exceptions import InvalidBackend
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState
from django_jobs.worker import cycle, process_once
from django_jobs.worker.build import run_lease
from testproject.shop.models import Order
from tests.integration.worker.labour import jobs as labour

calls = []


@job(key="once.add", takes_context=True)
def add(context, a, b=2):
    calls.append(context)
    print("adding")
    return a + b


@job(key="once.raise", max_retries=1, retry="none")
def raise_it():
    raise ValueError("odd \0 thing \ud800")


@job(key="once.slow", timeout=0.05)
def slow():
    time.sleep(30)


@job(key="once.snooze")
def snooze():
    raise Snooze(10, "later")


@job(key="once.cancel")
def cancel():
    raise Cancel("not \0 wanted")


@job(key="once.retry", max_retries=1, retry="none")
def retry():
    raise Retry(60)


@job(key="once.odd", max_retries=0)
def odd():
    raise type("Odd\x1bType" + "x" * 300, (Exception,), {})("a" * 100_000)


@job(key="once.order")
def order():
    Order.objects.create(email="a@example.com", total=1)


@job(key="once.open")
def leave_open():
    Order.objects.create(email="before@example.com", total=1)
    transaction.atomic().__enter__()
    Order.objects.create(email="open@example.com", total=1)


@job(key="once.close")
def close():
    connection.close()


@job(key="once.autocommit")
def without_autocommit():
    transaction.set_autocommit(False)
    Order.objects.create(email="open@example.com", total=1)


@job(key="once.break")
def break_it():
    taken = Order.objects.create(email="first@example.com", total=1)
    try:
        Order.objects.create(pk=taken.pk, email="again@example.com", total=1)
    except IntegrityError:
        return "swallowed"


@job(key="once.break_raise")
def break_and_raise():
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


# -- reports, in every kind of test case -----------------------------------------------------------


class Reports:
    """Run once inside a transaction of the test, and once without one."""

    def test_nothing_to_do_is_empty_and_false(self):
        report = process_once()
        assert (report.status, bool(report)) == ("empty", False)

    def test_a_job_that_ran_is_acked_and_its_result_kept(self):
        handle = add.enqueue(1, b=5)
        report = process_once()
        assert (report.status, report.job_id, report.handler) == ("acked", handle.id, "once.add")
        assert (report.queue, report.attempt, bool(report)) == ("default", 1, True)
        assert (handle.status, handle.result()) == ("succeeded", 6)
        assert JobResult.objects.get().output == "adding\n"
        (context,) = calls
        assert (context.id, context.attempt, context.queue) == (handle.id, 1, "default")

    def test_a_failure_is_requeued_and_then_a_dead_letter(self):
        handle = raise_it.enqueue()
        assert [process_once().status for _ in range(3)] == ["requeued", "dead-lettered", "empty"]
        dead = FailedJob.objects.get()
        assert (str(dead.job_id), dead.reason, dead.attempts) == (handle.id, "exhausted", 2)
        assert dead.error_message == "odd \\x00 thing \\ud800"
        assert list(JobAttempt.objects.values_list("number", flat=True)) == [1, 2]
        assert handle.status == "dead"

    def test_h2_the_timeout_reaches_the_worker_and_interrupts_the_handler(self):
        slow.enqueue()
        assert process_once().status == "dead-lettered"
        assert FailedJob.objects.get().reason == "timed-out"
        assert JobAttempt.objects.get().outcome == "timed-out"

    def test_snooze_retry_and_cancel(self):
        handles = snooze.enqueue(), retry.enqueue(), cancel.enqueue()
        reports = [process_once() for _ in handles]
        assert [report.status for report in reports] == ["snoozed", "requeued", "cancelled"]
        assert [report.delay for report in reports] == [10, 60, 0]
        assert [handle.status for handle in handles] == ["scheduled", "scheduled", "cancelled"]
        assert process_once().status == "empty"

    def test_odd_and_endless_exceptions_can_be_stored(self):
        odd.enqueue()
        assert process_once().status == "dead-lettered"
        assert "Odd\\x1bTypexxx" in FailedJob.objects.get().error_type

    def test_forged_bodies_are_rejected(self):
        add.enqueue(1)
        Job.objects.update(body=Job.objects.get().body.replace('"args":[1]', '"args":[2]'))
        assert process_once().status == "rejected"
        assert (FailedJob.objects.get().reason, calls) == ("rejected-signature", [])

    def test_a_handler_the_queue_no_longer_allows_is_rejected(self):
        add.enqueue(1)
        with override_settings(DJANGO_JOBS={"QUEUES": {"default": {"HANDLERS": ["once.order"]}}}):
            assert process_once().status == "rejected"
        assert (FailedJob.objects.get().reason, calls) == ("rejected-handler", [])

    def test_only_the_queues_asked_for_are_looked_at_in_order(self):
        for queue in ("a", "b", "c"):
            add.using(queue=queue).enqueue(1)
        assert process_once("b").queue == "b"
        assert process_once(["c", "a"]).queue == "c"
        assert process_once(["c"]).status == "empty"
        assert process_once().queue == "a"

    def test_a_handler_that_breaks_the_transaction_does_not_hurt_the_next(self):
        break_it.enqueue()
        break_and_raise.enqueue()
        order.enqueue()
        assert [process_once().status for _ in range(3)] == ["acked", "dead-lettered", "acked"]
        assert Order.objects.filter(email="a@example.com").count() == 1

    def test_a_transaction_left_open_is_rolled_back_and_does_not_hurt_the_next(self):
        leave_open.enqueue()
        order.enqueue()
        assert [process_once().status for _ in range(2)] == ["acked", "acked"]
        emails = set(Order.objects.values_list("email", flat=True))
        assert "a@example.com" in emails
        assert "open@example.com" not in emails


class TestInsideATransaction(Reports, TestCase):
    def test_the_transaction_is_left_as_it_was(self):
        depth = len(connection.savepoint_ids), len(connection.atomic_blocks)
        for one in (add.using().prepare(1), leave_open.prepare(), break_it.prepare()):
            one.enqueue()
            process_once()
        assert (len(connection.savepoint_ids), len(connection.atomic_blocks)) == depth
        assert not connection.needs_rollback

    def test_what_a_failing_handler_wrote_stays_as_without_a_transaction(self):
        with transaction.atomic():
            define("once.order", {"args": [], "kwargs": {}}).enqueue()
            process_once()
        assert Order.objects.count() == 1


class TestWithoutATransaction(Reports, TransactionTestCase):
    def test_a_connection_that_a_handler_closed_does_not_hurt_the_next(self):
        close.enqueue()
        order.enqueue()
        assert [process_once().status for _ in range(2)] == ["acked", "acked"]

    def test_autocommit_that_a_handler_switched_off_is_on_again(self):
        without_autocommit.enqueue()
        order.enqueue()
        assert [process_once().status for _ in range(2)] == ["acked", "acked"]
        assert connection.get_autocommit()
        assert Order.objects.values_list("email", flat=True).get() == "a@example.com"

    def test_a_sound_connection_is_kept_from_job_to_job(self):
        for _ in range(3):
            order.enqueue()
        before = connection.connection
        for _ in range(3):
            process_once()
        assert before is not None
        assert connection.connection is before


@pytest.mark.django_db
def test_h11_nested_arguments_come_back_from_the_store_as_they_went_in():
    given = {"b": [1, {"a": None}], "a": "Grüße", "1": 2.5, "empty": [{}, []]}
    echo.enqueue(given, keyword=[given])
    assert process_once().status == "acked"
    assert calls == [(given, [given])]


@job(key="once.echo")
def echo(value, keyword):
    calls.append((value, keyword))


@pytest.mark.django_db
def test_a_policy_that_cannot_be_imported_fails_no_worker_and_loses_no_job(settings, caplog):
    settings.DJANGO_JOBS = {"RETRY": "shop.nowhere.Policy"}
    handle = raise_it.using(retry=None).enqueue()
    assert process_once().status == "requeued"
    assert [one.key for one in caplog.records] == ["policy.failed", "job.retried"]
    assert handle.status == "scheduled"  # it waits as by default


# -- leases ----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_h22_a_lease_is_renewed_while_its_handler_runs_three_times_as_long(
    settings, tmp_path, site_environment
):
    """The other process reaps and claims all the while, and gets nothing."""
    settings.DJANGO_JOBS = {"LEASE_SECONDS": 3.0}
    diary, stop = tmp_path / "diary", tmp_path / "stop"
    handle = labour.last.enqueue(str(diary), 9.3)
    other = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.worker.labour.rival", str(stop)],
        env=site_environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "ready\n"
        lease = backends["database"].fetch(["default"], 1, 3.0)[0]
        other.stdin.write("go\n")
        other.stdin.flush()
        report = run_lease(backends["database"], lease, 3.0)
        stop.touch()
        rounds, reaped, claimed = map(int, other.stdout.readline().split())
    assert (report.status, handle.status) == ("acked", "succeeded")
    assert (reaped, claimed) == (0, 0)
    assert rounds > 10
    assert len(diary.read_text().splitlines()) == 1


@pytest.mark.django_db(transaction=True)
def test_a_queue_can_have_a_lease_of_its_own(settings):
    settings.DJANGO_JOBS = {"QUEUES": {"slow": {"LEASE_SECONDS": 900}, "default": {}}}
    left = {}

    for queue in ("slow", "default"):
        peeking.using(queue=queue).enqueue(queue)
        process_once(queue)
        left[queue] = calls.pop()
    assert 890 < left["slow"] <= 900
    assert 25 < left["default"] <= 30


@job(key="once.peeking")
def peeking(queue):
    row = Job.objects.get(queue=queue, state=JobState.RUNNING)
    calls.append((row.lease_expires - backends["database"].clock.read(connection)) / 1_000_000)


# -- dead letters are told ---------------------------------------------------------------------


@pytest.mark.django_db
def test_every_terminal_failure_is_a_dead_letter_told_critically_under_a_stable_key(caplog):
    caplog.set_level(logging.INFO, "django_jobs")
    handles = [raise_it.using(max_retries=0).enqueue(), slow.enqueue(), add.enqueue(1)]
    Job.objects.filter(pk=handles[2].id).update(signature="forged")
    handles.append(add.using(expires=0.000001).enqueue(1))
    handles.append(add.enqueue(1))
    Job.objects.filter(pk=handles[4].id).update(crashes=3)
    while process_once():
        pass
    told = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert {record.key for record in told} == {"job.dead"}
    dead = FailedJob.objects.values_list("job_id", "reason")
    assert {(r.job_id, r.reason) for r in told} == {(str(pk), reason) for pk, reason in dead}
    reasons = {"exhausted", "timed-out", "rejected-signature", "expired", "crashed"}
    assert {record.reason for record in told} == reasons
    assert all(record.queue == "default" and record.handler for record in told)


@pytest.mark.django_db
def test_h8_an_error_of_the_store_is_raised_and_never_empty(monkeypatch):
    def broken(*_):
        raise DatabaseError("no such table")

    monkeypatch.setattr(backends["database"], "fetch", broken)
    with pytest.raises(DatabaseError):
        process_once()
    with pytest.raises(InvalidBackend):
        process_once(backend="nowhere")


@pytest.mark.django_db
def test_a_claim_that_took_half_of_the_lease_is_given_back_and_not_run(monkeypatch):
    calls.clear()
    now = [1000.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], monotonic_ns=time.monotonic_ns, time=time.time
    )
    monkeypatch.setattr(cycle, "time", clock)

    def slowly(execute, *args):
        now[0] += 20.0  # of a lease of thirty seconds
        return execute(*args)

    add.enqueue(1)
    with connection.execute_wrapper(slowly):
        assert process_once("default").status == "empty"
    row = Job.objects.get()
    assert (row.state, row.attempts, row.suspect, calls) == (JobState.READY, 0, False, [])
    assert process_once("default").status == "acked"


@pytest.mark.django_db
def test_a_run_takes_as_long_as_it_takes_where_the_clock_is_set_back_meanwhile(monkeypatch):
    hour = 3600 * 1_000_000_000
    true = time.time_ns

    @job(key="once.set_back")
    def set_back():
        monkeypatch.setattr(time, "time_ns", lambda: true() - hour)

    set_back.enqueue()
    report = process_once()
    assert report.status == "acked"
    assert 0 <= report.seconds < 60
    kept = JobResult.objects.get()
    assert kept.started_at <= kept.finished_at
