"""State of the process that is restored after each run.

Only state that would hurt the next run, can be restored, and can be compared in a fraction of a
microsecond: this happens after every job. Other changes that a handler makes stay.
"""

from __future__ import annotations

import locale
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

from django_jobs.execution.timeout import handler_of

# The C functions below the public ones, which convert arguments and results to enums.
_set_mask: Any = getattr(sys.modules.get("_signal"), "pthread_sigmask", None)
_locale_now: Any = partial(getattr(locale, "_setlocale", locale.setlocale), locale.LC_ALL)
# Signals that we or Python handle; with a foreign handler they would break the next job.
_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGINT", "SIGPIPE", "SIGTERM")
    if hasattr(signal, name)
)

_SETMASK = int(getattr(signal, "SIG_SETMASK", 0))


class ProcessState:
    """The present state of the process, to be restored between jobs in its main thread."""

    def __init__(self) -> None:
        self._folder = _folder()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environ = os.environ
        self._variables = dict(os.environ)
        self._raw = dict(_raw(self._environ))
        self._socket_timeout = socket.getdefaulttimeout()
        self._locale = _locale_now()
        self._handlers = [*map(handler_of, _SIGNALS)]
        self._mask = tuple(_set_mask(signal.SIG_BLOCK, ())) if _set_mask else ()

    def restore(self) -> None:
        """Undo what a job has changed. No other job may run meanwhile."""
        if _folder() != self._folder:
            with suppress(OSError):  # it may be gone
                os.chdir(self._folder)
        os.umask(self._umask)
        if os.environ is not self._environ or _raw(self._environ) != self._raw:
            self._restore_variables()
        if socket.getdefaulttimeout() != self._socket_timeout:
            socket.setdefaulttimeout(self._socket_timeout)
        if _locale_now() != self._locale:
            with suppress(locale.Error):  # it was removed from the system
                locale.setlocale(locale.LC_ALL, self._locale)
        if [*map(handler_of, _SIGNALS)] != self._handlers:
            for number, handler in zip(_SIGNALS, self._handlers, strict=True):
                _restore_signal(number, handler)
        if _set_mask:
            _set_mask(_SETMASK, self._mask)

    def restore_mask(self) -> None:
        """Restore the signal mask of this thread."""
        if _set_mask:
            _set_mask(_SETMASK, self._mask)

    def _restore_variables(self) -> None:
        """Through ``os.environ``, which also changes what C code and other programs see."""
        os.environ = self._environ  # noqa: B003 - where it was replaced, it was not cleared
        kept = self._variables
        zone = os.environ.get("TZ")
        for name in [name for name in os.environ if name not in kept]:
            del os.environ[name]
        for name, value in kept.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        if os.environ.get("TZ") != zone:
            time.tzset()


def _raw(environ: Any) -> Any:
    """The dict below an environment: decoding it each time would cost more than all the rest."""
    return environ._data  # noqa: SLF001 - as said


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a Path costs more than all else here
    except OSError:  # it was removed
        return ""


def _restore_signal(number: int, handler: Any) -> None:
    in_main = threading.current_thread() is threading.main_thread()
    # None: the handler was not set by Python.
    if handler is None or handler == handler_of(number) or not in_main:
        return
    if number == getattr(signal, "SIGALRM", None):
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(number, handler)
