"""Rows that somebody wrote past us: they are put away or held to their range, and stop nobody."""

import uuid

import pytest
from django.core.management import call_command
from django.db import connection
from django.urls import reverse

from django_jobs.backends.base import Failure, HousekeepingDue, Settled
from django_jobs.backends.database import unreadable
from django_jobs.backends.database.claim import Claim
from django_jobs.backends.database.unreadable import ERROR_TYPE, REASON
from django_jobs.db import minutes
from django_jobs.db.dead_letters import count_gone
from django_jobs.models import (
    FailedJob,
    FailureGroup,
    Job,
    JobKey,
    JobState,
    QueueControl,
    QueueMeter,
    QueueMinute,
)
from django_jobs.operations.health import HealthLimits, find_problems
from django_jobs.operations.overview import overview
from django_jobs.telemetry import events
from django_jobs.worker.duties import Housekeeping
from tests.conftest import RUN_ON
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db
MOST = 2**31 - 1
FAR = 2**63 - 1
UNREADABLE = {
    "sqlite": {
        "a body that is no text": {"body": b"\xff\xfe"},
        "a signature that is no text": {"signature": b"\x00" * 32},
        "attempts that are a text": {"attempts": "many"},
        "attempts without an end": {"attempts": float("inf")},
        "deliveries that are a text": {"deliveries": "x"},
        "crashes that are bytes": {"crashes": b"x"},
        "a moment that is a text": {"due": "soon"},
        "a rank that is a text": {"rank": "x"},
        "a handler that is no text": {"handler": b"\xff"},
        "a key that is no text": {"idempotency_key": b"x"},
        "places that are a text": {"concurrency": "x", "concurrency_key": "k"},
        "no places at all": {"concurrency": -5, "concurrency_key": "k"},
        "an origin that is no id": {"replay_of": "x"},
        "an id that is none": {"id": "zzz"},
        "an id that is a number": {"id": 5},
        "an id that is no text": {"id": b"\xff"},
        "an id in capitals": {"id": uuid.UUID(int=2**128 - 1).hex.upper()},
    },
    "postgres": {
        "created never": {"created_at": "infinity"},
        "created before all time": {"created_at": "-infinity"},
        "created in a year that is too far": {"created_at": "200000-01-01"},
        "created before our era": {"created_at": "0044-03-15 BC"},
        "no places at all": {"concurrency": -5, "concurrency_key": "k"},
    },
    "mariadb": {
        "created on no day": {"created_at": "0000-00-00 00:00:00"},
        "created in the year zero": {"created_at": "0000-01-01 00:00:00"},
        "no places at all": {"concurrency": 0, "concurrency_key": "k"},
    },
}[RUN_ON.replace("mysql", "mariadb")]
ODD = {
    "full counters": {"attempts": MOST, "deliveries": MOST, "crashes": MOST},
    "negative counters": {"attempts": -1000, "deliveries": -5, "crashes": -(2**31)},
    "due before all time": {"due": -FAR},
    "put off for ever": {"put_off_since": FAR},
    "a state that there is not": {"state": 77},
    "ready with a token": {"lease_token": "x" * 32, "lease_expires": FAR, "worker": "\x1b[2J"},
    "created in the last year": {"created_at": "9999-12-31 23:59:59"},
    "a trace id of nothing": {"trace_id": "\x1b[2J" * 8},
}
any_unreadable = pytest.mark.parametrize("columns", UNREADABLE.values(), ids=UNREADABLE)
any_odd = pytest.mark.parametrize("columns", ODD.values(), ids=ODD)


def spoil(job_id, **columns):
    """Write into a row what no statement of ours would."""
    native = connection.features.has_native_uuid_field
    stored = job_id if native else job_id.replace("-", "")
    changes = ", ".join(f"{connection.ops.quote_name(name)} = %s" for name in columns)
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET SESSION sql_mode = ''")
        statement = f"UPDATE django_jobs_job SET {changes} WHERE id = %s"  # noqa: S608 - of a test
        cursor.execute(statement, [*columns.values(), stored])
        assert cursor.rowcount == 1


@pytest.fixture
def told(monkeypatch):
    told = []
    monkeypatch.setattr(events, "emit", told.append)
    return told


def assert_dead():
    dead = FailedJob.objects.get()
    assert (dead.backend, dead.queue, dead.reason) == ("database", "default", REASON)
    assert (dead.error_type, dead.resolution) == (ERROR_TYPE, "")
    assert "of django_jobs_job cannot be read" in dead.error_message


@any_unreadable
def test_a_row_that_cannot_be_read_is_a_dead_letter_and_the_others_are_claimed(
    backend, told, columns
):
    before, (odd,), after = put(backend, 2), put(backend), put(backend, 2)
    spoil(odd, **columns)
    assert backend.fetch(["default"], 5, 30.0)
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.RUNNING}
    assert sorted(map(str, Job.objects.values_list("pk", flat=True))) == sorted(before + after)
    assert set(Job.objects.values_list("deliveries", flat=True)) == {1}
    assert_dead()
    (died,) = [event for event in told if isinstance(event, events.JobDied)]
    assert (died.queue, died.reason, died.error_type) == ("default", REASON, ERROR_TYPE)
    if "id" not in columns:
        assert died.job_id == odd


@any_unreadable
def test_a_row_that_cannot_be_read_stops_no_promotion(backend, manual, columns):
    jobs = put(backend, 3, delay=5)
    spoil(jobs[0], **{"due": manual.now(), **columns})
    manual.advance(5)
    backend.clean_up()
    claimed = [lease.id for lease in backend.fetch(["default"], 5, 30.0)]
    assert set(jobs[1:]) <= set(claimed)
    assert set(jobs) - set(claimed) == set(jobs[:1])


@any_unreadable
def test_a_row_that_cannot_be_read_stops_no_reaping(backend, manual, columns):
    jobs = put(backend, 3)
    backend.fetch(["default"], 5, 30.0)
    spoil(jobs[0], **columns)
    manual.advance(30)
    assert backend.reap_expired() >= 2
    again = [lease.id for _ in range(4) for lease in backend.fetch(["default"], 5, 30.0)]
    assert set(jobs[1:]) <= set(again)


@any_unreadable
def test_whoever_looks_sees_the_others(backend, columns):
    (odd,), sound = put(backend), put(backend, 2)
    spoil(odd, **columns)
    assert set(sound) <= {seen.id for seen in backend.peek("default")}
    assert backend.find(sound[0]).id == sound[0]
    assert backend.account(sound[0]).id == sound[0]
    assert backend.stats("default").ready == 3
    assert backend.queues() == ["default"]
    assert backend.housekeeping_due()
    assert backend.next_due_in(["default"]) == 0
    backend.find(odd)


@pytest.mark.only_on("sqlite")
@pytest.mark.parametrize("state", ["ready", b"\xff", 1.5, 77])
@pytest.mark.parametrize("column", ["state", "due", "rank", "backend", "suspect"])
def test_counts_leave_out_what_is_of_another_kind(backend, column, state):
    """Also a text that is none in UTF-8, at which the driver gives up."""
    (odd,), _ = put(backend), put(backend, 2)
    spoil(odd, **{column: state})
    if isinstance(state, bytes):
        with connection.cursor() as cursor:
            as_text = f"UPDATE django_jobs_job SET {column} = CAST({column} AS TEXT)"  # noqa: S608 - of a test
            cursor.execute(as_text)
    assert backend.stats("default").ready in {2, 3}
    (shown,) = [row for row in overview() if row.backend == "database"]
    assert shown.ready in {2, 3}
    call_command("jobs_status")
    assert {one.kind for one in find_problems(HealthLimits(min_workers=0))} <= {"overdue"}


@any_odd
def test_an_odd_row_stops_no_claim(backend, columns):
    (odd,), sound = put(backend), put(backend, 2)
    spoil(odd, **columns)
    leases = backend.fetch(["default"], 5, 30.0)
    assert set(sound) <= {lease.id for lease in leases}
    for lease in leases:
        header = lease.message.header
        assert min(header.attempts, header.deliveries, header.crashes, header.available_at) >= 0
        assert max(header.attempts, header.deliveries, header.crashes) < MOST
    assert not FailedJob.objects.exists()
    assert set(backend.ack(leases)) == {Settled.SETTLED}


@any_odd
def test_an_odd_row_is_shown(backend, columns):
    (odd,) = put(backend)
    spoil(odd, **columns)
    assert backend.find(odd).id == odd
    assert backend.account(odd).id == odd
    assert {seen.id for seen in backend.peek("default")} <= {odd}
    backend.stats("default")
    backend.housekeeping_due()


@any_odd
def test_pages_and_commands_live_with_an_odd_row(backend, admin_client, columns, capsys):
    (odd,) = put(backend)
    spoil(odd, **columns)
    for command in ("jobs_status", "jobs_list", "jobs_dlq", "jobs_explain"):
        arguments = {"jobs_explain": [odd], "jobs_dlq": ["list"]}.get(command, [])
        call_command(command, *arguments)
    assert odd in capsys.readouterr().out
    assert admin_client.get(reverse("admin:django_jobs_job_changelist")).status_code == 200
    page = reverse("admin:django_jobs_job_change", args=[odd])
    assert admin_client.get(page).status_code == 200


@any_unreadable
def test_pages_and_commands_live_with_a_row_that_cannot_be_read(backend, admin_client, columns):
    (odd,) = put(backend)
    spoil(odd, **columns)
    call_command("jobs_status")
    call_command("jobs_list")
    if "id" not in columns:
        call_command("jobs_explain", odd)
    assert admin_client.get(reverse("admin:django_jobs_job_changelist")).status_code == 200
    page = reverse("admin:django_jobs_job_change", args=[odd])
    assert admin_client.get(page).status_code in {200, 302, 404}


def test_an_error_that_no_row_is_the_cause_of_is_raised_and_buries_nobody(backend, monkeypatch):
    put(backend, 3)

    class Faulty(Claim):
        def from_queue(self, queue):
            raise ValueError("a bug of ours")

    monkeypatch.setattr(backend, "claim_class", Faulty)
    with pytest.raises(ValueError, match="a bug of ours"):
        backend.fetch(["default"], 5, 30.0)
    assert Job.objects.filter(state=JobState.READY).count() == 3
    assert not FailedJob.objects.exists()


@pytest.mark.parametrize("first", [OSError("gone"), ValueError("of one row")])
def test_a_store_that_goes_away_meanwhile_is_no_row_that_cannot_be_read(backend, first):
    put(backend, 2)
    errors = [first, OSError("gone")]

    def of(_):
        raise errors.pop(0)

    with pytest.raises(OSError, match="gone"):
        unreadable.readable(unreadable.Rows(Job.objects.all(), 2), ["pk"], of)


def test_nobody_is_buried_by_a_store_that_goes_away(backend, monkeypatch):
    spoil(put(backend, 2)[0], **next(iter(UNREADABLE.values())))

    def lease_of(*_, **__):
        raise OSError("gone")

    monkeypatch.setattr(unreadable, "lease_of", lease_of)
    monkeypatch.setattr(unreadable, "ROW_FIELDS", ("id",))  # which can be read
    with pytest.raises(OSError, match="gone"):
        backend.fetch(["default"], 5, 30.0)
    assert not FailedJob.objects.exists()


def test_what_a_claim_took_before_its_rows_could_not_be_read_is_leased_once(backend):
    odd, *sound = put(backend, 3)
    spoil(odd, **next(iter(UNREADABLE.values())))
    leases = backend.fetch(["default"], 5, 30.0)
    assert [lease.id for lease in leases] == sound
    assert {lease.message.header.deliveries for lease in leases} == {1}
    assert len({lease.token for lease in leases}) == 1
    assert backend.ack(leases) == [Settled.SETTLED] * 2
    assert not Job.objects.exists()


@pytest.mark.parametrize("ends", [None, FAR])
def test_a_lease_that_would_never_end_is_reaped(backend, ends):
    (odd,) = put(backend)
    backend.fetch(["default"], 1, 30.0)
    spoil(odd, lease_expires=ends)
    assert backend.reap_expired() == 0
    backend.clean_up()
    assert backend.reap_expired() == 1


@pytest.mark.parametrize(
    "control", [{"rate_limit": "x"}, {"rate_limit": "99999999999/q"}, {"rate_limit": "\x1b[2J"}]
)
def test_a_rate_that_is_none_limits_nothing_and_is_told(backend, caplog, control):
    QueueControl.objects.create(backend="database", queue="default", **control)
    put(backend, 2)
    assert len(backend.fetch(["default"], 2, 30.0)) == 2
    assert [record.key for record in caplog.records] == ["limits.rate_unreadable"]


@pytest.mark.parametrize(
    "counts",
    [
        {"x": [FAR]},
        ["x"],
        {"slot": 5000, "counts": "x"},
        {"slot": 5000, "counts": {"a": 1, "9" * 5000: 1, "5": "y", "6": -(10**30), str(FAR): FAR}},
    ],
)
def test_a_meter_that_cannot_be_read_has_counted_nothing(backend, counts):
    QueueControl.objects.create(backend="database", queue="default", rate_limit="100/s")
    QueueMeter.objects.create(backend="database", queue="default", starts=counts)
    put(backend, 2)
    assert len(backend.fetch(["default"], 2, 30.0)) == 2


def test_a_meter_that_is_no_json_has_counted_nothing(backend):
    QueueControl.objects.create(backend="database", queue="default", rate_limit="100/s")
    QueueMeter.objects.create(backend="database", queue="default", starts={})
    # MariaDB keeps nobody's nonsense there, PostgreSQL what is too deep to be read.
    starts = {"sqlite": "{", "postgresql": "[" * 5000 + "]" * 5000}.get(connection.vendor, "[1]")
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.execute("UPDATE django_jobs_queuemeter SET starts = %s", [starts])
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA ignore_check_constraints = OFF")
    put(backend, 2)
    assert len(backend.fetch(["default"], 2, 30.0)) == 2


def test_a_fence_at_its_end_lets_its_job_run(backend):
    put(backend, single_instance="one")
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert backend.ack([lease]) == [Settled.SETTLED]
    JobKey.objects.update(fence=FAR, keep_until=FAR)
    put(backend, single_instance="one")
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert backend.ack([lease]) == [Settled.SETTLED]


def test_counts_at_their_end_keep_no_job_from_being_dead(backend):
    for _ in range(2):
        put(backend)
        (lease,) = backend.fetch(["default"], 1, 30.0)
        FailureGroup.objects.update(open=FAR, seen=FAR)
        assert backend.abandon(lease, Failure(reason="exhausted")) is Settled.SETTLED
    FailureGroup.objects.update(open=-FAR, seen=-FAR)
    count_gone("default", FailedJob.objects.all())
    assert FailedJob.objects.count() == 2


def test_counts_at_their_end_are_added_to(backend):
    for _ in range(2):
        minutes.add_counts("default", backend.clock, "database", {"default": {"claimed": 1}})
        QueueMinute.objects.update(claimed=FAR)


def test_what_cannot_be_done_for_all_is_told_and_keeps_no_worker(backend, monkeypatch, caplog):
    def breaks(**_):
        raise ValueError("badly formed")

    monkeypatch.setattr(backend, "reap_expired", breaks)
    monkeypatch.setattr(
        backend, "housekeeping_due", lambda: HousekeepingDue(reap=True, clean_up=True)
    )
    house = Housekeeping(backend, 30.0)
    assert house.step() in {True, False}
    assert [record.key for record in caplog.records] == ["duty.failed"]
    assert house.seconds_left() > 0


@pytest.mark.only_on("sqlite")
@pytest.mark.parametrize("name", ["x'ff'", "x'61'", "CAST(x'ff' AS TEXT)"])
def test_a_queue_whose_name_cannot_be_read_is_no_queue_and_holds_up_no_other(backend, name):
    odd, *sound = put(backend, 3)
    with connection.cursor() as cursor:
        named = f"UPDATE django_jobs_job SET queue = {name} WHERE id = %s"  # noqa: S608 - of a test
        cursor.execute(named, [odd.replace("-", "")])
    backend.housekeeping_due()
    backend.clean_up()
    backend.reap_expired()
    assert backend.queues() == backend.queues_due(0.0) == ["default"]
    assert backend.next_due_in(["default"]) == 0
    assert [lease.id for lease in backend.fetch(["default"], 5, 30.0)] == sound
    assert backend.next_due_in(["default"]) is None
