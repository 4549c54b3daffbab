"""``jobs_work --reload``: a process that watches the code, and the worker below it.

The worker cannot watch itself: it forks its children before it starts a thread, and needs its
main thread for signals. So the command runs a second copy of itself, and restarts that copy when
a file changes. Django's reloader finds the files; its reaction to a change, ending this process,
is replaced.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from django.apps import apps
from django.utils import autoreload

from django_jobs.worker.pool.forkserver import die_with_parent
from django_jobs.worker.stop import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

WATCHED_BY = "DJANGO_JOBS_WATCHED_BY"
JOBS_MAY_RUN_ON = 5.0
INTERRUPTED_MAY_TAKE = 10.0
USAGE = 2
LIBRARIES = {"site-packages", "dist-packages"}
_BY_SIGNAL = 128


def is_watched() -> bool:
    """Whether this process runs below a watching one; if so, it stops when that one dies."""
    watcher = os.environ.pop(WATCHED_BY, "")
    if watcher:
        die_with_parent(int(watcher), signal.SIGTERM)
    return bool(watcher)


class FileWatcher:
    """Runs the worker, and restarts it when a file has changed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._changed: list[Path] = []
        self._stopped = False
        self._reloader = autoreload.get_reloader()
        setattr(self._reloader, "notify_file_changed", self._changed.append)  # noqa: B010 - replaces a method of this one object
        autoreload.autoreload_started.send(sender=self._reloader)
        for path in _own_code():
            self._reloader.watch_dir(path, "**/*.py")

    def run(self) -> int:
        """Run until a signal stops it, or the worker ends by itself; returns the exit code."""
        self._worker = self._start_worker()
        with self._passing_signals_on():
            restarted = reported = False
            for _ in self._reloader.tick():  # each step takes about a second
                code = self._worker.poll()
                if self._stopped:
                    break
                if self._changed:
                    self._say(f"{self._changed[-1]} has changed: the worker starts anew")
                    self._end_worker()
                    self._changed.clear()  # the new worker reads what changed in the meantime
                    self._worker = self._start_worker()
                    restarted, reported = True, False
                elif code == 0 or (code == USAGE and not restarted):
                    break
                elif code is not None and not reported:
                    self._say(f"the worker ended with exit code {code}; waiting for a change")
                    reported = True
            if reported and self._stopped:
                return 0
            code = self._worker.wait()
        return _BY_SIGNAL - code if code < 0 else code

    def _start_worker(self) -> subprocess.Popen[bytes]:
        sys.stdout.flush()
        environment = {**os.environ, WATCHED_BY: str(os.getpid())}
        return subprocess.Popen(autoreload.get_child_arguments(), env=environment)  # noqa: S603 - our own command line

    def _end_worker(self) -> None:
        """Stop the worker: let its jobs end, then interrupt them, which counts no attempt."""
        for timeout in (JOBS_MAY_RUN_ON, INTERRUPTED_MAY_TAKE):
            self._worker.send_signal(signal.SIGTERM)
            try:
                self._worker.wait(timeout)
            except subprocess.TimeoutExpired:
                continue
            return
        self._worker.kill()
        self._worker.wait()

    @contextmanager
    def _passing_signals_on(self) -> Iterator[None]:
        previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stopped = True
        if not (number == signal.SIGINT and _is_in_foreground()):
            self._worker.send_signal(number)


def _own_code() -> set[str]:
    """The directories of apps that are not installed libraries, with all their later imports."""
    paths = {config.path for config in apps.get_app_configs()}
    return {path for path in paths if not LIBRARIES & set(Path(path).parts)}


def _is_in_foreground() -> bool:
    """Whether the terminal sends Ctrl-C to the worker as well, as part of the foreground group."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
