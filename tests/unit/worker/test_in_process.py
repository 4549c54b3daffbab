"""The worker of one process, on a store in memory."""

import pytest
from django.db import OperationalError

from django_jobs.backends.base import LimitsRates
from django_jobs.backends.memory import MemoryBackend
from django_jobs.conf import get_settings
from django_jobs.telemetry import metrics
from django_jobs.worker.build import build_cycle
from django_jobs.worker.in_process import InProcessWorker
from django_jobs.worker.queues import Strict
from django_jobs.worker.stop import NOTHING_DUE, WorkerLimits


class PassingOver(MemoryBackend):
    """Has so many jobs of a broken handler that a fetch seldom sees the end of them."""

    fetches = 0
    most = 10
    on_fetch = staticmethod(lambda: None)

    def fetch(self, queues, limit, lease_seconds):
        self.fetches += 1
        self.on_fetch()
        assert self.fetches <= self.most + 2
        return []

    @property
    def fetch_ended_early(self):
        return self.fetches < self.most


class Faltering(MemoryBackend, LimitsRates):
    """Cannot be asked of its limits at first, as a database that is locked or starts anew."""

    asked = 0

    def withholds(self, queues):
        self.asked += 1
        if self.asked == 1:
            raise OperationalError("database is locked")
        return False


@pytest.fixture
def worker(monkeypatch):
    # A worker that ends gives up its turn at the gauges, which another test may have left it with.
    monkeypatch.setattr(metrics, "gauges", None)

    def make(kind=PassingOver, **limits):
        backend = kind("database", {})
        cycle = build_cycle(backend, get_settings())
        return backend, InProcessWorker(
            cycle, Strict(["default"]), WorkerLimits(**limits), poll_interval=0.01
        )

    return make


def test_a_worker_that_passes_over_many_jobs_stops_between_two_fetches(worker):
    backend, works = worker(until_empty=True)
    backend.on_fetch = works.stop.ask
    assert works.run() == 0
    assert backend.fetches == 1


@pytest.mark.parametrize("limits", [{"until_empty": True}, {"once": True}])
def test_a_worker_is_not_done_before_it_has_passed_over_all_of_them(worker, limits):
    backend, works = worker(**limits)
    assert works.run() == 0
    assert backend.fetches >= backend.most


def test_a_store_that_cannot_be_asked_of_its_limits_is_asked_again(worker):
    backend, works = worker(Faltering, until_empty=True)
    assert works.run() == 0
    assert works.why == NOTHING_DUE
    assert backend.asked > 1
