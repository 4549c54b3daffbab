"""Where connections are asked for: once between two runs of a process that only runs jobs."""

import pytest

from django_jobs.execution import hygiene
from django_jobs.execution.hygiene import clean_connections, keep_connections


class Asked:
    """Stands for Django's handler of connections, of which none is open."""

    def __init__(self):
        self.times = 0

    def all(self, *, initialized_only):
        assert initialized_only
        self.times += 1
        return []


@pytest.fixture
def asked(monkeypatch):
    handler = Asked()
    monkeypatch.setattr(hygiene, "connections", handler)
    monkeypatch.setattr(hygiene, "_known", hygiene._Known())
    monkeypatch.setattr(hygiene._Known, "kept", False)
    return handler


def run():
    with clean_connections():
        pass


def test_elsewhere_they_are_asked_for_before_and_after_each_run(asked):
    run()
    run()
    assert asked.times == 4


def test_there_what_a_run_left_is_what_the_next_one_finds(asked):
    keep_connections()
    for _ in range(3):
        run()
    assert asked.times == 1 + 3


def test_a_run_inside_a_run_trusts_nothing(asked):
    keep_connections()
    run()
    with clean_connections():
        run()
        run()
    assert asked.times == 2 + 2 * 2 + 1
