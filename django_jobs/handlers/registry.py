"""The registry of handlers by key. Only what is registered can run.

Entries come from imported code (``@job``) and from the setting ``HANDLERS``, never from a message.
"""

from __future__ import annotations

import difflib
from copy import copy
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from django_jobs.definition import Options
from django_jobs.exceptions import ConfigurationError, HandlerRefused, UnknownHandler
from django_jobs.handlers.base import Handler
from django_jobs.handlers.classes import ClassHandler, class_handler
from django_jobs.handlers.function import FunctionHandler, refuse_generator, refuse_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping


BUILT_IN = {
    "command": "django_jobs.handlers.command.CommandHandler",
    "shell": "django_jobs.handlers.shell.handler.ShellHandler",
    "event": "django_jobs.handlers.event.EventHandler",
    "url": "django_jobs.handlers.url.handler.UrlHandler",
}
"""Dotted paths, because most processes only enqueue and never need the handlers."""
BUILT_IN_KEYS = frozenset(BUILT_IN)
"""Far-reaching handlers: they run only on queues whose HANDLERS name them."""
OWN_JOBS = {"django_jobs.carry_on": "django_jobs.jobs.carry_on"}
"""The package's own jobs."""


class Registry:
    """The handlers of this process."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._paths: dict[str, str] = {}
        # Finds the handler of a key that is not registered yet. Set when the app is ready.
        self.finder: Callable[[str], Handler | None] | None = None
        # Whether the finder would look for a key; imports nothing.
        self.may_find: Callable[[str], bool] = lambda _key: False

    def register(self, handler: Handler) -> None:
        """Add a handler. Another one of the same key is an error, the same code again is not."""
        if not isinstance(handler, Handler):
            raise ConfigurationError(
                f"{handler!r} is not a Handler; make it a subclass of "
                "django_jobs.handlers.base.Handler"
            )
        key = handler.key
        if key in self._handlers:
            is_same = _same(self._handlers[key], handler)
        else:
            is_same = key not in self._paths or _is_at(handler, self._paths[key])
        if not is_same:
            raise _second(key)
        self._handlers[key] = handler

    def register_path(self, key: str, path: str) -> None:
        """Add a handler that is imported on first use.

        The path names a handler class or a job in the module that defines it.
        """
        if key in self._handlers and not _is_at(self._handlers[key], path):
            raise _second(key)
        self._paths[key] = path

    def get(self, key: str) -> Handler | None:
        handler = self._handlers.get(key)
        if handler is None and key in self._paths:
            return self._load(key)
        return handler

    def load(self) -> None:
        """Import all handlers; a worker does so before it forks."""
        for key in self._paths:
            self.get(key)

    def loaded(self) -> list[Handler]:
        """The handlers imported so far; those of the site's own apps always are."""
        return list(self._handlers.values())

    def _load(self, key: str) -> Handler:
        target = import_string(self._paths[key])
        handler: Handler = target() if isinstance(target, type) else target.handler
        return self._handlers.setdefault(key, handler)  # another thread may have loaded it

    def get_verified(self, key: str) -> Handler | None:
        """The handler for the key of a verified message; the finder may import it."""
        handler = self.get(key)
        if handler is None and self.finder is not None:
            return self.finder(key)
        return handler

    def find(self, key: str) -> Handler:
        """The handler of a key; raises UnknownHandler naming the nearest one."""
        handler = self.get(key)
        if handler is None:
            near = difflib.get_close_matches(key, list(self), n=1)
            nearest = near[0] if near else ""
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            raise UnknownHandler(
                f"no handler is registered as {key!r}{hint} (handlers are found in the "
                "modules jobs.py and tasks.py of installed apps)",
                nearest=nearest,
            )
        return handler

    def options_of(self, key: str) -> Options:
        """The options declared with a handler, or the defaults."""
        handler = self.get(key)
        declared = None if handler is None else handler.options
        return declared if isinstance(declared, Options) else Options()

    def __contains__(self, key: object) -> bool:
        return key in self._handlers or key in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter({**self._handlers, **self._paths})

    def __len__(self) -> int:
        return len(self._handlers.keys() | self._paths.keys())


def check_allowed(key: str, queue: str, allowed: Collection[str] | None) -> None:
    """Raise HandlerRefused unless a queue with this HANDLERS list may run the key."""
    if allowed is None:
        if key not in BUILT_IN_KEYS:
            return
        raise HandlerRefused(
            f"the handler {key!r} runs only on queues that name it; "
            f"add it to QUEUES[{queue!r}]['HANDLERS']"
        )
    if key not in allowed:
        listed = ", ".join(sorted(allowed)) or "none at all"
        raise HandlerRefused(
            f"the queue {queue!r} does not allow the handler {key!r} (it allows {listed}); "
            f"add it to QUEUES[{queue!r}]['HANDLERS']"
        )


def _second(key: str) -> ConfigurationError:
    return ConfigurationError(
        f"two handlers are registered under the key {key!r}; give one of them another with key="
    )


def _is_at(handler: Handler, path: str) -> bool:
    """Whether a handler is defined at a dotted path."""
    written = handler.function if isinstance(handler, FunctionHandler) else type(handler)
    return f"{written.__module__}.{written.__qualname__}" == path


def _same(handler: Handler, other: Handler) -> bool:
    """Whether two handlers run the same code, as after a reload of its module."""
    first, second = handler.code, other.code
    return first is second or (_origin(first) is not None and _origin(first) == _origin(second))


def _origin(function: Any) -> tuple[str, str, int] | None:
    """Where a function is defined; the line distinguishes lambdas of one module."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    name = function.__qualname__
    return (function.__module__, name, code.co_firstlineno if "<" in name else 0)


registry = Registry()


def register_built_in(registry: Registry) -> None:
    """Register the package's own handlers; their allow lists are read for each job."""
    for key, path in {**BUILT_IN, **OWN_JOBS}.items():
        registry.register_path(key, path)


def register_configured(handlers: Mapping[str, str], registry: Registry) -> None:
    """Register ``HANDLERS`` of the settings; raises ConfigurationError for one that cannot run.

    Each path names a ``@job`` function, a plain function, a Handler, or another class with
    ``handle(context)`` that can be made without arguments.
    """
    for key, path in handlers.items():
        registry.register(_handler(key, path))


def _named(key: str, handler_or_class: Handler | type[Handler]) -> Handler:
    """A handler under a key of the settings. A copy, because another key may name it too."""
    handler = handler_or_class() if isinstance(handler_or_class, type) else copy(handler_or_class)
    handler.key = key
    refuse_generator(key, handler.handle)
    refuse_hooks(key, before=handler.before, after=handler.after)
    return handler


def _handler(key: str, path: str) -> Handler:
    try:
        target = import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            f"HANDLERS[{key!r}] is {path!r}, which cannot be imported: {error}"
        ) from error
    declared = getattr(target, "handler", None)
    if isinstance(declared, FunctionHandler):
        return FunctionHandler(key, declared.function, takes_context=declared.takes_context)
    if isinstance(target, Handler) or (isinstance(target, type) and issubclass(target, Handler)):
        return _named(key, target)
    if isinstance(target, type):
        if callable(getattr(target, "handle", None)):
            return class_handler(key, target)
    elif callable(getattr(target, "handle", None)):
        return ClassHandler(key, target)
    elif callable(target):
        return FunctionHandler(key, target, takes_context=False)
    raise ConfigurationError(
        f"HANDLERS[{key!r}] is {path!r}, which is neither a function nor has handle(context)"
    )
