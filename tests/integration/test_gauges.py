"""How queues and workers stand, as collectors get it: read when asked, told by one process."""

import subprocess
import sys
import threading

import pytest
from django.db import OperationalError, connection, connections

from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.models import Metric, QueueControl
from django_jobs.operations import gauges as module
from django_jobs.operations.gauges import StoreGauges, store_gauges
from django_jobs.telemetry import counters, metrics
from django_jobs.telemetry.collectors import InMemory, Prometheus
from django_jobs.telemetry.metrics import GAUGES
from django_jobs.worker.build import process_once
from django_jobs.worker.duties import Ledger
from testproject.shop.jobs import doomed
from tests.conftest import ROOT

pytestmark = pytest.mark.django_db
PROMETHEUS = "django_jobs.telemetry.collectors.Prometheus"
IN_MEMORY = "django_jobs.telemetry.collectors.InMemory"


class CountsOnly:
    """A collector from before there were gauges."""

    def __init__(self):
        self.counted = []

    def increment(self, name, queue, by=1):
        self.counted.append(name)

    def observe(self, name, queue, seconds):
        pass


class Unwilling(CountsOnly):
    def watch(self, gauges):
        raise RuntimeError("no")


@pytest.fixture
def collect(settings, monkeypatch):
    monkeypatch.setattr(metrics, "_made", {})

    def choose(*paths):
        settings.DJANGO_JOBS = {"METRICS": list(paths)}
        return metrics.collectors()

    return choose


def told(found):
    """The values of queue default, and of no queue, by name and state."""
    return {
        (one.name, one.labels.get("state", "")): one.value
        for one in found
        if one.labels.get("queue", "default") == "default"
    }


def silence(seconds):
    """As if no process had reported for so long."""
    row = Metric.objects.get(part="reported-at")
    Metric.objects.filter(pk=row.pk).update(value=row.value - int(seconds * SECOND))


def stock():
    doomed.enqueue()
    doomed.enqueue()
    doomed.using(delay=60).enqueue()
    backends["database"].fetch(["default"], 1, 60)
    QueueControl.objects.create(backend="database", queue="default", paused=True)


@pytest.mark.parametrize("path", [IN_MEMORY, PROMETHEUS])
def test_a_collector_in_memory_can_be_asked_how_the_queues_stand(collect, path):
    stock()
    (memory,) = collect(path)
    found = told(memory.gauges())
    assert found["jobs", "ready"] == found["jobs", "running"] == found["jobs", "scheduled"] == 1
    assert found["jobs_in_flight", ""] == found["queue_paused", ""] == 1
    assert 0 < found["oldest_ready_seconds", ""] < 60
    assert {(one.name, *one.labels) for one in memory.gauges()} <= {
        (name, *kind.labels) for name, kind in GAUGES.items()
    }


def test_one_that_was_made_by_hand_has_none():
    assert InMemory().gauges() == Prometheus().gauges() == []


def test_a_collector_that_knows_no_gauges_goes_on_without(collect, caplog):
    counts, unwilling = collect(f"{__name__}.CountsOnly", f"{__name__}.Unwilling")
    assert "watch() of Unwilling raised" in caplog.text
    assert "CountsOnly" not in caplog.text
    doomed.enqueue()
    process_once()
    assert counts.counted == unwilling.counted != []


def test_a_run_asks_for_no_gauges(collect, django_assert_num_queries):
    collect(IN_MEMORY)
    doomed.enqueue()
    process_once()
    with django_assert_num_queries(0):
        assert store_gauges._read == store_gauges._reported == []


def test_the_stores_are_asked_now_and_then_however_often_somebody_asks(django_assert_num_queries):
    time = [0.0]
    kept = StoreGauges(lambda: time[0])
    doomed.enqueue()
    assert told(kept.read())["jobs", "ready"] == 1
    kept.in_turn()
    doomed.enqueue()
    time[0] = module.READ_EVERY_SECONDS - 0.1
    with django_assert_num_queries(0):
        for _ in range(100):
            assert told(kept.read()) == told(kept.in_turn())
            assert told(kept.read())["jobs", "ready"] == 1
    time[0] = module.READ_EVERY_SECONDS
    assert told(kept.read())["jobs", "ready"] == told(kept.in_turn())["jobs", "ready"] == 2


def test_one_process_tells_and_another_when_it_has_fallen_silent():
    doomed.enqueue()
    first, second, third = (StoreGauges() for _ in range(3))

    def who(*asked):
        for one in asked:
            one.forget()
        return [bool(one.in_turn()) for one in asked]

    assert who(first) == [True]
    assert who(third, second, first) == [False, False, True]
    silence(100)
    assert who(third, second) == [False, False], "exporters tell once a minute"
    silence(51)
    assert who(third, second, first) == [True, False, False]
    assert who(first, second, third) == [False, False, True]
    third.end()
    assert third.in_turn() == []
    assert who(second) == [True], "nobody has to wait for who has ended"


def test_of_several_processes_one_tells(transactional_db, site_environment):
    asked = "from django_jobs.operations.gauges import store_gauges as g; print(len(g.in_turn()))"
    code = f"import django; django.setup(); {asked}"
    doomed.enqueue()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, env=site_environment, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    found = [int(one.communicate(timeout=60)[0]) for one in running]
    assert sum(number > 0 for number in found) == 1, found


def test_the_turn_is_no_metric_and_ends_with_the_worker(collect):
    collect(PROMETHEUS)
    doomed.enqueue()
    assert store_gauges.in_turn()
    assert not counters.total_counters()
    Ledger(backends["database"]).end()
    other = StoreGauges()
    assert other.in_turn()


def test_a_child_tells_nothing(monkeypatch, django_assert_num_queries):
    doomed.enqueue()
    monkeypatch.setenv("DJANGO_JOBS_CHILD", "0")
    with django_assert_num_queries(0):
        assert StoreGauges().in_turn() == []


def test_a_database_that_is_away_tells_nothing_rather_than_an_old_number(caplog, transactional_db):
    def away(*_):
        raise OperationalError("the connection is lost")

    doomed.enqueue()
    kept = StoreGauges()
    assert kept.in_turn()
    kept.forget()
    with connection.execute_wrapper(away):
        assert kept.in_turn() == []
        assert [record.key for record in caplog.records] == ["gauges.unreadable"]
        with pytest.raises(OperationalError):
            kept.read()
    assert kept.read(), "the next one who asks gets an answer"


def test_an_exporter_keeps_no_connection(transactional_db):
    doomed.enqueue()
    found = {}

    def export():
        found["told"] = StoreGauges().in_turn()
        found["open"] = [one.alias for one in connections.all() if one.connection is not None]

    exporter = threading.Thread(target=export)
    exporter.start()
    exporter.join()
    assert found["told"]
    assert found["open"] == []
    assert connection.connection is not None, "it is somebody else's"


def test_of_a_broker_that_does_not_answer_there_is_no_number(settings):
    nowhere = {"URL": "redis://127.0.0.1:1/0"}
    settings.DJANGO_JOBS = {
        "BACKENDS": {
            "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
            "broker": {"BACKEND": "django_jobs.backends.redis.RedisBackend", "OPTIONS": nowhere},
        },
        "QUEUES": {"mail": {"BACKEND": "broker"}, "default": {}},
    }
    found = StoreGauges().read()
    assert {one.labels["queue"] for one in found if "queue" in one.labels} == {"default"}
