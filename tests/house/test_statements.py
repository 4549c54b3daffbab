"""The docstrings of the backends list where state changes.

The conformance tests compare them with all that runs there (``tests/conformance/statements.py``),
and ``tests/conformance/test_statements.py`` looks for rows that never happen.
"""

import re
from pathlib import Path

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database import backend as database_backend
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.redis import backend as redis_backend
from tests.conformance import statements

STATEMENTS = statements.statements_of(database_backend.__doc__)
SCRIPTS = statements.scripts_of(redis_backend.__doc__)
COMMANDS = {
    row for row in statements.statements_of(redis_backend.__doc__) if row[0] != statements.ANY
}


def test_every_row_is_of_a_verb():
    for kind, rows in ((DatabaseBackend, STATEMENTS), (RedisBackend, SCRIPTS | COMMANDS)):
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
