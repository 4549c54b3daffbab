"""Await a handler's coroutine within its time, and care for the connections it used.

Django's asynchronous ORM works in a thread of its own, one for all coroutines of a
process, so its connections are not those of the thread that the loop runs in.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.signals import connection_created

from django_jobs.execution.hygiene import tidy
from django_jobs.execution.timeout import JobTimeout

_any_beside = False


async def within(value: Any, seconds: float | None) -> Any:
    """What a coroutine returns; JobTimeout when it takes too long; None sets no limit."""
    limit = asyncio.timeout(seconds)
    closed = False
    try:
        async with limit:
            return await value
    except TimeoutError:
        if seconds is not None and limit.expired():
            raise JobTimeout(seconds) from None
        raise
    except GeneratorExit:
        closed = True  # thrown away in the middle: nothing can be awaited any more
        raise
    finally:
        if not closed:
            await _clean_beside()


def _note_thread(**_facts: Any) -> None:
    global _any_beside  # noqa: PLW0603 - a fact about the process
    _any_beside = _any_beside or threading.current_thread() is not threading.main_thread()


connection_created.connect(_note_thread, dispatch_uid="django_jobs.coroutines")


async def _clean_beside() -> None:
    """Let the next coroutine find sound connections and no transaction in them.

    Nothing is cut off: that thread does one thing at a time, and between two things of
    another coroutine there is no transaction that could be open rightly.
    """
    if _any_beside:
        # Refused from that very thread: then its connections are those of the run's caller.
        with suppress(RuntimeError):
            await sync_to_async(_tidy_all)()


def _tidy_all() -> None:
    for connection in connections.all(initialized_only=True):
        tidy(connection)
