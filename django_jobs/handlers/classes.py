"""Classes with ``handle(context)`` as handlers: made once, without arguments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django_jobs.definition import Options
from django_jobs.handlers.base import Conduct, Handler, JobContext
from django_jobs.handlers.function import refuse_generator, refuse_hooks
from django_jobs.lazy import LazyFunction

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.handlers.payload_types import Payload

P = TypeVar("P")

_payload_of = LazyFunction("django_jobs.handlers.payload_types.Payload")
"""Imported late: few sites have handlers with a typed payload."""


@dataclasses.dataclass(slots=True, kw_only=True)
class TypedContext(JobContext, Generic[P]):
    """What a handler with a typed payload sees of its job."""

    payload: P


class ClassHandler(Handler):
    """An object with ``handle(context)`` as a handler; its other methods are optional.

    With a typed payload the hooks get the same context as ``handle``.
    """

    def __init__(
        self,
        key: str,
        target: Any,
        *,
        payload: Payload | None = None,
        conduct: Conduct | None = None,
        options: Options | None = None,
    ) -> None:
        refuse_generator(key, target.handle)
        self.key = key
        self.target = target
        self.is_coroutine = inspect.iscoroutinefunction(target.handle)
        self.options = options or Options()
        conduct = conduct or Conduct()
        self.retry_on = conduct.retry_on or tuple(getattr(target, "retry_on", ()))
        self.discard_on = conduct.discard_on or tuple(getattr(target, "discard_on", ()))
        before = conduct.before or getattr(target, "before", None)
        after = conduct.after or getattr(target, "after", None)
        refuse_hooks(key, before=before, after=after)
        self.before, self.after = self._typed(before, payload), self._typed(after, payload)
        self.retry = conduct.retry
        self._payload = payload
        self._handle = self._typed(target.handle, payload)

    @property
    def code(self) -> Any:
        """Where it is defined: the same code may be registered again after a reload."""
        return getattr(self.target.handle, "__func__", self.target.handle)

    def validate(self, payload: Any) -> None:
        self.encode(payload)

    def encode(self, payload: Any) -> Any:
        """The payload as it travels; raises InvalidPayload."""
        if self._payload is not None:
            return self._payload.written(payload)
        check = getattr(self.target, "validate", None)
        if check is not None:
            check(payload)
        return payload

    def admit(self, payload: Any) -> None:
        if self._payload is not None:
            self._payload.check(payload)

    def handle(self, context: JobContext) -> Any:
        return self._handle(context)

    @staticmethod
    def _typed(method: Callable[..., Any] | None, payload: Payload | None) -> Any:
        if method is None or payload is None:
            return method

        @functools.wraps(method)
        def with_typed_context(context: JobContext, *rest: Any) -> Any:
            return method(_typed_context(context, payload), *rest)

        return with_typed_context


def class_handler(
    key: str, made: type[Any], conduct: Conduct | None = None, options: Options | None = None
) -> ClassHandler:
    """The handler of a class; with typed payloads if it has a ``payload_type``."""
    payload = _payload_of(key, made.payload_type) if hasattr(made, "payload_type") else None
    handler = ClassHandler(key, made(), payload=payload, conduct=conduct, options=options)
    registered_as = getattr(made, "registered_as", None)
    if registered_as is not None:
        registered_as(handler)
    return handler


def _typed_context(context: JobContext, payload: Payload) -> TypedContext[Any]:
    fields = {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
    return TypedContext(**{**fields, "payload": payload.read(context.payload)})
