"""One mutant at a time in a process of its own, against its tests, on one database."""

from __future__ import annotations

import importlib.machinery
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from django import conf
from django.apps import apps

AT_ONCE = int(os.environ.get("MUTANTS_AT_ONCE") or os.cpu_count() or 1)
CPU_SECONDS = 20
LIMIT = 300.0  # for what waits without computing
# Plugins by name: looking for them would take as long as running the tests.
PLUGINS = ["_hypothesis_pytestplugin", "pytest_django.plugin", "pytest_timeout"]
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-o", "timeout=30"]
OPTIONS += ["--hypothesis-profile=mutants"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
OPTIONS += [word for plugin in PLUGINS for word in ("-p", plugin)]
# Tables stay for the next mutant; on a server, making them takes longer than most tests.
ON_TABLES = ["--no-migrations", "--reuse-db"]


class Bench:
    """Runs mutants of one file on one database, so many at once, each with tables of its own.

    Without a database there is no site: what needs none is tested a second faster.
    """

    def __init__(self, file, tests, database):
        self._file = file
        self._tests = tests
        self._database = database
        # Places whose tables a mutant left as nobody knows, for it was killed.
        self._broken = set()

    def failure_without_mutant(self):
        """What the tests say when they fail with the file as it is."""
        with tempfile.NamedTemporaryFile() as output:
            _, status = os.waitpid(self._start(None, 0, output.name), 0)
            told = Path(output.name).read_text("utf-8")[-4000:]
            return (told or "they did not even begin") if status else ""

    def survivors(self, mutants):
        """The mutants that no test noticed."""
        waiting, running, survivors = list(reversed(mutants)), {}, []
        free = list(range(AT_ONCE))
        while waiting or running:
            while waiting and free:
                mutant, place = waiting.pop(), free.pop()
                pid = self._start(mutant, place)
                running[pid] = (mutant, place, time.monotonic() + LIMIT)
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                mutant, place, _ = running.pop(pid)
                free.append(place)
                code = os.waitstatus_to_exitcode(status)
                if code == 0:
                    survivors.append(mutant)
                elif code < 0:
                    self._broken.add(place)
                continue
            for slow, (_, _, end) in running.items():
                if time.monotonic() > end:
                    os.kill(slow, signal.SIGKILL)  # without an end is noticed, too
            time.sleep(0.01)
        return survivors

    def clear(self):
        """Remove the tables."""
        if self._database is not None:
            for place in range(AT_ONCE):
                os.waitpid(self._start(None, place, remove=True), 0)

    def _start(self, mutant, place, output=os.devnull, *, remove=False):
        """The pid of a process that runs the tests with a mutant in the file's place."""
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self._broken.discard(place)
            return pid
        try:
            self._run(mutant, place, output, remove=remove)
        finally:
            os._exit(70)

    def _run(self, mutant, place, output, *, remove):
        nowhere = os.open(output, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        if mutant is not None:
            put_in_place(mutant, self._file)
        import pytest  # noqa: PLC0415 - the parent has it already

        options = OPTIONS
        if self._database is not None:
            begin_a_site(self._database, f"mutant_{os.getppid()}_{place}")
            if remove or place in self._broken:
                remove_tables()
            options = [*OPTIONS, *ON_TABLES]
        os._exit(0 if remove else pytest.main([*options, *self._tests]))


def begin_a_site(database, suffix):
    """Let Django begin anew with the test project and its tables."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
    os.environ["DJANGO_JOBS_TEST_DB"] = database
    os.environ["DJANGO_JOBS_TEST_SUFFIX"] = suffix
    conf.settings._wrapped = conf.empty
    apps.loading = apps.apps_ready = apps.models_ready = apps.ready = False
    apps.ready_event.clear()


def remove_tables():
    from django.db import connections  # noqa: PLC0415 - reads the settings of the site

    for alias in connections:
        creation = connections[alias].creation
        name = creation._get_test_db_name()
        if connections[alias].vendor == "sqlite":
            for path in Path(name).parent.glob(f"{Path(name).name}*"):
                path.unlink()
        else:
            with creation._nodb_cursor() as cursor:
                cursor.execute(f"DROP DATABASE IF EXISTS {name}")


def put_in_place(mutant, file):
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, name):
        return mutant.code if self.path == str(file) else plain(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code
