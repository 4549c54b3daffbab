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

from django_jobs.execution.connections import tidy
from django_jobs.execution.timeout import JobTimeout

_any_beside = False
_any_raised = False
# One item for each coroutine, on whatever loop: to append and to pop needs no lock.
_inside: list[None] = []


async def within(value: Any, seconds: float | None) -> Any:
    """What a coroutine returns; JobTimeout when it takes too long; None sets no limit."""
    global _any_raised  # noqa: PLW0603 - a fact about the process
    limit = asyncio.timeout(seconds)
    closed = False
    _inside.append(None)
    try:
        async with limit:
            return await value
    except BaseException as error:
        _any_raised = True
        closed = isinstance(error, GeneratorExit)
        if isinstance(error, TimeoutError) and seconds is not None and limit.expired():
            raise JobTimeout(seconds) from None
        raise
    finally:
        _inside.pop()
        if not closed:  # thrown away in the middle: nothing can be awaited any more
            await _clean_beside()


def _note_thread(**_facts: Any) -> None:
    global _any_beside  # noqa: PLW0603 - a fact about the process
    _any_beside = _any_beside or threading.current_thread() is not threading.main_thread()


connection_created.connect(_note_thread, dispatch_uid="django_jobs.coroutines")


async def _clean_beside() -> None:
    """Let the next coroutine find sound connections and no transaction in them.

    Nothing is cut off: that thread does one thing at a time, and between two things of
    another coroutine there is no transaction that could be open rightly. But what that one
    reads from may be open, so that sound connections are only closed while nothing runs.
    """
    global _any_raised  # noqa: PLW0603 - a fact about the process
    closes = _any_raised and not _inside
    if closes:
        _any_raised = False
    if _any_beside:
        # Refused from that very thread: then its connections are those of the run's caller.
        with suppress(RuntimeError):
            await sync_to_async(_tidy_all)(closes=closes)


def _tidy_all(*, closes: bool) -> None:
    for connection in connections.all(initialized_only=True):
        tidy(connection, closes=closes)
