"""Choosing dead letters, and going through them one by one."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobs import operations
from django_jobs.models import FailedJob, Job
from testproject.shop.jobs import send_receipt
from tests.integration.operations.dying import die


@pytest.mark.django_db
class TestSelect:
    def test_by_everything_it_is_said(self):
        here, there = die(), die(send_receipt.prepare(1), reason="timed-out")
        assert list(operations.select()) == [there, here]
        assert list(operations.select(queue="mail")) == [there]
        assert list(operations.select(handler="testproject.shop.jobs.doomed")) == [here]
        assert list(operations.select(reason="timed-out")) == [there]
        assert list(operations.select(queue="mail", reason="exhausted")) == []
        assert list(operations.select(ids=[here.pk, str(there.job_id)])) == [there, here]
        assert list(operations.select(ids=[str(here.pk)])) == [here]
        assert list(operations.select(ids=[])) == []

    @pytest.mark.parametrize("given", ["elephant", "-1", "9" * 30, ""])
    def test_refuses_what_is_no_id(self, given):
        with pytest.raises(ValueError, match=f"'{given}'"):
            operations.select(ids=[given])

    def test_leaves_out_what_is_resolved(self):
        failed = die()
        operations.discard(failed.pk, by="ada")
        assert list(operations.select()) == []
        assert list(operations.select(unresolved=False)) == [failed]

    def test_by_age(self):
        failed = die()
        FailedJob.objects.update(failed_at=timezone.now() - timedelta(days=2))
        die()
        assert list(operations.select(older_than=timedelta(days=1))) == [failed]


@pytest.mark.django_db
class TestEach:
    def test_in_batches_and_to_the_end(self):
        letters = [die() for _ in range(5)]
        answers = list(operations.replay_each(operations.select(), by="ada", batch=2))
        assert [answer.failed_id for answer in answers] == [letter.pk for letter in letters]
        assert {answer.status for answer in answers} == {"replayed"}
        assert Job.objects.count() == 5

    def test_does_not_chase_what_dies_meanwhile(self):
        die()
        answers = []
        for answer in operations.replay_each(operations.select(), by="ada", batch=1):
            answers.append(answer)
            die()
            assert len(answers) < 5
        assert len(answers) == 1

    def test_of_a_slice(self):
        letters = [die() for _ in range(3)]
        list(operations.discard_each(operations.select()[:2], by="ada"))
        open_ones = operations.select()
        assert list(open_ones) == letters[:1]

    def test_skips_what_was_purged_meanwhile(self):
        first, second = die(), die()
        discarding = operations.discard_each(operations.select(), by="ada")
        next(discarding)
        FailedJob.objects.filter(pk=second.pk).delete()
        assert list(discarding) == []
        assert first.pk
