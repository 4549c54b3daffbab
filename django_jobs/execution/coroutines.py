"""Await a handler's coroutine within its time limit, and clean the connections it used.

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

from django_jobs.execution.connections import clean_up
from django_jobs.handlers.base import JobTimeout

_any_beside = False
_any_raised = False
# One item for each coroutine, on any loop: append and pop need no lock.
_inside: list[None] = []


async def within(value: Any, seconds: float | None) -> Any:
    """Return the coroutine's value; raises JobTimeout after ``seconds``; None sets no limit."""
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
        if not closed:  # closed in the middle: nothing can be awaited any more
            await _clean_beside()


def _note_thread(**_facts: Any) -> None:
    global _any_beside  # noqa: PLW0603 - a fact about the process
    _any_beside = _any_beside or threading.current_thread() is not threading.main_thread()


connection_created.connect(_note_thread, dispatch_uid="django_jobs.coroutines")


async def _clean_beside() -> None:
    """Clean the connections of the ORM's thread for the next coroutine.

    This interrupts nothing: that thread does one thing at a time, and no transaction may
    stay open between two calls of another coroutine. But a cursor of that coroutine may be open,
    so sound connections are closed only while no coroutine runs.
    """
    global _any_raised  # noqa: PLW0603 - a fact about the process
    closes = _any_raised and not _inside
    if closes:
        _any_raised = False
    if _any_beside:
        # Refused in that thread itself: then its connections are those of the run's caller.
        with suppress(RuntimeError):
            await sync_to_async(_clean_up_all)(closes=closes)


def _clean_up_all(*, closes: bool) -> None:
    for connection in connections.all(initialized_only=True):
        clean_up(connection, closes=closes)
