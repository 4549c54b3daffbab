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
WRITES = (
    r"(?:SET|DEL|UNLINK|P?EXPIRE\w*|INCR\w*|RENAME|PUBLISH|SPUBLISH"
    r"|H(?:SET\w*|DEL|INCRBY)|S(?:ADD|REM|POP)|B?[LR](?:PUSH|POP|TRIM|REM)"
    r"|Z(?:ADD|REM\w*|INCRBY|POPMIN))"
)
COMMAND, LUA = re.compile(WRITES), re.compile(rf"redis\.call\('{WRITES}'")
ANY = "any"
GENERATORS = {"purge_results"}
"""Functions that run when the method of the same name has returned."""
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
    """Verb, module and table, or command, of each row with modules in a docstring."""
    return {
        (verb, module, table)
        for verb, row in rows_of(text).items()
        if ": " in row
        for module, _, tables in (part.strip().partition(": ") for part in row.split(";"))
        for table in tables.split(", ")
    }


def scripts_of(text):
    """Verb and script of each row of Redis's docstring that has no modules."""
    rows = rows_of(text).items()
    return {(verb, name) for verb, row in rows if ": " not in row for name in row.split(", ")}


def compare(seen, listed):
    unlisted = sorted(row for row in seen - listed if (ANY, *row[1:]) not in listed)
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

    def redis(self, make):
        """Wraps the ``make`` of a connection to Redis, for all that its clients are to do."""

        def making(timeout):
            client = make(timeout)
            pipeline = client.pipeline
            client.execute_command = self._noting(client.execute_command)
            client.pipeline = lambda **options: noting_pipe(pipeline(**options))
            return client

        def noting_pipe(pipe):
            pipe.execute_command = self._noting(pipe.execute_command)
            return pipe

        return making

    def _noting(self, execute):
        def executing(command, *args, **options):
            frames = list(_frames())
            if verb := _verb(frames, REDIS):
                self._note(verb, frames[0][0], command.upper(), args)
            return execute(command, *args, **options)

        return executing

    def _note(self, verb, file, command, args):
        if command == "EVALSHA" and NAMES[args[0]] in CHANGE:
            self.seen.add((verb, NAMES[args[0]]))
        elif COMMAND.fullmatch(command):
            name = file.removesuffix(".py").removeprefix("backends/redis/").replace("/", ".")
            self.seen.add((verb, name, command))


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
    frames = list(frames)
    names = [name for where, name in frames if where == file and name[0] not in "_<"]
    if not names and frames and frames[-1][1] in GENERATORS:
        return frames[-1][1]
    return names[-1] if names else ""
