"""Replays into backends elsewhere: where no transaction spans the new job and its record."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from django_jobs import job
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.registry import backends
from django_jobs.exceptions import EnqueueOutcomeUnknown, InvalidJob
from django_jobs.models import FailedJob, JobResult, OperatorEvent
from django_jobs.operations.dead_letters import discard, groups
from django_jobs.operations.purge import purge
from django_jobs.operations.replay import replay
from testproject.shop.jobs import doomed
from tests.integration.operations.dying import die

MEMORY = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}
IN_MEMORY = {"BACKENDS": {"database": MEMORY}, "DEFAULT_BACKEND": "database"}


class Lost(MemoryBackend):
    """Takes what it is given and, the first time, does not live to say so."""

    asked = 0

    def push(self, outgoing, **kwargs):
        stored = super().push(outgoing, **kwargs)
        type(self).asked += 1
        if self.asked == 1:
            raise EnqueueOutcomeUnknown(outgoing, "ConnectionError")
        return stored


@pytest.mark.django_db
class TestElsewhere:
    """Jobs carried by a backend outside the database of the dead letters."""

    def test_replays_into_the_backend_the_job_came_from(self, settings):
        failed = die()
        settings.DJANGO_JOBS = IN_MEMORY
        answer = replay(failed.pk, by="ada")
        assert answer.status == "replayed"
        assert list(backends["database"].jobs) == [answer.new_id]
        assert replay(failed.pk, by="ada").status == "already-replayed"
        assert len(backends["database"].jobs) == 1

    def test_a_broken_connection_doubles_nothing(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"BACKENDS": {"database": MEMORY}}
        backend = backends._built["database"] = Lost("database", {})
        Lost.asked = 0
        first = replay(failed.pk, by="ada")
        assert first.status == "refused"
        assert "again" in first.why
        second = replay(failed.pk, by="ada")
        assert second.status == "replayed"
        assert list(backend.jobs) == [second.new_id]

    def test_what_ran_meanwhile_does_not_run_again(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"BACKENDS": {"database": MEMORY}}
        backend = backends._built["database"] = Lost("database", {})
        Lost.asked = 0
        assert replay(failed.pk, by="ada").status == "refused"
        (lease,) = backend.fetch(["default"], 9, 30.0)
        backend.ack([lease])
        second = replay(failed.pk, by="ada")
        assert (second.status, second.new_id) == ("replayed", lease.id)
        assert not backend.jobs

    def test_a_held_key_leaves_it_open(self, settings):
        failed = die(doomed.using(unique_key="k").prepare())
        settings.DJANGO_JOBS = IN_MEMORY
        holder = doomed.using(unique_key="k").enqueue()
        answer = replay(failed.pk, by="ada")
        assert answer.status == "refused"
        assert holder.id in answer.why
        failed.refresh_from_db()
        assert (failed.resolution, failed.replayed_as) == ("", None)


class Crossed(MemoryBackend):
    """Somebody discards the dead letter while the new job is on its way."""

    letter = 0
    refuses = False

    def push(self, envelopes, **options):
        discard(self.letter, by="bob", reason="not needed")
        if self.refuses:
            raise InvalidJob("no room")
        return super().push(envelopes, **options)


@pytest.mark.django_db
class TestCrossedByADiscard:
    @pytest.fixture
    def failed(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"BACKENDS": {"database": MEMORY}}
        self.backend = backends._built["database"] = Crossed("database", {})
        self.backend.letter = failed.pk
        return failed

    def test_the_discard_stays_and_both_are_told(self, failed):
        witnessed = []
        answer = replay(failed.pk, by="ada", witness=lambda *told: witnessed.append(told))
        assert list(self.backend.jobs) == [answer.new_id]
        assert answer.status == "discarded"
        assert "bob" in answer.why
        assert answer.new_id in answer.why
        failed.refresh_from_db()
        assert (failed.resolution, failed.resolved_by) == ("discarded", "bob")
        assert not witnessed
        events = OperatorEvent.objects.order_by("pk")
        assert [(event.action, event.actor) for event in events] == [
            ("discard", "bob"),
            ("replay", "ada"),
        ]
        assert events[1].detail["replayed_as"] == answer.new_id
        assert sum(group.open for group in groups(resolved=True)) == 0

    def test_what_was_refused_besides_is_no_replay(self, failed):
        self.backend.refuses = True
        answer = replay(failed.pk, by="ada")
        assert (answer.status, answer.new_id) == ("discarded", None)
        failed.refresh_from_db()
        assert (failed.resolution, failed.replayed_as) == ("discarded", None)


class Purged(Crossed):
    """The dead letter is purged while the new job is on its way."""

    def push(self, envelopes, **options):
        purge(state="dead", older_than=timedelta(0))
        assert not FailedJob.objects.exists()
        if self.refuses:
            raise InvalidJob("no room")
        return MemoryBackend.push(self, envelopes, **options)


@pytest.mark.django_db
class TestCrossedByAPurge:
    @pytest.fixture
    def failed(self, settings):
        failed = die()
        settings.DJANGO_JOBS = {"BACKENDS": {"database": MEMORY}}
        self.backend = backends._built["database"] = Purged("database", {})
        return failed

    def test_the_new_job_is_named_recorded_and_witnessed(self, failed):
        witnessed = []
        answer = replay(failed.pk, by="ada", witness=lambda *told: witnessed.append(told))
        assert list(self.backend.jobs) == [answer.new_id]
        assert (answer.status, answer.job_id) == ("replayed", str(failed.job_id))
        assert "purged" in answer.why
        assert answer.new_id in answer.why
        event = OperatorEvent.objects.get(action="replay")
        assert (event.actor, event.subject) == ("ada", str(failed.job_id))
        assert event.detail["replayed_as"] == answer.new_id
        ((letter, before),) = witnessed
        assert (str(letter.replayed_as), letter.resolution, before) == (
            answer.new_id,
            "replayed",
            "",
        )

    def test_a_command_says_so(self, failed, capsys):
        call_command("jobs_dlq", "replay", str(failed.pk))
        assert "was purged while job" in capsys.readouterr().out

    def test_what_was_refused_besides_is_no_replay(self, failed):
        self.backend.refuses = True
        answer = replay(failed.pk, by="ada")
        assert (answer.status, answer.new_id, answer.why) == ("refused", None, "no room")
        assert not OperatorEvent.objects.filter(action="replay").exists()


seen = []


@job(key="tests.operations.look_around")
def look_around():
    seen.append(connection.in_atomic_block)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_runs_at_its_enqueue_runs_outside_the_transaction(settings):
    failed = die(look_around.prepare())
    settings.DJANGO_JOBS = {
        "BACKENDS": {"database": {"BACKEND": "django_jobs.backends.sync.SyncBackend"}}
    }
    seen.clear()
    answer = replay(failed.pk, by="ada")
    assert answer.status == "replayed"
    assert seen == [False]
    assert str(JobResult.objects.get().pk) == answer.new_id
    assert replay(failed.pk, by="ada").status == "already-replayed"
    assert seen == [False]
