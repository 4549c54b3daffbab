"""A queue per tenant in Redis: only those in which there is something to do are asked about."""

import pytest

from django_jobs.conf import get_settings
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker.queues import InTurn

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


def put(backend, queue, **terms):
    backend.enqueue([make_outgoing(queue, backend="redis", **terms)])


@pytest.fixture
def scripts(backend, monkeypatch):
    """The scripts that were run, and on how many queues each."""
    told, run_on = [], backend.store.run_on

    def noted(name, queues, args):
        told.append((name, len(queues)))
        return run_on(name, queues, args)

    monkeypatch.setattr(backend.store, "run_on", noted)
    return told


def test_a_fetch_is_told_only_of_queues_in_which_something_is_due(backend, scripts):
    for n in range(30):
        put(backend, f"tenant-{n}", delay=86_400.0)
    put(backend, "zz")
    assert backend.queues_due(0.0) == ["zz"]
    order = InTurn(backend, get_settings())
    order.next()
    scripts.clear()
    assert len(backend.fetch(order.next(), 1, 30.0)) == 1
    assert scripts == [("fetch", 2)]


def test_only_queues_with_something_to_tidy_are_tidied(backend, scripts):
    for n in range(30):
        put(backend, f"tenant-{n}", delay=86_400.0)
    for queue in ("keyed", "other"):
        put(backend, queue, concurrency_key="k")
    assert len(backend.fetch(["keyed", "other"], 1, 30.0)) == 1
    assert backend.fetch(["keyed", "other"], 1, 30.0) == []
    scripts.clear()
    backend.tidy()
    assert [name for name, _ in scripts] == ["untidyqueues", "tidy"]
    assert scripts[-1][1] > 30  # whoever holds the key may be in any of them
