"""Handlers named in settings: ``HANDLERS = {"key": "dotted.path"}``.

The path leads to a ``@job`` function, a plain function, or a class with
``handle(context)`` that takes no arguments to make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from django_jobs.exceptions import ConfigurationError
from django_jobs.handlers.function import FunctionHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_jobs.handlers.base import Handler, JobContext
    from django_jobs.handlers.registry import Registry


class ObjectHandler:
    """An object with ``handle(context)`` as a handler; its other methods are optional."""

    def __init__(self, key: str, target: Any) -> None:
        self.key = key
        self.target = target
        for name in ("retry_on", "discard_on"):
            setattr(self, name, tuple(getattr(target, name, ())))
        self.before = getattr(target, "before", None)
        self.after = getattr(target, "after", None)

    def validate(self, payload: Any) -> None:
        check = getattr(self.target, "validate", None)
        if check is not None:
            check(payload)

    def handle(self, context: JobContext) -> Any:
        return self.target.handle(context)


def register_configured(handlers: Mapping[str, str], registry: Registry) -> None:
    """Register what settings name; raises ConfigurationError for what cannot run."""
    for key, path in handlers.items():
        registry.register(_handler(key, path))


def _handler(key: str, path: str) -> Handler:
    try:
        found = import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            f"HANDLERS[{key!r}] is {path!r}, which cannot be imported: {error}"
        ) from error
    known = getattr(found, "handler", None)
    if isinstance(known, FunctionHandler):
        return FunctionHandler(key, known.function, takes_context=known.takes_context)
    target = found() if isinstance(found, type) else found
    if callable(getattr(target, "handle", None)):
        return ObjectHandler(key, target)
    if callable(target):
        return FunctionHandler(key, target, takes_context=False)
    raise ConfigurationError(
        f"HANDLERS[{key!r}] is {path!r}, which is neither a function nor has handle(context)"
    )
