"""Looking at live jobs, and cancelling those that wait."""

import pytest

from django_jobs.backends.registry import backends
from django_jobs.models import Job, JobResult, OperatorEvent
from django_jobs.operations.cancel import cancel
from django_jobs.operations.overview import live, overview
from testproject.shop.jobs import doomed, flaky, send_receipt

MEMORY = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}


@pytest.mark.django_db
class TestCancel:
    @pytest.mark.parametrize("options", [{}, {"delay": 60}])
    def test_ends_a_job_that_waits(self, options):
        handle = doomed.using(**options).enqueue()
        assert cancel(handle.id, by="ada", reason="no longer needed")
        event = OperatorEvent.objects.get()
        assert not Job.objects.exists()
        assert JobResult.objects.get().status == "cancelled"
        assert (event.action, event.actor, event.subject) == ("cancel", "ada", handle.id)
        assert (event.reason, event.queue) == ("no longer needed", "default")

    def test_happens_once(self):
        handle = doomed.enqueue()
        cancel(handle.id, by="ada")
        assert not cancel(handle.id, by="bob")
        assert OperatorEvent.objects.count() == 1

    def test_leaves_a_running_job_alone(self):
        handle = doomed.enqueue()
        backends["database"].fetch(["default"], 1, 30)
        assert not cancel(handle.id, by="ada")
        assert Job.objects.exists()
        assert not OperatorEvent.objects.exists()

    @pytest.mark.parametrize("unknown", ["elephant", "00000000-0000-7000-8000-000000000000"])
    def test_of_nothing_is_false(self, unknown):
        assert not cancel(unknown, by="ada")

    def test_finds_the_job_in_other_backends(self, settings):
        settings.DJANGO_JOBS = {
            "BACKENDS": {"database": {"BACKEND": BACKEND}, "memory": MEMORY},
        }
        handle = doomed.using(backend="memory").enqueue()
        assert cancel(handle.id, by="ada")
        assert not backends["memory"].jobs
        assert OperatorEvent.objects.get().backend == "memory"


BACKEND = "django_jobs.backends.database.DatabaseBackend"


@pytest.mark.django_db
class TestLive:
    def test_by_queue_handler_and_state(self):
        ready, later, mail = (
            doomed.enqueue(),
            flaky.using(delay=60).enqueue(),
            send_receipt.enqueue(1),
        )

        def ids(**said):
            return {str(pk) for pk in live(**said).values_list("pk", flat=True)}

        assert ids() == {ready.id, later.id, mail.id}
        assert ids(queue="mail") == {mail.id}
        assert ids(handler="testproject.shop.jobs.flaky") == {later.id}
        assert ids(state="scheduled") == {later.id}
        assert ids(state="ready") == {ready.id, mail.id}
        assert ids(state="running") == set()
        Job.objects.filter(pk=ready.id).update(suspect=True)
        assert ids(state="suspect") == {ready.id}

    def test_those_that_wait_for_a_key(self):
        first, blocked = (doomed.using(concurrency_key="k").enqueue() for _ in range(2))
        backends["database"].fetch(["default"], 5, 30)
        found = live(state="blocked")
        assert [str(job.pk) for job in found] == [blocked.id]
        (shown,) = overview()
        assert shown.blocked == 1
        assert first.id != blocked.id

    def test_refuses_an_unknown_state(self):
        with pytest.raises(ValueError, match="'dead'"):
            live(state="dead")
