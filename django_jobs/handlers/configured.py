"""Handlers named in settings: ``HANDLERS = {"key": "dotted.path"}``.

The path leads to a ``@job`` function, a plain function, or a class with
``handle(context)`` that takes no arguments to make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.module_loading import import_string

from django_jobs.exceptions import ConfigurationError
from django_jobs.handlers.classes import ClassHandler, class_handler
from django_jobs.handlers.function import FunctionHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_jobs.handlers.base import Handler
    from django_jobs.handlers.registry import Registry


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
    if isinstance(found, type):
        if callable(getattr(found, "handle", None)):
            return class_handler(key, found)
    elif callable(getattr(found, "handle", None)):
        return ClassHandler(key, found)
    elif callable(found):
        return FunctionHandler(key, found, takes_context=False)
    raise ConfigurationError(
        f"HANDLERS[{key!r}] is {path!r}, which is neither a function nor has handle(context)"
    )
