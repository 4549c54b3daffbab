"""Who takes part, in the order of the tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.surroundings import Surroundings

if TYPE_CHECKING:
    from tests.benchmarks.rivals.site import Site

BARE, OURS = "bare", "django_jobs"
ADAPTERS = {
    BARE: "bare:BareSite",
    OURS: "ours:OurSite",
    "pgqueuer": "pgqueuer:PgQueuerSite",
    "procrastinate": "procrastinate:ProcrastinateSite",
    "django-q2": "q2:Q2Site",
    "dj-queue": "dj_queue:DjQueueSite",
    "django-ox": "ox:OxSite",
    "django-tasks-db": "tasks_db:TasksDbSite",
    "huey": "huey:HueySite",
    "sqlite:bare": "bare:BareSqliteSite",
    "sqlite:django_jobs": "ours:OurSqliteSite",
    "sqlite:huey": "huey:HueySqliteSite",
    "sqlite:django-tasks-db": "tasks_db:TasksDbSqliteSite",
    "redis:bare": "redis_bare:BareRedisSite",
    "redis:django_jobs": "ours:OurRedisSite",
    "redis:dramatiq": "redis_rivals:DramatiqSite",
    "redis:celery": "redis_rivals:CelerySite",
    "redis:rq": "redis_rivals:RqSite",
    "redis:huey": "redis_rivals:HueyRedisSite",
    "redis:django-q2": "q2:Q2RedisSite",
}
TASKS = {
    "tasks:django_jobs": "ours:OurTasksSite",
    "django-ox": ADAPTERS["django-ox"],
    "django-tasks-db": ADAPTERS["django-tasks-db"],
}
"""Backends of Django's Tasks, ours among them, for ``tests.benchmarks.tasks``."""


def site(name: str) -> type[Site]:
    """The adapter of a contestant; importing it imports nothing of the contestant's own."""
    module, _, wanted = {**ADAPTERS, **TASKS}[name].partition(":")
    found: type[Site] = getattr(import_module(f"tests.benchmarks.rivals.adapters.{module}"), wanted)
    return found


def chosen() -> Site:
    """The contestant of this process."""
    surroundings = Surroundings.here()
    return site(surroundings.contestant)(surroundings)
