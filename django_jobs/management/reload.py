"""``jobs_work --reload``: a process that watches the code, and the worker below it.

The worker cannot watch itself: its children are forked before it has a thread, and it
needs its main thread for signals. So the command starts itself once more, and starts that
anew when a file changes. Which files there are, Django's own reloader knows; what it would
do about a change, end this process, is not wanted here.
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
    """Whether this process is the worker below a watching one; it then stops when that dies."""
    watcher = os.environ.pop(WATCHED_BY, "")
    if watcher:
        die_with_parent(int(watcher), signal.SIGTERM)
    return bool(watcher)


class Watcher:
    """Runs the worker, and runs it anew when a file has changed."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._changed: list[Path] = []
        self._stopped = False
        self._reloader = autoreload.get_reloader()
        setattr(self._reloader, "notify_file_changed", self._changed.append)  # noqa: B010 - a method of Django's, replaced in this one object
        autoreload.autoreload_started.send(sender=self._reloader)
        for path in _own_code():
            self._reloader.watch_dir(path, "**/*.py")

    def run(self) -> int:
        """Until it is told to stop, or the worker ends well by itself; the exit code."""
        self._worker = self._started()
        with self._passing_signals_on():
            anew = told = False
            for _ in self._reloader.tick():  # each look takes about a second
                code = self._worker.poll()
                if self._stopped:
                    break
                if self._changed:
                    self._tell(f"{self._changed[-1]} has changed: the worker starts anew")
                    self._end_worker()
                    self._changed.clear()  # what changed meanwhile is read now
                    self._worker = self._started()
                    anew, told = True, False
                elif code == 0 or (code == USAGE and not anew):
                    break
                elif code is not None and not told:
                    self._tell(f"the worker ended with exit code {code}; waiting for a change")
                    told = True
            if told and self._stopped:
                return 0
            code = self._worker.wait()
        return _BY_SIGNAL - code if code < 0 else code

    def _started(self) -> subprocess.Popen[bytes]:
        sys.stdout.flush()
        environment = {**os.environ, WATCHED_BY: str(os.getpid())}
        return subprocess.Popen(autoreload.get_child_arguments(), env=environment)  # noqa: S603 - our own command line

    def _end_worker(self) -> None:
        """Let its jobs end; interrupt those that take long, which charges them nothing."""
        for patience in (JOBS_MAY_RUN_ON, INTERRUPTED_MAY_TAKE):
            self._worker.send_signal(signal.SIGTERM)
            try:
                self._worker.wait(patience)
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
    """Where the apps are that are not installed libraries; also what they import later is there."""
    paths = {config.path for config in apps.get_app_configs()}
    return {path for path in paths if not LIBRARIES & set(Path(path).parts)}


def _is_in_foreground() -> bool:
    """Whether a Ctrl-C at the terminal comes to the worker as well, without our help."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
