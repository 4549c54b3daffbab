"""Backends that each break one promise, in the way such code really goes wrong.

Every class names the tests that must notice. What a class breaks is a step that
MemoryBackend takes in a method of its own, so nothing else changes with it.
"""

import json
from dataclasses import replace
from itertools import count

from django_jobs.backends.base import Charge, Enqueued, OnConflict, Settled, push_in_two_steps
from django_jobs.backends.memory import RUNNING, Dead, MemoryBackend
from django_jobs.clock import SECOND
from django_jobs.exceptions import DuplicateJob

BROKEN = {}


def caught_by(*tests):
    def register(backend_class):
        BROKEN[backend_class] = tests
        return backend_class

    return register


@caught_by(
    "test_an_ack_with_a_lost_lease_leaves_the_new_holder_alone",
    "test_an_abandon_with_a_lost_lease_leaves_no_dead_letter",
    "test_a_nack_with_a_lost_lease_changes_nothing",
    "test_a_lost_lease_is_not_renewed",
)
class SettlesWithAnyToken(MemoryBackend):
    def _held(self, lease):
        job = self.jobs.get(lease.id)
        return job if job and job.state == RUNNING else None


@caught_by("test_an_ack_with_a_lost_lease_leaves_the_new_holder_alone")
class AcksWithAnyToken(MemoryBackend):
    def _end(self, lease, results, undone):
        job = self.jobs.get(lease.id)
        if job is not None and job.state == RUNNING:
            lease = lease._replace(token=job.token)
        return super()._end(lease, results, undone)


@caught_by("test_a_job_that_ends_without_its_work_leaves_it_to_be_done")
class TakesEveryEndForWorkDone(MemoryBackend):
    def _end(self, lease, results, undone):
        return super()._end(lease, results, ())


@caught_by("test_every_fetch_has_a_token_of_its_own", "test_an_ack_with_a_returned_lease_is_lost")
class TakesTheWorkersNameForAToken(MemoryBackend):
    def _token(self):
        return "worker-1.example.org:4711:main"


@caught_by("test_a_token_is_too_long_to_be_guessed")
class CountsItsTokens(MemoryBackend):
    def __init__(self, alias, options):
        super().__init__(alias, options)
        self._numbers = count()

    def _token(self):
        return str(next(self._numbers))


@caught_by("test_a_leased_job_is_not_leased_again", "test_two_fetches_share_no_job")
class LeasesTwice(MemoryBackend):
    def _ready(self, queue):
        jobs = [job for job in self._of(queue) if job.due <= self.clock.now()]
        return sorted(jobs, key=self._order)


@caught_by(
    "test_a_job_given_back_with_a_delay_is_not_fetched_a_microsecond_early",
    "test_exponential_backoff_waits_5_10_20_and_40_seconds",
)
class LosesTheDelayOfARetry(MemoryBackend):
    def nack(self, lease, delay_seconds=None, **how):
        return super().nack(lease, 0, **how)


@caught_by("test_a_job_given_back_is_not_due_before_its_schedule_when_the_clock_stepped_back")
class MakesARetryDueByTheClockAlone(MemoryBackend):
    def nack(self, lease, delay_seconds=None, **how):
        answer = super().nack(lease, delay_seconds, **how)
        if answer is Settled.SETTLED and delay_seconds is not None:
            job, now = self.jobs[lease.id], self.clock.now()
            job.due = now + round(delay_seconds * SECOND)
            self._placed(job, now)
        return answer


@caught_by("test_a_lease_of_a_job_with_keys_says_that_they_were_held_against_others")
class AsksForNoKeyOfASuspect(MemoryBackend):
    def _lease(self, job, token, expires_at):
        lease = super()._lease(job, token, expires_at)
        return lease._replace(keyed=not job.suspect)


@caught_by("test_a_delayed_job_is_fetched_at_its_time_and_not_a_microsecond_early")
class LosesTheDelayOfAnEnqueue(MemoryBackend):
    def enqueue(self, outgoing, **how):
        at_once = [one._replace(terms=replace(one.terms, delay=None)) for one in outgoing]
        return super().enqueue(at_once, **how)


@caught_by(
    "test_a_delay_is_kept_to_the_microsecond",
    "test_a_jittered_delay_is_kept_to_the_microsecond",
)
class KeepsWholeSeconds(MemoryBackend):
    def _placed(self, job, now):
        job.due -= job.due % SECOND
        return super()._placed(job, now)


@caught_by("test_a_delay_counts_from_the_stores_now_and_not_from_the_callers")
class BelievesTheCallersClock(MemoryBackend):
    def _store(self, new, on_conflict):
        stored = super()._store(new, on_conflict)
        if new.terms.delay:
            sealed_at = json.loads(new.body)["enqueuedAt"]
            self.jobs[new.id].due = sealed_at + round(new.terms.delay * SECOND)
        return stored


@caught_by(
    "test_every_failed_run_is_counted_once", "test_a_nack_charges_an_attempt_unless_told_otherwise"
)
class ForgetsAttempts(MemoryBackend):
    def _charge(self, job, charge, attempt):
        super()._charge(job, Charge.NOTHING if charge is Charge.ATTEMPT else charge, attempt)


@caught_by("test_a_give_back_without_charge_costs_nothing")
class ChargesEveryReturn(MemoryBackend):
    def _charge(self, job, charge, attempt):
        super()._charge(job, Charge.ATTEMPT if charge is Charge.NOTHING else charge, attempt)


@caught_by("test_the_record_of_an_attempt_is_kept_in_order")
class KeepsOnlyTheLastAttempt(MemoryBackend):
    def _charge(self, job, charge, attempt):
        if attempt is not None:
            self.attempts.pop(job.id, None)
        super()._charge(job, charge, attempt)


@caught_by(
    "test_a_job_given_back_without_a_delay_keeps_its_place",
    "test_jobs_given_back_in_any_order_keep_their_places",
)
class SendsReturnedJobsToTheEnd(MemoryBackend):
    def nack(self, lease, delay_seconds=None, **how):
        if delay_seconds is None and lease.id in self.jobs:
            self.jobs[lease.id].due = max(job.due for job in self.jobs.values()) + 1
            self.clock.advance(0.000001)
        return super().nack(lease, delay_seconds, **how)


@caught_by(
    "test_reaping_leaves_live_leases_alone",
    "test_reaping_leaves_fresh_leases_alone_without_any_wait",
)
class ReapsLiveLeases(MemoryBackend):
    def _expired(self, job, now):
        return job.expires_at is not None


@caught_by("test_an_expired_lease_is_reaped_and_its_job_leased_again")
class ReapsAMicrosecondLate(MemoryBackend):
    def _expired(self, job, now):
        return super()._expired(job, now - 1)


@caught_by("test_a_suspect_comes_alone", "test_jobs_before_a_suspect_come_without_it")
class RunsSuspectsInCompany(MemoryBackend):
    def _next(self, ready, limit):
        return ready[:limit]


@caught_by(
    "test_a_suspect_lost_again_is_charged_a_crash",
    "test_every_further_loss_of_a_suspect_is_charged",
)
class NeverChargesALoss(MemoryBackend):
    def reap_expired(self, queue=None, limit=1000):
        crashes = {job.id: job.crashes for job in self.jobs.values()}
        reaped = super().reap_expired(queue, limit)
        for job in self.jobs.values():
            job.crashes = crashes[job.id]
        return reaped


@caught_by("test_a_crash_is_run_again_after_a_pause_that_grows")
class RunsACrashAgainAtOnce(MemoryBackend):
    def reap_expired(self, queue=None, limit=1000):
        dues = {job.id: job.due for job in self.jobs.values()}
        reaped = super().reap_expired(queue, limit)
        for job in self.jobs.values():
            job.due = dues[job.id]
        return reaped


@caught_by("test_reaping_sends_job_crashed_for_a_charged_crash")
class ChargesInSilence(MemoryBackend):
    def reap_expired(self, queue=None, limit=1000):
        with self._lock:
            now = self.clock.now()
            lost = [job for job in self._of(queue) if self._expired(job, now)][:limit]
            for job in lost:
                job.crashes += job.suspect
                job.suspect = True
                self._placed(job, now)
            return len(lost)


@caught_by("test_a_job_given_back_under_suspicion_keeps_its_place_and_its_counters")
class ForgetsASuspicion(MemoryBackend):
    def nack(self, lease, delay_seconds=None, *, charge=Charge.ATTEMPT, attempt=None):
        charge = Charge.NOTHING if charge is Charge.SUSPICION else charge
        return super().nack(lease, delay_seconds, charge=charge, attempt=attempt)


@caught_by("test_the_first_time_a_job_is_put_off_is_kept_and_nothing_is_charged")
class KeepsTheLastTimeAJobWasPutOff(MemoryBackend):
    def _put_off_since(self, job, now):
        return now


@caught_by("test_a_moment_in_the_future_is_not_believed")
class BelievesThatAJobIsPutOffFromTheFuture(MemoryBackend):
    def _put_off_since(self, job, now):
        return now if job.put_off_since is None else job.put_off_since


@caught_by(
    "test_a_late_give_back_takes_the_suspicion_away",
    "test_the_loss_of_the_next_lease_is_then_not_charged",
)
class NeverTakesALossBack(MemoryBackend):
    def _take_loss_back(self, lease):
        pass


@caught_by("test_a_late_give_back_takes_the_crash_of_that_loss_back")
class KeepsTheCrashOfALossTakenBack(MemoryBackend):
    def _take_loss_back(self, lease):
        crashes = self.jobs[lease.id].crashes
        super()._take_loss_back(lease)
        self.jobs[lease.id].crashes = crashes


@caught_by("test_a_late_give_back_of_an_earlier_lease_takes_nothing_back")
class TakesAnyLossBack(MemoryBackend):
    def _take_loss_back(self, lease):
        super()._take_loss_back(lease._replace(token=self.jobs[lease.id].reaped_token))


@caught_by("test_a_first_loss_charges_nothing")
class ChargesTheFirstLoss(MemoryBackend):
    def reap_expired(self, queue=None, limit=1000):
        now = self.clock.now()
        for job in self.jobs.values():
            job.crashes += self._expired(job, now) and not job.suspect
        return super().reap_expired(queue, limit)


@caught_by("test_a_higher_priority_is_fetched_first")
class IgnoresPriority(MemoryBackend):
    def _order(self, job):
        return (0, job.due, job.id)


@caught_by("test_a_higher_priority_is_fetched_first")
class RunsTheLowestPriorityFirst(MemoryBackend):
    def _order(self, job):
        return (-job.index["rank"], job.due, job.id)


@caught_by(
    "test_jobs_of_one_priority_are_fetched_in_the_order_of_enqueueing",
    "test_of_two_jobs_due_at_once_the_earlier_id_is_fetched_first",
)
class RunsTheNewestFirst(MemoryBackend):
    def _ready(self, queue):
        return sorted(super()._ready(queue), key=lambda job: job.id, reverse=True)


@caught_by("test_a_fetch_never_mixes_queues", "test_the_first_queue_with_work_wins")
class FillsUpFromTheNextQueue(MemoryBackend):
    def fetch(self, queues, limit, lease_seconds):
        leases = []
        for queue in queues:
            leases += super().fetch([queue], limit - len(leases), lease_seconds)
        return leases


@caught_by("test_the_order_of_queues_goes_before_priority")
class GoesByPriorityAcrossQueues(MemoryBackend):
    def fetch(self, queues, limit, lease_seconds):
        ready = {queue: self._ready(queue) for queue in queues}
        busy = sorted(
            (queue for queue in queues if ready[queue]), key=lambda q: self._order(ready[q][0])[0]
        )
        return super().fetch(busy, limit, lease_seconds)


@caught_by("test_a_dead_letter_keeps_the_body_byte_for_byte")
class DropsTheBodyOnAbandon(MemoryBackend):
    def abandon(self, lease, failure):
        answer = super().abandon(lease, failure)
        if answer is Settled.SETTLED:
            message, why = self.dead[lease.id]
            self.dead[lease.id] = Dead(message._replace(body=""), why)
        return answer


@caught_by("test_an_abandon_with_a_lost_lease_leaves_no_dead_letter")
class BuriesBeforeItLooks(MemoryBackend):
    def abandon(self, lease, failure):
        self.dead.setdefault(lease.id, Dead(lease.message, failure))
        return super().abandon(lease, failure)


@caught_by("test_a_dead_letter_counts_the_run_that_ended_it")
class DoesNotCountTheLastRun(MemoryBackend):
    def abandon(self, lease, failure):
        return super().abandon(lease, failure._replace(charge=Charge.NOTHING))


@caught_by("test_a_body_comes_back_byte_for_byte")
class WritesBodiesAnew(MemoryBackend):
    def _store(self, new, on_conflict):
        try:
            body = json.dumps(json.loads(new.body), separators=(",", ":"), sort_keys=True)
        except ValueError:
            body = new.body
        return super()._store(new._replace(body=body), on_conflict)


@caught_by("test_enqueueing_a_live_id_again_leaves_the_job_alone")
class OverwritesAKnownId(MemoryBackend):
    def _store(self, new, on_conflict):
        self.jobs.pop(new.id, None)
        return super()._store(new, on_conflict)


@caught_by("test_a_refused_batch_stores_none_of_its_messages")
class StoresHalfARefusedBatch(MemoryBackend):
    def enqueue(self, outgoing, *, on_conflict=OnConflict.RETURN):
        stored = []
        for one in outgoing:
            stored += super().enqueue([one], on_conflict=on_conflict)
        return stored


@caught_by("test_keys_are_compared_exactly")
class ComparesKeysWithoutCase(MemoryBackend):
    def _store(self, new, on_conflict):
        key = new.terms.unique_key
        terms = replace(new.terms, unique_key=key and key.casefold().strip())
        return super()._store(new._replace(terms=terms), on_conflict)


@caught_by("test_a_running_job_is_never_replaced")
class ReplacesRunningJobs(MemoryBackend):
    def _store(self, new, on_conflict):
        try:
            return super()._store(new, on_conflict)
        except DuplicateJob as error:
            if on_conflict is not OnConflict.REPLACE:
                raise
            del self.jobs[error.existing_id]
            return super()._store(new, on_conflict)


@caught_by("test_a_second_enqueue_of_a_key_raises_when_asked_to")
class AlwaysReturnsTheHolder(MemoryBackend):
    def _store(self, new, on_conflict):
        try:
            return super()._store(new, on_conflict)
        except DuplicateJob as error:
            return Enqueued(error.existing_id, created=False)


@caught_by("test_a_key_is_held_while_its_job_runs")
class FreesTheKeyWhenAJobStarts(MemoryBackend):
    def _holder(self, unique_key):
        holder = super()._holder(unique_key)
        return None if holder is None or holder.state == RUNNING else holder


@caught_by("test_one_lost_lease_in_a_batch_does_not_keep_the_others_from_settling")
class SettlesAllOrNothing(MemoryBackend):
    def ack(self, leases, results=None, **how):
        if any(self._held(lease) is None for lease in leases):
            return [Settled.LOST for _ in leases]
        return super().ack(leases, results, **how)


@caught_by("test_a_lost_ack_keeps_no_result")
class KeepsResultsOfLostAcks(MemoryBackend):
    def ack(self, leases, results=None, **how):
        self.results.update(results or {})
        return super().ack(leases, results, **how)


@caught_by("test_a_renewed_lease_ends_the_asked_time_from_the_stores_now")
class RenewsFromTheOldEnd(MemoryBackend):
    def renew(self, leases, lease_seconds):
        ends = {job.id: job.expires_at for job in self.jobs.values()}
        answers = super().renew(leases, lease_seconds)
        for lease, answer in zip(leases, answers, strict=True):
            if answer is Settled.SETTLED:
                self.jobs[lease.id].expires_at = ends[lease.id] + round(lease_seconds * SECOND)
        return answers


@caught_by("test_a_late_ack_counts_while_its_token_is_current")
class RefusesLateSettles(MemoryBackend):
    def _held(self, lease):
        job = super()._held(lease)
        return None if job is None or self._expired(job, self.clock.now()) else job


@caught_by(
    "test_pushing_an_id_that_has_ended_makes_no_job",
    "test_pushing_an_id_that_was_cancelled_makes_no_job",
    "test_a_job_that_was_replaced_and_comes_again_makes_no_job",
)
class ForgetsWhatEnded(MemoryBackend):
    def push(self, outgoing, **how):
        return self.enqueue(outgoing, **how)


@caught_by("test_pushing_an_id_that_has_ended_without_a_result_makes_no_job")
class KnowsByResultsAlone(MemoryBackend):
    """As a backend that remembers nothing."""

    def push(self, outgoing, *, on_conflict=OnConflict.RETURN):
        return push_in_two_steps(self, outgoing, on_conflict=on_conflict)


@caught_by("test_of_ids_that_were_pushed_it_is_known_that_they_live_or_have_ended")
class KnowsOnlyWhatLives(MemoryBackend):
    def known_ids(self, jobs):
        return super().known_ids(jobs) & self.jobs.keys()


@caught_by("test_an_ended_job_that_is_pushed_again_blocks_no_other")
class LooksForTheKeyFirst(MemoryBackend):
    def push(self, outgoing, *, on_conflict=OnConflict.RETURN):
        stored = super().push(outgoing, on_conflict=on_conflict)
        holders = [self._holder(one.terms.unique or "") for one in outgoing]
        return [
            Enqueued(holder.id, created=False) if holder and not one.created else one
            for holder, one in zip(holders, stored, strict=True)
        ]


@caught_by("test_a_push_follows_its_on_conflict")
class PushesInItsOwnWay(MemoryBackend):
    def push(self, outgoing, **how):
        return super().push(outgoing)


@caught_by("test_peek_leases_nothing")
class LeasesWhatItShows(MemoryBackend):
    def peek(self, queue, limit=20):
        seen = super().peek(queue, limit)
        self.fetch([queue], limit, 60)
        return seen


@caught_by("test_a_running_job_is_not_cancelled")
class CancelsRunningJobs(MemoryBackend):
    def cancel(self, job_id):
        return self.jobs.pop(job_id, None) is not None


@caught_by("test_a_message_made_due_before_its_schedule_does_not_open")
class HidesWhenItBecameDue(MemoryBackend):
    def _lease(self, job, token, expires_at):
        lease = super()._lease(job, token, expires_at)
        header = lease.message.header._replace(available_at=2**53 - 1)
        return lease._replace(message=lease.message._replace(header=header))


@caught_by("test_a_backend_is_all_that_it_claims")
class ClaimsWhatItHasNoVerbsFor(MemoryBackend):
    capabilities = MemoryBackend.capabilities._replace(breakers=True)


@caught_by("test_it_joins_transactions_on_its_own_database_and_no_other")
class JoinsNoneThatItClaims(MemoryBackend):
    capabilities = MemoryBackend.capabilities._replace(transactional_enqueue=True)


@caught_by("test_outcomes_tell_what_lives_and_how_the_others_ended")
class TakesAllThatIsGoneForSucceeded(MemoryBackend):
    def outcomes(self, job_ids):
        live = self.jobs.keys()
        return {job_id: None if job_id in live else "succeeded" for job_id in job_ids}


@caught_by("test_outcomes_tell_what_lives_and_how_the_others_ended")
class LeavesOutWhatLives(MemoryBackend):
    def outcomes(self, job_ids):
        return {job_id: end for job_id, end in super().outcomes(job_ids).items() if end}
