"""NOTIFY as somebody else hears it: after the commit, seldom, and not at all when off."""

import time

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_jobs.backends.base import Charge
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database.notify import CHANNEL, HORIZON_SECONDS, QUIET_SECONDS
from django_jobs.backends.sync import SyncBackend
from django_jobs.clock import SECOND, SystemClock
from django_jobs.exceptions import InvalidBackend
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.only_on("postgres")


class Ear:
    """A listener of our own, which shares no code with the worker's."""

    def __init__(self):
        import psycopg  # noqa: PLC0415 - only where this driver is there

        params = connection.get_connection_params()
        self.own = psycopg.connect(**params, autocommit=True)
        (channel,) = self.own.execute(f"SELECT {CHANNEL}").fetchone()
        self.own.execute(f'LISTEN "{channel}"')

    def heard(self):
        """What was told so far: a question's answer brings along what came before it."""
        self.own.execute("SELECT 1")
        return [told.payload for told in self.own.notifies(timeout=0)]


@pytest.fixture
def ear(transactional_db):
    ear = Ear()
    yield ear
    ear.own.close()


@pytest.fixture
def backend():
    return DatabaseBackend("database", {})


def messages(*queues, **terms):
    return [make_outgoing(queue, backend="database", **terms) for queue in queues]


def test_it_names_backend_and_queue(ear, backend):
    backend.enqueue(messages("mail"))
    assert ear.heard() == ["database mail"]


def test_it_comes_with_the_commit_and_once(ear, backend):
    with transaction.atomic():
        for _ in range(5):
            backend.enqueue(messages("mail", "bulk"))
        assert ear.heard() == []
    assert sorted(ear.heard()) == ["database bulk", "database mail"]


def test_a_rollback_says_nothing(ear, backend):
    with transaction.atomic():
        backend.enqueue(messages("mail"))
        transaction.set_rollback(True)
    with transaction.atomic(), transaction.atomic():
        backend.enqueue(messages("mail"))
        transaction.set_rollback(True)
    assert ear.heard() == []
    backend.enqueue(messages("mail"))
    assert ear.heard() == ["database mail"], "what was rolled back held it back"


def test_a_burst_is_told_of_seldom(ear, backend):
    began = time.monotonic()
    for number in range(300):
        with transaction.atomic():
            backend.enqueue(messages("mail"))
        if number % 10 == 0:
            backend.enqueue(messages("mail", "mail"))
    most = (time.monotonic() - began) / QUIET_SECONDS + 1
    assert 1 <= len(ear.heard()) <= most
    assert most < 300, "too slow to tell"


@pytest.mark.parametrize(("delay", "told"), [(1.0, 1), (HORIZON_SECONDS + 60, 0)])
def test_what_is_due_long_after_the_next_look_needs_no_hint(ear, backend, delay, told):
    backend.enqueue(messages("mail", delay=delay))
    schedule = SystemClock().now() + int(delay * SECOND)
    backend.enqueue(messages("bulk", schedule=schedule))
    assert len(ear.heard()) == 2 * told


def test_a_job_that_is_given_back_is_told_of_to_the_others(ear, backend):
    backend.enqueue(messages("mail"))
    (lease,) = backend.fetch(["mail"], 1, 30.0)
    assert len(ear.heard()) == 1
    time.sleep(QUIET_SECONDS)
    backend.nack(lease, None, charge=Charge.NOTHING)
    assert ear.heard() == ["database mail"]


def test_nothing_new_is_nothing_to_tell(ear, backend):
    again = messages("mail")
    backend.enqueue(again)
    assert len(ear.heard()) == 1
    time.sleep(QUIET_SECONDS)
    backend.enqueue(again)
    assert ear.heard() == []


def test_it_can_be_off(ear):
    DatabaseBackend("database", {"NOTIFY": False}).enqueue(messages("mail"))
    assert ear.heard() == []


def test_jobs_that_run_at_once_are_told_to_nobody(ear):
    sync = SyncBackend("sync", {})
    sync._run = lambda _: None
    sync.enqueue([make_outgoing("mail", backend="sync")])
    assert ear.heard() == []


def test_who_commits_by_hand_is_not_disturbed(ear, backend):
    connection.set_autocommit(False)
    try:
        backend.enqueue(messages("mail"))
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert ear.heard() == []
    assert len(backend.fetch(["mail"], 1, 30.0)) == 1


class TestInATestCase(TestCase):
    def test_no_callback_is_added_to_what_a_test_counts(self):
        with self.captureOnCommitCallbacks() as callbacks:
            DatabaseBackend("database", {}).enqueue(messages("mail"))
        assert callbacks == []


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_a_wrong_option_is_refused(value):
    with pytest.raises(InvalidBackend, match="NOTIFY"):
        DatabaseBackend("database", {"NOTIFY": value})
