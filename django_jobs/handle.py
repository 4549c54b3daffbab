"""The handle that an enqueue returns: the job's id, its status and its result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from asgiref.sync import sync_to_async

from django_jobs import outbox
from django_jobs.backends.base import Inspects, lacking
from django_jobs.backends.registry import backends
from django_jobs.backends.values import why_not_kept
from django_jobs.db.transactions import naming_missing_tables
from django_jobs.exceptions import JobFailed, ResultNotKept, ResultUnavailable

if TYPE_CHECKING:
    from django_jobs.backends.base import Ended

T_co = TypeVar("T_co", covariant=True)

UNKNOWN = "unknown"
_SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class Handle(Generic[T_co]):
    """A job that was enqueued. ``created`` is False if it existed already."""

    id: str
    backend: str
    created: bool = True

    @property
    def status(self) -> str:
        """The current status of the job, read each time.

        ``scheduled``, ``ready`` or ``running``; ``succeeded``, ``skipped``, ``cancelled``
        or ``dead``; ``unknown`` if it never existed, or its result is no longer kept.
        """
        # A job may end between the first two queries, so the result is looked up once more.
        with naming_missing_tables(self.backend):
            for look in (self._ended_status, self._live_status, self._ended_status):
                if status := look():
                    return status
        return UNKNOWN

    def result(self) -> T_co:
        """What the handler returned.

        Raises ResultUnavailable while the job has not ended or when its result is not
        kept, ResultNotKept when it succeeded and its return value could not be kept, and
        JobFailed when it ended in any other way than by success.
        """
        with naming_missing_tables(self.backend):
            ended = self._ended()
        if ended is None:
            raise ResultUnavailable(
                f"the job {self.id} is {self.status}; its result can be had from its end "
                "until its result_ttl is over"
            )
        if ended.status != _SUCCEEDED:
            raise JobFailed(self.id, ended)
        if why := why_not_kept(ended.value_json):
            raise ResultNotKept(self.id, why)
        return cast("T_co", json.loads(ended.value_json))

    @property
    def reason(self) -> str:
        """Why the job is cancelled, skipped or dead, read each time; empty otherwise.

        For a job that its handler cancelled, the argument of ``Cancel``. For a dead job a stable
        word; its error is in the dead letter, and in the exception of ``result()``.
        """
        with naming_missing_tables(self.backend):
            ended = self._ended()
        return ended.reason if ended else ""

    async def areason(self) -> str:
        """``reason`` for coroutines."""
        return await sync_to_async(lambda: self.reason)()

    async def astatus(self) -> str:
        """``status`` for coroutines."""
        return await sync_to_async(lambda: self.status)()

    async def aresult(self) -> T_co:
        """``result`` for coroutines."""
        return await sync_to_async(self.result)()

    def _ended(self) -> Ended | None:
        backend = backends[self.backend]
        if not isinstance(backend, Inspects):
            raise lacking(backend, "keep results", self.id)
        ended = backend.result(self.id)
        return outbox.ended(self.backend, self.id) if ended is None else ended

    def _ended_status(self) -> str | None:
        ended = self._ended()
        return ended.status if ended else None

    def _live_status(self) -> str | None:
        # In this order, because the job moves from the outbox to the backend.
        if (state := outbox.state(self.backend, self.id)) is not None:
            return state
        backend = backends[self.backend]
        if not isinstance(backend, Inspects):
            raise lacking(backend, "peek", self.id)
        live = backend.find(self.id)
        return live.state if live else None
