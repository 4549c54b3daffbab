"""What changes state in a store, and for which verb: what runs, and what the docstrings list."""

import inspect
import re
import sys
from functools import cache
from pathlib import Path

from django.apps import apps

import django_jobs
from django_jobs.backends.redis.scripts import SCRIPTS

PACKAGE = Path(django_jobs.__file__).parent
DATABASE, REDIS = (f"backends/{store}/backend.py" for store in ("database", "redis"))
SQL = re.compile(r"\b(?:INSERT(?: OR IGNORE| IGNORE)? INTO|UPDATE|DELETE FROM)\W+(django_jobs_\w+)")
LUA = re.compile(
    r"redis\.call\('(?:SET|DEL|UNLINK|P?EXPIRE\w*|INCR\w*|RENAME|PUBLISH|SPUBLISH"
    r"|H(?:SET\w*|DEL|INCRBY)|S(?:ADD|REM|POP)|[LR](?:PUSH|POP|TRIM|REM)"
    r"|Z(?:ADD|REM\w*|INCRBY|POPMIN))'"
)
TABLES = {model._meta.db_table: model.__name__ for model in apps.get_models()}
NAMES = {script.sha: name.removesuffix("-unless-full") for name, script in SCRIPTS.items()}
CHANGE = {name for name, script in SCRIPTS.items() if LUA.search(script.text)} - {"look"}


def rows_of(text):
    """The rows of the indented table in a docstring: each verb, and what stands behind it."""
    whole = re.sub(r"\n {8,}", " ", inspect.cleandoc(text))
    rows = re.findall(r"^    (\w+)  +(\S.*)$", whole, re.MULTILINE)
    assert rows
    assert len(rows) == len(dict(rows))
    return dict(rows)


def statements_of(text):
    """Verb, module and table of each row of the database's docstring."""
    return {
        (verb, module, table)
        for verb, row in rows_of(text).items()
        for module, _, tables in (part.strip().partition(": ") for part in row.split(";"))
        for table in tables.split(", ")
    }


def scripts_of(text):
    """Verb and script of each row of Redis's docstring."""
    return {(verb, name) for verb, row in rows_of(text).items() for name in row.split(", ")}


def compare(seen, listed):
    unlisted = sorted(seen - listed)
    assert not unlisted, f"the docstring of the backend leaves out {unlisted}"


class Watch:
    """Notes what changes state while a backend works, and which verb it is for."""

    def __init__(self):
        self.seen = set()

    def sql(self, execute, sql, params, many, context):
        """A wrapper for ``connection.execute_wrapper``."""
        if tables := SQL.findall(sql):
            frames = list(_frames())
            module = next((file for file, _ in frames if file != "db/transactions.py"), "")
            name = module.removesuffix(".py").removeprefix("backends/database/").replace("/", ".")
            verb = _verb(frames, DATABASE)
            self.seen |= {(verb, name, TABLES[table]) for table in tables if verb}
        return execute(sql, params, many, context)

    def lua(self, run):
        """Wraps the ``run`` of a connection to Redis."""

        def running(script, keys, args):
            name, verb = NAMES[script.sha], _verb(_frames(), REDIS)
            if verb and name in CHANGE:
                self.seen.add((verb, name))
            return run(script, keys, args)

        return running


def _frames():
    """The files and functions of the package that are running, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if file := _in_package(frame.f_code.co_filename):
            yield file, frame.f_code.co_name
        frame = frame.f_back


@cache
def _in_package(filename):
    path = Path(filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def _verb(frames, file):
    """The public method of the backend that a test called."""
    names = [name for where, name in frames if where == file and name[0] not in "_<"]
    return names[-1] if names else ""
