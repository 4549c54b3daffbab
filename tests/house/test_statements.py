"""The docstrings of the backends list where state changes.

The conformance tests compare them with all that runs there (``tests/conformance/statements.py``).
"""

import re
from functools import partial
from pathlib import Path

import pytest
from django.db import connection

from django_jobs.backends.base import ResultRecord
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database import backend as database_backend
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.redis import backend as redis_backend
from django_jobs.clock import SECOND, ManualClock
from django_jobs.db.clock import StoreClock
from django_jobs.models import QueueControl
from django_jobs.testing.factories import make_outgoing
from tests.conformance import statements

STATEMENTS = statements.statements_of(database_backend.__doc__)
SCRIPTS = statements.scripts_of(redis_backend.__doc__)


def test_every_row_is_of_a_verb():
    for kind, rows in ((DatabaseBackend, STATEMENTS), (RedisBackend, SCRIPTS)):
        assert [row for row in sorted(rows) if not callable(getattr(kind, row[0], None))] == []


def test_every_module_that_is_listed_names_the_table():
    tables = {name: table for table, name in statements.TABLES.items()}
    for _, module, model in sorted(STATEMENTS):
        path = Path(module.replace(".", "/") + ".py")
        folder = "" if "." in module else "backends/database"
        text = (statements.PACKAGE / folder / path).read_text(encoding="utf-8")
        assert re.search(rf"\b({model}|{tables[model]})\b", text), (module, model)


def test_every_script_that_changes_something_is_listed():
    changing = {name.removesuffix("-unless-full") for name in statements.CHANGE}
    assert {script for _, script in SCRIPTS} == changing


@pytest.mark.django_db
def test_what_is_no_verb_of_the_suite_changes_what_is_listed_too():
    clock, watch = ManualClock(), statements.Watch()
    outgoing = partial(make_outgoing, backend="database")
    backend = DatabaseBackend("database", {})
    backend.clock = StoreClock(clock)
    QueueControl.objects.create(backend="database", queue="mail", rate_limit="9/s")
    with connection.execute_wrapper(watch.sql):
        backend.enqueue([outgoing("mail"), outgoing("mail", delay=60)])
        (lease,) = leases = backend.fetch(["mail"], 1, 30.0)
        backend.return_starts(leases)
        assert backend.ask_to_stop(lease.id)
        backend.ack(leases, {lease.id: ResultRecord("succeeded", ttl_seconds=1.0)})
        clock.advance(100 * SECOND)
        backend.clean_up()
    assert {verb for verb, *_ in watch.seen} >= {"return_starts", "ask_to_stop", "clean_up"}
    statements.compare(watch.seen, STATEMENTS)
