"""How the queues are said to stand."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_jobs import enqueue_many
from django_jobs.backends.database import counts as counting
from django_jobs.backends.home import moments
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.exceptions import NotSupported
from django_jobs.ids import new_id
from django_jobs.models import FailedJob, Job, QueueControl
from django_jobs.operations.dead_letters import discard
from django_jobs.operations.overview import overview, overview_of_some
from testproject.shop.jobs import doomed, flaky, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
BACKEND = "django_jobs.backends.database.DatabaseBackend"
MEMORY = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}


def by_queue(*given):
    return {(row.backend, row.queue): row for row in overview(*given)}


def letter(queue, *, backend="database", resolution="", age=0):
    return FailedJob(
        backend=backend,
        job_id=new_id(),
        queue=queue,
        handler="shop.jobs.doomed",
        body="{}",
        signature="",
        key_id="",
        rank=0,
        reason="exhausted",
        failed_at=timezone.now() - timedelta(minutes=age),
        resolution=resolution,
    )


def put(count, *, age=None, backend=None, **options):
    """Enqueue some jobs; their ids."""
    prepared = [doomed.using(**options).prepare() for _ in range(count)]
    ids = [handle.id for handle in enqueue_many(prepared)]
    rows = Job.objects.filter(pk__in=ids)
    if age is not None:
        rows.update(due=backends["database"].clock.read(connection) - age * SECOND)
    if backend is not None:
        rows.update(backend=backend)
    return ids


class TestCountingNoFurtherThanAsked:
    def test_a_count_that_stopped_early_says_so(self):
        put(9)
        put(9, delay=60)
        shown = by_queue(3)["database", "default"]
        assert (shown.ready, shown.scheduled, shown.running) == (3, 3, 0)
        assert set(shown.at_least) == {"ready", "scheduled"}
        assert (shown.shown("ready"), shown.shown("running")) == ("3+", "0")

    def test_a_count_that_ends_where_it_would_stop_is_exact(self):
        put(3)
        FailedJob.objects.bulk_create([letter("default") for _ in range(3)])
        shown = by_queue(3)["database", "default"]
        assert (shown.ready, shown.dead, shown.at_least) == (3, 3, ())

    def test_so_do_dead_letters_and_suspects(self):
        Job.objects.filter(pk__in=put(9)).update(suspect=True)
        FailedJob.objects.bulk_create([letter("default") for _ in range(9)])
        shown = by_queue(3)["database", "default"]
        assert (shown.suspect, shown.dead) == (3, 3)
        assert set(shown.at_least) == {"ready", "suspect", "dead"}

    @pytest.mark.parametrize("priority", [50, 0, -50])
    def test_the_oldest_ready_job_is_found_wherever_it_stands(self, priority):
        """Behind more of a higher priority than are counted, before others of a lower one."""
        for one in (50, 0, -50):
            put(9, priority=one, age=60)
        put(1, priority=priority, age=7200)
        shown = by_queue(3)["database", "default"]
        assert 7200 <= shown.oldest_ready_seconds < 7260

    def test_suspects_are_counted_wherever_they_stand(self):
        ids = put(9)
        (running,) = backends["database"].fetch(["default"], 1, 60)
        waiting = [one for one in ids if one != running.id][-2:]
        Job.objects.filter(pk__in=[running.id, *waiting]).update(suspect=True)
        shown = by_queue(4)["database", "default"]
        assert (shown.suspect, "suspect" in shown.at_least) == (3, False)

    def test_an_open_dead_letter_is_counted_behind_any_number_of_resolved_ones(self):
        FailedJob.objects.bulk_create(
            [letter("mail", resolution="discarded") for _ in range(20)]
            + [letter("mail", age=60) for _ in range(2)]
            + [letter("reports", age=90)]
        )
        dead = {row.queue: row.dead for row in overview(3)}
        assert dead == {"mail": 2, "reports": 1}

    def test_dead_letters_of_backends_that_share_a_name_are_counted_apart(self):
        FailedJob.objects.bulk_create(
            [letter("mail") for _ in range(2)] + [letter("mail", backend="redis")]
        )
        rows = by_queue()
        assert (rows["database", "mail"].dead, rows["redis", "mail"].dead) == (2, 1)


class TestSeveralBackendsInOneTable:
    def test_jobs_of_a_backend_that_is_no_longer_configured_are_told_apart(self):
        put(3, backend="left-behind", age=7200)
        put(4, age=60)
        rows = by_queue()
        left, here = rows["left-behind", "default"], rows["database", "default"]
        assert (left.ready, here.ready) == (3, 4)
        assert left.oldest_ready_seconds >= 7200
        assert 60 <= here.oldest_ready_seconds < 120

    def test_each_backend_has_its_own_counts(self, settings):
        """However far apart they stand, where the settings name two."""
        settings.DJANGO_JOBS = {
            "BACKENDS": {name: {"BACKEND": BACKEND} for name in ("database", "second")}
        }
        put(150, priority=50, age=60)
        put(2, priority=-50, age=7200, backend="second")
        rows = by_queue()
        first, second = rows["database", "default"], rows["second", "default"]
        assert (first.ready, second.ready) == (150, 2)
        assert 60 <= first.oldest_ready_seconds < 120
        assert second.oldest_ready_seconds >= 7200
        assert backends["second"].stats("default").ready == 2

    def test_the_oldest_of_them_is_exact_where_counting_stopped_before_it(self):
        put(5, priority=50, age=60)
        put(1, priority=50, age=60, backend="second")
        put(1, priority=-50, age=7200, backend="second")
        rows = by_queue(3)
        assert rows["second", "default"].oldest_ready_seconds >= 7200


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
        assert {row.at_least for row in rows.values()} == {()}

    def test_tells_how_long_the_oldest_has_waited(self):
        handle = doomed.enqueue()
        Job.objects.filter(pk=handle.id).update(due=Job.objects.get().due - 90_000_000)
        assert 90 <= by_queue()["database", "default"].oldest_ready_seconds < 150

    def test_forgets_what_is_resolved(self):
        discard(die().pk, by="ada")
        assert overview() == []

    def test_shows_configured_queues_that_are_empty(self, settings):
        settings.DJANGO_JOBS = {"QUEUES": {"mail": {}, "reports": {}}}
        assert list(by_queue()) == [("database", "mail"), ("database", "reports")]

    def test_takes_few_queries(self, django_assert_max_num_queries):
        for queue in range(12):
            doomed.using(queue=f"queue-{queue}").enqueue()
        with django_assert_max_num_queries(10):
            assert len(overview()) == 12
        for queue in range(12, 199):
            doomed.using(queue=f"queue-{queue}").enqueue()
        with django_assert_max_num_queries(10):
            assert len(overview()) == 199

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

    @pytest.mark.parametrize("at_once", [10_000, 100])
    def test_shows_every_one_of_many_queues(self, monkeypatch, at_once):
        """Also where they hold too much for the table to be read as a whole."""
        monkeypatch.setattr(counting, "WHOLE_AT_MOST", at_once)
        prepared = [doomed.using(queue=f"queue-{number}").prepare() for number in range(130)]
        enqueue_many(prepared)
        put(3, queue="queue-7", age=7200)
        rows = by_queue(2)
        assert len(rows) == 130
        assert {row.ready for row in rows.values()} == {1, 2}
        seven = rows["database", "queue-7"]
        assert (seven.ready, seven.at_least) == (2, ("ready",))
        assert 7200 <= seven.oldest_ready_seconds < 7260

    def test_what_is_shown_of_a_queue_is_right_where_others_are_left_out(self, settings):
        settings.DJANGO_JOBS = {"QUEUES": {"mail": {}}, "STRICT_QUEUES": False}
        QueueControl.objects.create(backend="database", queue="paused", paused=True)
        queues = [*(f"a-{number}" for number in range(4)), "b", "mail", "paused"]
        enqueue_many([doomed.using(queue=queue).prepare() for queue in queues])
        Job.objects.filter(queue__in=("a-0", "a-3", "mail")).update(suspect=True)
        dead = [*(f"a-{number}-dead" for number in range(4)), "a-2", "b", "mail", "paused"]
        FailedJob.objects.bulk_create([letter(queue) for queue in dead])
        some = overview_of_some(9, at=moments(), breakers=[], queues_at_most=5)
        assert [row.queue for row in some.queues] == ["a-0", "a-0-dead", "a-1", "mail", "paused"]
        every = {row.queue: row for row in overview(9)}
        assert [every[row.queue] for row in some.queues] == [
            replace(row, oldest_ready_seconds=every[row.queue].oldest_ready_seconds)
            for row in some.queues
        ]
        assert len(some.queues) + some.more == len(every) == 11
