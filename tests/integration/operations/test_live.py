"""Looking at live jobs, and calling off those that wait."""

import pytest

from django_jobs import operations
from django_jobs.backends.registry import backends
from django_jobs.exceptions import NotSupported
from django_jobs.models import Job, JobResult, OperatorEvent, QueueControl
from testproject.shop.jobs import doomed, flaky, send_receipt
from tests.integration.operations.dying import die

MEMORY = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}


def by_queue():
    return {(row.backend, row.queue): row for row in operations.overview()}


@pytest.mark.django_db
class TestCancel:
    @pytest.mark.parametrize("options", [{}, {"delay": 60}])
    def test_ends_a_job_that_waits(self, options):
        handle = doomed.using(**options).enqueue()
        assert operations.cancel(handle.id, by="ada", reason="no longer needed")
        event = OperatorEvent.objects.get()
        assert not Job.objects.exists()
        assert JobResult.objects.get().status == "cancelled"
        assert (event.action, event.actor, event.subject) == ("cancel", "ada", handle.id)
        assert (event.reason, event.queue) == ("no longer needed", "default")

    def test_happens_once(self):
        handle = doomed.enqueue()
        operations.cancel(handle.id, by="ada")
        assert not operations.cancel(handle.id, by="bob")
        assert OperatorEvent.objects.count() == 1

    def test_leaves_a_running_job_alone(self):
        handle = doomed.enqueue()
        backends["database"].fetch(["default"], 1, 30)
        assert not operations.cancel(handle.id, by="ada")
        assert Job.objects.exists()
        assert not OperatorEvent.objects.exists()

    @pytest.mark.parametrize("unknown", ["elephant", "00000000-0000-7000-8000-000000000000"])
    def test_of_nothing_is_false(self, unknown):
        assert not operations.cancel(unknown, by="ada")

    def test_finds_the_job_in_other_backends(self, settings):
        settings.DJANGO_JOBS = {
            "BACKENDS": {"database": {"BACKEND": BACKEND}, "memory": MEMORY},
        }
        handle = doomed.using(backend="memory").enqueue()
        assert operations.cancel(handle.id, by="ada")
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
            return {str(pk) for pk in operations.live(**said).values_list("pk", flat=True)}

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
        found = operations.live(state="blocked")
        assert [str(job.pk) for job in found] == [blocked.id]
        assert by_queue()["database", "default"].blocked == 1
        assert first.id != blocked.id

    def test_refuses_an_unknown_state(self):
        with pytest.raises(ValueError, match="'dead'"):
            operations.live(state="dead")


@pytest.mark.django_db
class TestOverview:
    def test_counts_every_state(self):
        doomed.enqueue()
        backends["database"].fetch(["default"], 1, 30)
        doomed.enqueue()
        flaky.using(delay=60).enqueue()
        die(send_receipt.prepare(1))
        QueueControl.objects.create(backend="database", queue="mail", paused=True, reason="storm")
        rows = by_queue()
        default, mail = rows["database", "default"], rows["database", "mail"]
        assert (default.ready, default.scheduled, default.running) == (1, 1, 1)
        assert (default.suspect, default.dead, default.paused) == (0, 0, False)
        assert default.oldest_ready_seconds >= 0
        assert (mail.ready, mail.dead) == (0, 1)
        assert (mail.paused, mail.paused_reason) == (True, "storm")

    def test_tells_how_long_the_oldest_has_waited(self):
        handle = doomed.enqueue()
        Job.objects.filter(pk=handle.id).update(due=Job.objects.get().due - 90_000_000)
        assert 90 <= by_queue()["database", "default"].oldest_ready_seconds < 150

    def test_forgets_what_is_resolved(self):
        operations.discard(die().pk, by="ada")
        assert operations.overview() == []

    def test_shows_configured_queues_that_are_empty(self, settings):
        settings.DJANGO_JOBS = {"QUEUES": {"mail": {}, "reports": {}}}
        assert list(by_queue()) == [("database", "mail"), ("database", "reports")]

    def test_takes_few_queries(self, django_assert_max_num_queries):
        for queue in range(12):
            doomed.using(queue=f"queue-{queue}").enqueue()
        with django_assert_max_num_queries(5):
            assert len(operations.overview()) == 12

    def test_asks_other_backends_and_survives_broken_ones(self, settings, monkeypatch, caplog):
        settings.DJANGO_JOBS = {
            "BACKENDS": {"database": {"BACKEND": BACKEND}, "memory": MEMORY},
            "QUEUES": {"fast": {"BACKEND": "memory"}, "default": {}},
        }
        doomed.using(queue="fast").enqueue()
        assert by_queue()["memory", "fast"].ready == 1
        doomed.using(queue="fast", concurrency_key="k").enqueue()
        doomed.using(queue="fast", concurrency_key="k").enqueue()
        backends["memory"].fetch(["fast"], 2, 30)
        assert by_queue()["memory", "fast"].blocked == 1

        def broken(queue):
            raise NotSupported("no stats today of redis://me:s3cret@10.1.2.3")

        monkeypatch.setattr(backends["memory"], "stats", broken)
        rows = by_queue()
        assert rows["memory", "fast"].problem == "NotSupported"
        assert "no stats today of redis://••••@10.1.2.3" in caplog.text
        assert rows["database", "default"].problem == ""
