"""Choosing dead letters, and going through them one by one."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobs.models import FailedJob, Job
from django_jobs.operations.dead_letters import (
    discard,
    discard_each,
    replay_each,
    select,
)
from testproject.shop.jobs import send_receipt
from tests.integration.operations.dying import die


@pytest.mark.django_db
class TestSelect:
    def test_by_everything_it_is_said(self):
        here, there = die(), die(send_receipt.prepare(1), reason="timed-out")
        assert list(select()) == [there, here]
        assert list(select(queue="mail")) == [there]
        assert list(select(handler="testproject.shop.jobs.doomed")) == [here]
        assert list(select(reason="timed-out")) == [there]
        assert list(select(queue="mail", reason="exhausted")) == []
        assert list(select(ids=[here.pk, str(there.job_id)])) == [there, here]
        assert list(select(ids=[str(here.pk)])) == [here]
        assert list(select(ids=[])) == []

    @pytest.mark.parametrize("given", ["elephant", "-1", "9" * 30, ""])
    def test_refuses_what_is_no_id(self, given):
        with pytest.raises(ValueError, match=f"'{given}'"):
            select(ids=[given])

    def test_leaves_out_what_is_resolved(self):
        failed = die()
        discard(failed.pk, by="ada")
        assert list(select()) == []
        assert list(select(unresolved=False)) == [failed]

    def test_by_age(self):
        failed = die()
        FailedJob.objects.update(failed_at=timezone.now() - timedelta(days=2))
        die()
        assert list(select(older_than=timedelta(days=1))) == [failed]


@pytest.mark.django_db
class TestEach:
    def test_in_batches_and_to_the_end(self):
        letters = [die() for _ in range(5)]
        answers = list(replay_each(select(), by="ada", batch=2))
        assert [answer.failed_id for answer in answers] == [letter.pk for letter in letters]
        assert {answer.status for answer in answers} == {"replayed"}
        assert Job.objects.count() == 5

    def test_does_not_chase_what_dies_meanwhile(self):
        die()
        answers = []
        for answer in replay_each(select(), by="ada", batch=1):
            answers.append(answer)
            die()
            assert len(answers) < 5
        assert len(answers) == 1

    def test_of_a_slice(self):
        letters = [die() for _ in range(3)]
        list(discard_each(select()[:2], by="ada"))
        open_ones = select()
        assert list(open_ones) == letters[:1]

    def test_skips_what_was_purged_meanwhile(self):
        first, second = die(), die()
        discarding = discard_each(select(), by="ada")
        next(discarding)
        FailedJob.objects.filter(pk=second.pk).delete()
        assert list(discarding) == []
        assert first.pk
