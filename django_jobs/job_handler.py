"""``JobHandler``: a handler as a class, with a typed payload."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Unpack

from asgiref.sync import sync_to_async

from django_jobs.enqueue import Plan, PreparedJob
from django_jobs.exceptions import InvalidJob
from django_jobs.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from django_jobs.handle import Handle
    from django_jobs.handlers.classes import ClassHandler, TypedContext
    from django_jobs.job_options import JobOptions

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HandlerJob(Generic[P, R]):
    """Jobs of a handler class with certain options."""

    handler: ClassHandler
    plan: Plan

    def using(self, **options: Unpack[JobOptions]) -> HandlerJob[P, R]:
        """The same with other options; raises InvalidOption."""
        return HandlerJob(self.handler, Plan(self.plan.handler, self.plan.options.using(**options)))

    def prepare(self, payload: P) -> PreparedJob[R]:
        """A job with its id fixed, to be enqueued later, or again; raises InvalidPayload."""
        return PreparedJob(new_id(), self.plan, self.handler.encode(payload))

    def enqueue(self, payload: P) -> Handle[R]:
        """Enqueue a job. Inside a transaction on the jobs' database it belongs to it."""
        return self.prepare(payload).enqueue()

    async def aenqueue(self, payload: P) -> Handle[R]:
        """``enqueue`` for coroutines."""
        return await sync_to_async(self.prepare(payload).enqueue)()


class JobHandler(Generic[P, R]):
    """Base of handler classes: ``class SendMail(JobHandler[Mail, None])`` under ``@job``.

    The first type is that of the payload, mostly a dataclass; the second is what ``handle``
    returns. ``before(context)`` and ``after(context, error)`` may be defined beside it.
    """

    payload_type: ClassVar[Any]
    _jobs: ClassVar[HandlerJob[Any, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if typing.get_origin(base) is JobHandler:
                cls.payload_type = typing.get_args(base)[0]

    def handle(self, context: TypedContext[P]) -> R | Awaitable[R]:
        """Run one attempt. May be a coroutine."""
        raise NotImplementedError(f"{type(self).__qualname__} has no handle(context)")

    @classmethod
    def using(cls, **options: Unpack[JobOptions]) -> HandlerJob[P, R]:
        """Jobs of this handler with other options; raises InvalidOption."""
        return cls._registered().using(**options)

    @classmethod
    def prepare(cls, payload: P) -> PreparedJob[R]:
        """A job with its id fixed, to be enqueued later, or again; raises InvalidPayload."""
        return cls._registered().prepare(payload)

    @classmethod
    def enqueue(cls, payload: P) -> Handle[R]:
        """Enqueue a job. Inside a transaction on the jobs' database it belongs to it."""
        return cls._registered().enqueue(payload)

    @classmethod
    async def aenqueue(cls, payload: P) -> Handle[R]:
        """``enqueue`` for coroutines."""
        return await cls._registered().aenqueue(payload)

    @classmethod
    def registered_as(cls, handler: ClassHandler) -> None:
        """Remember the handler, the first one where there are several."""
        if not hasattr(cls, "payload_type"):
            raise InvalidJob(
                f"{cls.__qualname__} does not say what it takes; derive it from "
                "JobHandler[Payload, Result]"
            )
        if "_jobs" not in cls.__dict__:
            cls._jobs = HandlerJob(handler, Plan(handler.key, handler.options))

    @classmethod
    def _registered(cls) -> HandlerJob[P, R]:
        jobs: HandlerJob[P, R] | None = cls.__dict__.get("_jobs")
        if jobs is None:
            raise InvalidJob(f"{cls.__qualname__} is no handler yet; write @job before its class")
        return jobs
