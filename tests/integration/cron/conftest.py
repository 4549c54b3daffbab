"""Schedules for a test: a registry that hands out these and no others, and a clock to move."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobs.backends.registry import backends
from django_jobs.clock import ManualClock, from_datetime
from django_jobs.cron import stored
from django_jobs.cron.registry import registry
from django_jobs.cron.schedule import Schedule
from django_jobs.db.clock import StoreClock
from django_jobs.definition import JobDefinition, Options
from django_jobs.handlers.registry import registry as handlers
from tests.integration.commands.conftest import run  # noqa: F401 - the fixture, here as well

START = from_datetime(datetime(2031, 5, 4, 22, 0, 30, tzinfo=UTC))
JOBS = "tests.integration.cron.clockwork.jobs"


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    """The store's clock, at 2031-05-04 22:00:30."""
    manual = ManualClock(START)
    backend: Any = backends["database"]
    before, backend.clock = backend.clock, StoreClock(manual)
    yield manual
    backend.clock = before


@pytest.fixture
def schedules() -> Iterator[list[Schedule]]:
    """A list to put schedules into."""
    from tests.integration.cron.clockwork import jobs  # noqa: PLC0415 - registers its handlers

    assert f"{JOBS}.chime" in handlers, jobs
    # Of rows that were rolled back: the next ones may have their ids, and their time here.
    stored._cached = stored._Read(None, [], {})
    found: list[Schedule] = []
    source = lambda: found  # noqa: E731 - a source of its own for each test
    registry.register_source(source)
    yield found
    registry._sources.remove(source)


@pytest.fixture
def declare(schedules: list[Schedule]) -> Callable[..., Schedule]:
    """Add a schedule of ``chime`` in its queue."""

    def add(name: str = "bell", expression: str = "* * * * *", **fields: Any) -> Schedule:
        handler = fields.pop("handler", "chime")
        given: dict[str, Any] = {"queue": "clockwork", **fields.pop("options", {})}
        options = Options().using(**given)
        payload = {"args": [], "kwargs": {}}
        job = JobDefinition(f"{JOBS}.{handler}", payload, options)
        schedule = Schedule(name=name, expression=expression, job=job, **fields)
        schedules.append(schedule)
        return schedule

    return add
