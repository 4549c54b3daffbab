"""Replay and discard: once, verified, and on record."""

import json
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.models import FailedJob, Job, OperatorEvent
from django_jobs.operations import replay as resealing
from django_jobs.operations.dead_letters import discard
from django_jobs.operations.replay import replay
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer
from testproject.shop.jobs import doomed, flaky, send_receipt
from tests.integration.operations.dying import die

DATABASE = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}

REPLAY = """
import sys, time
import django
django.setup()
from django_jobs import job
from django_jobs.operations.replay import replay
while time.time() < float(sys.argv[2]):
    pass
for _ in range(3):
    print(replay(int(sys.argv[1]), by="racer").status, flush=True)
"""


def body_of(job):
    return json.loads(job.body)


def forge(failed, change, *, sign=False):
    """Change a dead letter's body; without ``sign`` as somebody would who has no key."""
    body = json.dumps(change(json.loads(failed.body)), separators=(",", ":"))
    failed.body = body
    if sign:
        failed.signature = Signer(get_settings().signing_keys).sign(body)
    failed.save()
    return failed


def reseal_with(failed, *, schedule, expires_in):
    def change(body):
        micro = int(schedule.timestamp() * 1_000_000)
        return {
            **body,
            "schedule": micro,
            "delay": 30,
            "expiresAt": body["enqueuedAt"] + expires_in * 1_000_000,
        }

    return forge(failed, change, sign=True)


@pytest.mark.django_db
class TestReplay:
    def test_makes_a_new_job_of_the_old_one(self):
        failed = die(flaky.using(priority=7, name="a name", meta={"a": 1}).prepare())
        answer = replay(failed.pk, by="ada", reason="fixed the server")
        job = Job.objects.get()
        assert answer.status == "replayed"
        assert answer.new_id == str(job.pk) != str(failed.job_id)
        assert job.replay_of == failed.job_id
        assert (job.attempts, job.crashes, job.deliveries) == (0, 0, 0)
        old, new = body_of(failed), body_of(job)
        assert new.pop("replayOf") == old.pop("identifier") == str(failed.job_id)
        assert new.pop("identifier") == answer.new_id
        assert new.pop("enqueuedAt") > old.pop("enqueuedAt")
        assert new == old

    def test_leaves_a_job_that_can_be_opened_and_run(self):
        failed = die(send_receipt.prepare(5))
        answer = replay(failed.pk, by="ada")
        (lease,) = backends["database"].fetch(["mail"], 1, 30)
        assert lease.id == answer.new_id
        envelope = Opener(
            backend="database",
            site=get_settings().site,
            max_payload_bytes=10_000,
            signer=Signer(get_settings().signing_keys),
        ).open(lease.message, "mail")
        assert envelope.payload == {"args": [5], "kwargs": {}}

    def test_is_on_record(self):
        failed = die()
        answer = replay(failed.pk, by="ada", reason="because")
        failed.refresh_from_db()
        event = OperatorEvent.objects.get()
        assert failed.resolution == "replayed"
        assert str(failed.replayed_as) == answer.new_id
        assert (failed.resolved_by, failed.resolution_note) == ("ada", "because")
        assert failed.resolved_at is not None
        assert (event.action, event.actor, event.reason) == ("replay", "ada", "because")
        assert event.subject == str(failed.job_id)
        assert event.detail["replayed_as"] == answer.new_id

    def test_happens_once_however_often_it_is_asked_for(self):
        failed = die()
        first = replay(failed.pk, by="ada")
        second = replay(failed.pk, by="bob")
        assert second.status == "already-replayed"
        assert second.new_id == first.new_id
        assert "ada" in second.why
        assert Job.objects.count() == OperatorEvent.objects.count() == 1

    def test_of_a_discarded_one_does_nothing(self):
        failed = die()
        discard(failed.pk, by="ada")
        assert replay(failed.pk, by="bob").status == "discarded"
        assert not Job.objects.exists()

    def test_of_nothing_says_so(self):
        with pytest.raises(FailedJob.DoesNotExist, match="no dead letter 4711"):
            replay(4711, by="ada")

    def test_waits_for_nothing_and_lives_as_long_as_before(self):
        later = timezone.now() + timedelta(hours=1)
        failed = reseal_with(die(), schedule=later, expires_in=7200)
        before = time.time_ns() // 1000
        assert replay(failed.pk, by="ada").status == "replayed"
        job = Job.objects.get()
        assert job.get_state_display() == "ready"
        assert "schedule" not in body_of(job)
        assert "delay" not in body_of(job)
        lifetime = job.expires - body_of(job)["enqueuedAt"]
        assert lifetime == 7_200_000_000
        assert job.expires >= before + lifetime - 1_000_000

    def test_keeps_fields_that_a_later_release_wrote(self):
        failed = die()
        forge(failed, lambda body: {**body, "fromTheFuture": {"a": [1]}}, sign=True)
        replay(failed.pk, by="ada")
        (lease,) = backends["database"].fetch(["default"], 1, 30)
        assert body_of(lease.message)["fromTheFuture"] == {"a": [1]}
        assert resealing.Signer(resealing.get_settings().signing_keys).verify(
            lease.message.body.encode(), lease.message.signature, lease.message.key_id
        )

    def test_signs_with_the_current_key(self, settings):
        settings.DJANGO_JOBS = {"SIGNING_KEYS": [("old", "o" * 32)]}
        failed = die()
        settings.DJANGO_JOBS = {"SIGNING_KEYS": [("new", "n" * 32), ("old", "o" * 32)]}
        assert replay(failed.pk, by="ada").status == "replayed"
        assert (failed.key_id, Job.objects.get().key_id) == ("old", "new")

    def test_that_is_rolled_back_never_happened(self):
        failed = die()
        with transaction.atomic():
            replay(failed.pk, by="ada")
            transaction.set_rollback(True)
        failed.refresh_from_db()
        assert failed.resolution == ""
        assert not Job.objects.exists()

    def test_a_witness_that_raises_undoes_it(self):
        failed = die()

        def witness(_failed, _before):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            replay(failed.pk, by="ada", witness=witness)
        assert not Job.objects.exists()
        assert FailedJob.objects.get().resolution == ""


@pytest.mark.django_db
class TestRefusal:
    def refused(self, failed, *words):
        answer = replay(failed.pk, by="ada")
        assert answer.status == "refused"
        assert all(word in answer.why for word in words), answer.why
        failed.refresh_from_db()
        assert failed.resolution == ""
        assert failed.replayed_as is None
        assert not OperatorEvent.objects.exists()
        assert discard(failed.pk, by="ada").status == "discarded"

    def test_of_a_forged_body(self):
        failed = die()
        self.refused(
            forge(failed, lambda body: {**body, "payload": {"args": [1], "kwargs": {}}}),
            "rejected-signature",
        )

    def test_of_a_forged_body_even_where_signatures_are_not_verified(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"VERIFY_SIGNATURES": False}
        self.refused(forge(failed, lambda body: {**body, "name": "x"}), "rejected-signature")

    def test_of_a_key_that_was_retired(self, settings):
        settings.DJANGO_JOBS = {"SIGNING_KEYS": [("old", "o" * 32)]}
        failed = die()
        settings.DJANGO_JOBS = {"SIGNING_KEYS": [("new", "n" * 32)]}
        self.refused(failed, "'old'", "retired")

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("handler", "testproject.shop.jobs.flaky"),
            ("name", "another"),
            ("rank", 3),
            ("tenant", "somebody else"),
            ("trace_id", "t"),
            ("job_id", "00000000-0000-7000-8000-000000000000"),
            ("replay_of", "00000000-0000-7000-8000-000000000000"),
        ],
    )
    def test_of_a_changed_column(self, column, value):
        failed = die()
        FailedJob.objects.update(**{column: value})
        self.refused(failed, "rejected-mismatch", column.replace("job_id", "id"))

    @pytest.mark.parametrize("column", ["queue", "backend"])
    def test_of_another_queue_or_backend(self, column):
        failed = die()
        FailedJob.objects.update(**{column: "elsewhere"})
        self.refused(failed, f"rejected-{column}")

    def test_of_another_site(self, settings):
        settings.DJANGO_JOBS = {"SITE": "staging"}
        failed = die()
        settings.DJANGO_JOBS = {"SITE": "production"}
        self.refused(failed, "other-site")

    def test_of_a_backend_that_is_gone(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"BACKENDS": {"other": DATABASE}, "DEFAULT_BACKEND": "other"}
        self.refused(failed, "'database'")

    def test_of_a_handler_nobody_knows(self):
        failed = die()
        forge(failed, lambda body: {**body, "job": "shop.jobs.gone"}, sign=True)
        FailedJob.objects.update(handler="shop.jobs.gone")
        self.refused(failed, "shop.jobs.gone")

    def test_of_a_handler_no_longer_allowed(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"QUEUES": {"default": {"HANDLERS": []}}}
        self.refused(failed, "does not allow")

    def test_of_a_queue_no_longer_there(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"QUEUES": {"mail": {}}}
        self.refused(failed, "QUEUES")

    def test_of_arguments_the_handler_no_longer_takes(self):
        failed = die()
        forge(failed, lambda body: {**body, "payload": {"args": [1], "kwargs": {}}}, sign=True)
        self.refused(failed, "doomed")

    def test_of_a_newer_version(self):
        failed = die()
        self.refused(forge(failed, lambda body: {**body, "v": 2}, sign=True), "version 2")

    def test_of_a_key_that_is_held(self):
        failed = die(doomed.using(unique_key="one at a time").prepare())
        holder = doomed.using(unique_key="one at a time").enqueue()
        self.refused(failed, holder.id)
        assert str(Job.objects.get().pk) == holder.id


@pytest.mark.django_db
class TestDiscard:
    def test_keeps_the_row_and_the_record(self):
        failed = die()
        answer = discard(failed.pk, by="ada", reason="obsolete")
        failed.refresh_from_db()
        assert answer.status == "discarded"
        assert (failed.resolution, failed.resolved_by) == ("discarded", "ada")
        assert failed.resolution_note == "obsolete"
        assert OperatorEvent.objects.get().action == "discard"
        assert not Job.objects.exists()

    def test_happens_once(self):
        failed = die()
        discard(failed.pk, by="ada")
        assert discard(failed.pk, by="bob").status == "already-discarded"
        assert OperatorEvent.objects.count() == 1

    def test_of_a_replayed_one_does_nothing(self):
        failed = die()
        replay(failed.pk, by="ada")
        assert discard(failed.pk, by="bob").status == "replayed"
        failed.refresh_from_db()
        assert failed.resolution == "replayed"


@pytest.mark.django_db(transaction=True)
def test_two_processes_at_once_replay_it_once(site_environment):
    for _ in range(3):
        failed = die()
        start = time.time() + 2.5
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", REPLAY, str(failed.pk), str(start)],
                env=site_environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        said = [line for racer in racers for line in racer.communicate()[0].split()]
        assert [racer.returncode for racer in racers] == [0, 0]
        assert sorted(said) == ["already-replayed"] * 5 + ["replayed"]
        assert Job.objects.count() == 1
        assert OperatorEvent.objects.count() == 1
        Job.objects.all().delete()
        OperatorEvent.objects.all().delete()
