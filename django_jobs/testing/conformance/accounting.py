"""Accounts: everything about one job, wherever it stands."""

from __future__ import annotations

from django_jobs.backends.base import Account, AttemptRecord, Failure, ResultRecord
from django_jobs.ids import new_id
from django_jobs.testing.conformance.base import Suite

STARTED, FINISHED = 1_700_000_000_000_000, 1_700_000_001_000_000


def _failed(number: int) -> AttemptRecord:
    return AttemptRecord(
        number=number,
        outcome="failed",
        started_at=STARTED,
        finished_at=FINISHED,
        error_type="ValueError",
        error_message="boom",
        traceback="Traceback …",
        worker="host:1",
    )


class Accounting(Suite):
    """An account tells of a job's life what any process may ask for."""

    def _account(self, job_id: str) -> Account:
        self.needs("accounts")
        found = self.existing(self.backend.account(job_id), "account")
        self.assertEqual(found.id, job_id)
        return found

    def test_an_account_tells_of_a_job_that_waits_and_runs(self) -> None:
        self.needs("accounts")
        outgoing = self.outgoing()
        self.backend.enqueue([outgoing])
        waiting = self._account(outgoing.id)
        self.assertEqual((waiting.status, waiting.started_at), ("ready", None))
        self.assertEqual((waiting.handler, waiting.body), (outgoing.terms.job, outgoing.body))
        now = self.now()
        self.take()
        running = self._account(outgoing.id)
        self.assertEqual((running.status, running.finished_at), ("running", None))
        self.assertEqual(running.started_at, now)
        self.assertTrue(running.worker)

    def test_an_account_tells_of_every_attempt_and_of_a_good_end(self) -> None:
        self.needs("accounts")
        self.needs("results")
        job_id = self.put(max_retries=2)
        attempts = (_failed(1), _failed(2))
        for attempt in attempts:
            self.backend.nack(self.take(), attempt=attempt)
        self.assertEqual(self._account(job_id).attempts, attempts)
        record = ResultRecord(
            status="succeeded",
            value_json="[1]",
            started_at=STARTED,
            finished_at=FINISHED,
            worker="host:2",
        )
        self.backend.ack([self.take()], {job_id: record})
        ended = self._account(job_id)
        self.assertEqual(
            (ended.status, ended.value_json, ended.worker), ("succeeded", "[1]", "host:2")
        )
        self.assertEqual((ended.started_at, ended.finished_at), (STARTED, FINISHED))
        self.assertEqual((ended.attempts, ended.failed_attempts), (attempts, 2))

    def test_an_account_tells_of_a_death(self) -> None:
        self.needs("accounts")
        job_id = self.put()
        failure = Failure(reason="crashed", error_message="its process died")
        self.backend.abandon(self.take(), failure)
        dead = self._account(job_id)
        self.assertEqual((dead.status, dead.reason), ("dead", "crashed"))
        self.assertEqual(dead.error_message, "its process died")
        self.assertIsNotNone(dead.finished_at)

    def test_there_is_no_account_of_what_never_was(self) -> None:
        self.needs("accounts")
        self.assertIsNone(self.backend.account(new_id()))
        self.assertIsNone(self.backend.account("no id"))
