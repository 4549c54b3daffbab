"""Accounts: everything about one job, in every state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.base import Account, AttemptRecord, Failure, OnConflict, ResultRecord
from django_jobs.ids import new_id
from django_jobs.testing.conformance.base import Suite

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Outgoing

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
    """The contents of an account at each point of a job's life."""

    def _account(self, job_id: str) -> Account:
        self.needs("accounts")
        account = self.existing(self.backend.account(job_id), "account")
        self.assertEqual(account.id, job_id)
        return account

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

    # -- ends without a run: their accounts hold as much as those of jobs that ran ----------------

    def _assert_cancelled(self, outgoing: Outgoing, why: str, now: int, failed: int = 0) -> None:
        ended = self._account(outgoing.id)
        self.assertEqual((ended.status, ended.reason), ("cancelled", why))
        self.assertEqual((ended.queue, ended.handler), (outgoing.terms.queue, outgoing.terms.job))
        self.assertEqual(ended.body, outgoing.body)
        self.assertEqual((ended.started_at, ended.finished_at), (None, now))
        self.assertEqual((ended.worker, ended.value_json), ("", "null"))
        self.assertEqual((len(ended.attempts), ended.failed_attempts), (failed, failed))

    def test_an_account_tells_of_jobs_that_were_cancelled_while_they_waited(self) -> None:
        self.needs("accounts")
        self.needs("cancel")
        self.needs("keys")
        holder, blocked = (self.outgoing(concurrency_key="disk") for _ in range(2))
        self.backend.enqueue([holder, blocked])
        self.assertEqual(self.fetched_ids(), [holder.id])
        ready, scheduled = (
            self.outgoing(payload={"args": ["é"], "kwargs": {}}),
            self.outgoing(delay=60),
        )
        self.backend.enqueue([ready, scheduled])
        for waiting in (ready, scheduled, blocked):
            self.assertTrue(self.backend.cancel(waiting.id))
            self._assert_cancelled(waiting, "cancelled", self.now())

    def test_an_account_tells_of_a_job_that_was_cancelled_between_its_attempts(self) -> None:
        self.needs("accounts")
        self.needs("cancel")
        outgoing = self.outgoing(max_retries=3)
        self.backend.enqueue([outgoing])
        for number in (1, 2):
            self.backend.nack(self.take(), attempt=_failed(number))
        self.assertTrue(self.backend.cancel(outgoing.id))
        self._assert_cancelled(outgoing, "cancelled", self.now(), failed=2)
        self.assertEqual(self._account(outgoing.id).attempts, (_failed(1), _failed(2)))

    def test_an_account_tells_which_job_has_taken_the_place_of_another(self) -> None:
        self.needs("accounts")
        self.needs("unique")
        first, second, third = (self.outgoing(unique_key="report") for _ in range(3))
        self.backend.enqueue([first])
        self.backend.enqueue([second, third], on_conflict=OnConflict.REPLACE)
        now = self.now()
        self._assert_cancelled(first, f"replaced by {second.id}", now)
        self._assert_cancelled(second, f"replaced by {third.id}", now)
        self.assertEqual(self._account(third.id).status, "ready")

    def test_an_account_tells_of_a_job_that_was_skipped(self) -> None:
        self.needs("accounts")
        self.needs("results")
        outgoing = self.outgoing()
        self.backend.enqueue([outgoing])
        record = ResultRecord(status="skipped", output="done before", finished_at=FINISHED)
        self.backend.ack([self.take()], {outgoing.id: record})
        ended = self._account(outgoing.id)
        self.assertEqual((ended.status, ended.reason), ("skipped", "done before"))
        self.assertEqual((ended.handler, ended.body), (outgoing.terms.job, outgoing.body))
        self.assertEqual((ended.started_at, ended.finished_at), (None, FINISHED))

    def test_an_account_tells_of_a_job_that_was_refused_without_a_run(self) -> None:
        self.needs("accounts")
        outgoing = self.outgoing(expires_at=self.now())
        self.backend.enqueue([outgoing])
        self.backend.abandon(self.take(), Failure(reason="expired", error_message="too late"))
        dead = self._account(outgoing.id)
        self.assertEqual((dead.status, dead.reason), ("dead", "expired"))
        self.assertEqual((dead.handler, dead.body), (outgoing.terms.job, outgoing.body))
        self.assertEqual((dead.started_at, dead.attempts), (None, ()))
        self.assertIsNotNone(dead.finished_at)

    def test_the_result_of_a_job_that_waited_says_why_it_ended(self) -> None:
        self.needs("results")
        self.needs("cancel")
        self.needs("unique")
        cancelled = self.put()
        replaced = self.put(unique_key="report")
        new = self.put(unique_key="report", on_conflict=OnConflict.REPLACE)
        self.assertTrue(self.backend.cancel(cancelled))
        for job_id, why in ((cancelled, "cancelled"), (replaced, f"replaced by {new}")):
            ended = self.existing(self.backend.result(job_id), "result")
            self.assertEqual((ended.status, ended.reason), ("cancelled", why))
            self.assertEqual(self.existing(self.result_of(job_id), "record").output, why)

    def test_the_reason_of_a_cancelled_job_is_the_first_line_of_its_output(self) -> None:
        self.needs("results")
        self.put()
        lease = self.take()
        output = "nothing left to do\nwhat it printed\nbefore"
        self.backend.ack([lease], {lease.id: ResultRecord(status="cancelled", output=output)})
        ended = self.existing(self.backend.result(lease.id), "result")
        self.assertEqual((ended.reason, ended.output), ("nothing left to do", output))
        if self.backend.capabilities.accounts:
            account = self.existing(self.backend.account(lease.id), "account")
            self.assertEqual((account.reason, account.output), ("nothing left to do", output))

    def test_there_is_no_account_of_what_never_was(self) -> None:
        self.needs("accounts")
        self.assertIsNone(self.backend.account(new_id()))
        self.assertIsNone(self.backend.account("no id"))
