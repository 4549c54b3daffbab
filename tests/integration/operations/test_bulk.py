"""Runs through many dead letters: stored, carried on by whoever may, paced, stopped."""

import time
from datetime import timedelta

import pytest

from django_jobs.models import FailedJob, Job, JobResult, OperatorEvent, ResolutionRun
from django_jobs.operations import bulk
from django_jobs.operations.bulk import advance, begin, carry, stop
from django_jobs.operations.dead_letters import Matching
from django_jobs.operations.replay import replay
from django_jobs.worker import process_once
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
BY = {"by": "me", "reason": "the gateway is back"}


def letters(count, **failure):
    return [die(**failure) for _ in range(count)]


def replays():
    return Job.objects.exclude(replay_of=None)


def test_a_run_replays_all_that_match_and_nothing_else():
    wanted, other = letters(3), die(send_receipt.prepare(1))
    run = begin("replay", Matching(queue="default"), **BY)
    late = die()
    run, _wait = advance(run.pk)
    assert (run.state, run.total, run.done, run.refused) == ("finished", 3, 3, 0)
    assert replays().count() == 3
    for failed in wanted:
        failed.refresh_from_db()
        assert (failed.resolution, failed.resolved_by) == ("replayed", "me")
        assert failed.resolution_note == "the gateway is back"
    for failed in (other, late):
        failed.refresh_from_db()
        assert failed.resolution == ""
    assert OperatorEvent.objects.get(action="replay-run").detail["total"] == 3
    assert run.ended_at is not None


@pytest.mark.parametrize(
    "field", ["queue", "handler", "reason", "fingerprint", "keys", "since", "until"]
)
def test_everything_a_run_can_match(field):
    one = die()
    other = die(send_receipt.prepare(1), reason="timed-out", fingerprint="1" * 32)
    FailedJob.objects.filter(pk=one.pk).update(failed_at=other.failed_at - timedelta(hours=1))
    half = other.failed_at - timedelta(minutes=30)
    value = {"keys": (other.pk,), "since": half}.get(field) or getattr(other, field, None)
    matching = Matching(until=half) if field == "until" else Matching(**{field: value})
    expected = one if field == "until" else other
    stored = Matching.from_document(matching.document())
    assert stored == matching
    assert [row.pk for row in stored.letters("default")] == [expected.pk]


def test_a_run_discards():
    letters(2)
    run, _wait = advance(begin("discard", Matching(), **BY).pk)
    assert (run.state, run.done) == ("finished", 2)
    assert set(FailedJob.objects.values_list("resolution", flat=True)) == {"discarded"}


def test_what_cannot_be_verified_is_told_and_left_alone():
    forged = letters(3)[1]
    FailedJob.objects.filter(pk=forged.pk).update(name="another")
    run, _wait = advance(begin("replay", Matching(), **BY).pk)
    assert (run.done, run.refused, run.state) == (2, 1, "finished")
    ((key, why),) = run.problems
    assert key == forged.pk
    assert "rejected-mismatch" in why


def test_a_run_goes_on_where_it_was_and_counts_nothing_twice():
    letters(4)
    run = begin("replay", Matching(), **BY)
    run, _wait = advance(run.pk, seconds=0)
    assert (run.state, run.done) == ("running", 0)
    replay(FailedJob.objects.order_by("pk")[1].pk, by="somebody")
    run, _wait = advance(run.pk)
    assert (run.state, run.done, run.dealt_with) == ("finished", 3, 3)
    again, _wait = advance(run.pk)
    assert again.done == 3
    assert replays().count() == 4


def test_one_steps_at_a_time():
    letters(2)
    run = begin("replay", Matching(), **BY)
    ResolutionRun.objects.update(stepper="somebody", stepping_until=2**60)
    run, wait = advance(run.pk)
    assert (run.done, wait) == (0, 1.0)
    # One who was cut off holds it no longer than that.
    ResolutionRun.objects.update(stepping_until=1)
    run, _wait = advance(run.pk)
    assert run.done == 2


def test_a_step_that_lost_its_run_changes_nothing(monkeypatch):
    letters(2)
    run = begin("replay", Matching(), **BY)
    really = bulk.replay

    def slowly(failed_id, **how):
        ResolutionRun.objects.update(stepper="somebody else")
        return really(failed_id, **how)

    monkeypatch.setattr(bulk, "replay", slowly)
    run, _wait = advance(run.pk)
    assert run.done == 0
    assert replays().count() == 0
    assert not FailedJob.objects.exclude(resolution="").exists()


def test_a_run_can_be_stopped_once():
    letters(3)
    run = begin("replay", Matching(), rate=1.0, **BY)
    run, wait = advance(run.pk, seconds=0.5)
    assert run.done == 1
    assert 0 < wait <= 1
    assert stop(run.pk, by="you", reason="enough")
    assert not stop(run.pk, by="you")
    run, _wait = advance(run.pk)
    assert (run.state, run.done, run.ended_by) == ("stopped", 1, "you")
    assert OperatorEvent.objects.get(action="stop-replay-run").reason == "enough"


def test_a_run_keeps_its_pace():
    letters(30)
    run = begin("replay", Matching(), rate=20.0, **BY)
    began = time.monotonic()
    while run.state == "running":
        run, wait = advance(run.pk, seconds=0.4)
        time.sleep(wait)
    # The first waits for nothing, and a few may catch up with the gaps between steps.
    assert time.monotonic() - began > 29 / 20.0 - 0.3
    assert run.done == 30


def test_an_empty_run_is_over_at_once():
    run = begin("replay", Matching(queue="nobody"), **BY)
    assert (run.state, run.total, run.carrier) == ("finished", 0, "")


@pytest.mark.parametrize("rate", [0, -1, 5000, float("nan")])
def test_a_rate_that_makes_no_sense_is_refused(rate):
    with pytest.raises(ValueError, match="a rate is above 0"):
        begin("replay", Matching(), rate=rate, **BY)


def test_a_run_brings_a_job_that_carries_it_on_and_only_one():
    die(send_receipt.prepare(1))
    run = begin("replay", Matching(), **BY)
    job = Job.objects.get(handler=bulk.CARRY_ON)
    assert (str(job.pk), job.queue) == (run.carrier, "mail")
    carry(run)
    assert Job.objects.filter(handler=bulk.CARRY_ON).count() == 1


def test_without_leave_for_that_job_the_run_says_so_and_is_there(settings):
    die()
    settings.DJANGO_JOBS = {"QUEUES": {"default": {"HANDLERS": [doomed.key]}}}
    run = begin("replay", Matching(), **BY)
    assert run.carrier == ""
    assert "django_jobs.carry_on" in run.obstacle
    run, _wait = advance(run.pk)
    assert run.done == 1


def test_that_job_makes_steps_until_the_run_is_over():
    letters(5)
    run = begin("replay", Matching(handler=doomed.key), rate=20.0, **BY)
    carrier, deadline = run.carrier, time.monotonic() + 60
    while run.state == "running":
        assert time.monotonic() < deadline
        process_once("default")
        run.refresh_from_db()
    # The replayed ones have run meanwhile, and died again; the run is through with them.
    assert (run.done, run.total) == (5, 5)
    assert JobResult.objects.filter(pk=carrier, status="succeeded").exists()
