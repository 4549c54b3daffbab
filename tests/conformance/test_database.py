"""The database backend keeps the contract: with locks, without them, and on any alias."""

from contextlib import contextmanager
from unittest import mock

from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase

from django_jobs.backends.base import AttemptRecord, ResultRecord
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database import backend as database_backend
from django_jobs.backends.database.claim import Claim
from django_jobs.clock import SECOND, ManualClock, from_datetime
from django_jobs.db.clock import StoreClock
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from django_jobs.testing.conformance import BackendConformance, DeadLetter
from tests.conformance import statements

LISTED = statements.statements_of(database_backend.__doc__)


class OptimisticClaim(Claim):
    """What a database gets that cannot skip locked rows, and has more than one writer."""

    def keeps_what_it_read(self, connection):
        return connection.features.has_select_for_update_skip_locked


class OptimisticBackend(DatabaseBackend):
    claim_class = OptimisticClaim


class DatabaseHooks:
    watch = None
    backend_class = DatabaseBackend
    alias = "default"

    def setUp(self):
        super().setUp()
        watch = self.watch or statements.Watch()
        self.enterContext(connections[self.alias].execute_wrapper(watch.sql))
        self.addCleanup(statements.compare, watch.seen, LISTED)

    def make_backend(self):
        self.manual = ManualClock()
        backend = self.backend_class("database", {"DATABASE": self.alias})
        backend.clock = StoreClock(self.manual)
        return backend

    def advance(self, seconds):
        self.manual.advance(seconds)

    def now(self):
        return self.manual.now()

    def tamper(self, job_id, **columns):
        assert Job.objects.using(self.alias).filter(pk=job_id).update(**columns) == 1

    @contextmanager
    def rolled_back(self):
        with transaction.atomic(using=self.alias):
            yield
            transaction.set_rollback(True, using=self.alias)

    def dead_letter(self, job_id):
        row = FailedJob.objects.using(self.alias).filter(job_id=job_id).first()
        return row and DeadLetter(
            job_id=str(row.job_id),
            queue=row.queue,
            body=row.body,
            signature=row.signature,
            key_id=row.key_id,
            reason=row.reason,
            attempts=row.attempts,
            crashes=row.crashes,
            error_type=row.error_type,
            error_message=row.error_message,
        )

    def attempts_of(self, job_id):
        rows = JobAttempt.objects.using(self.alias).filter(job_id=job_id).order_by("pk")
        return [
            AttemptRecord(
                number=row.number,
                outcome=row.outcome,
                started_at=from_datetime(row.started_at),
                finished_at=from_datetime(row.finished_at),
                error_type=row.error_type,
                error_message=row.error_message,
                traceback=row.traceback,
                output=row.output,
                worker=row.worker,
            )
            for row in rows
        ]

    def result_of(self, job_id):
        row = JobResult.objects.using(self.alias).filter(pk=job_id).first()
        return row and ResultRecord(
            status=row.status,
            value_json=row.value,
            output=row.output,
            started_at=row.started_at and from_datetime(row.started_at),
            finished_at=row.finished_at and from_datetime(row.finished_at),
            worker=row.worker,
            ttl_seconds=(row.expires - self.now()) / SECOND,
        )


class TestDatabaseBackend(DatabaseHooks, BackendConformance, TransactionTestCase):
    """In transactions of its own, as a worker has them."""


class TestDatabaseBackendInsideATransaction(DatabaseHooks, BackendConformance, TestCase):
    """In savepoints of the caller's transaction."""


class TestDatabaseBackendOnAnotherAlias(DatabaseHooks, BackendConformance, TestCase):
    alias = "other"
    databases = frozenset({"other"})  # a query on any other alias is an error


class TestDatabaseBackendWithoutSkipLocked(DatabaseHooks, BackendConformance, TestCase):
    backend_class = OptimisticBackend

    def setUp(self):
        features = connections[self.alias].features
        cannot = mock.patch.object(features, "has_select_for_update_skip_locked", new=False)
        cannot.start()
        self.addCleanup(cannot.stop)
        super().setUp()

    def test_a_row_that_was_given_back_since_it_was_seen_comes_with_its_own_counters(self):
        job_id = self.put()

        class Late(OptimisticClaim):
            def _take(claim, seen, now):  # noqa: N805 - self is the test
                if claim.interrupt:
                    claim.interrupt = False
                    self.backend.nack(self.take())
                return super()._take(seen, now)

        claim = Late(
            self.alias, self.backend.clock, backend="database", limit=10, lease_seconds=30.0
        )
        claim.interrupt = True
        (lease,) = claim.from_queue("conformance")
        assert (lease.id, lease.message.header.attempts) == (job_id, 1)
        assert lease.message.header.deliveries == 2
