"""Tasks as handlers: they share the registry and the allow-list of ``@job``.

A task is registered when it is made, or when it is first enqueued. A worker may get a verified
message with a key that is not registered yet: only then it imports the module of the key, and
only if this site keeps tasks in that module.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.apps import apps

from django_jobs.conf import get_settings
from django_jobs.decorators import checked_key
from django_jobs.handlers.registry import registry
from django_jobs.tasks.compat import Task
from django_jobs.tasks.handler import TaskHandler
from django_jobs.telemetry.events import TaskModuleFailed, emit

if TYPE_CHECKING:
    from django_jobs.handlers.base import Handler

DISCOVERED = ("jobs", "tasks")
"""The modules of an app that every process imports, and that may be packages."""


def key_of(task: Any) -> str:
    """The key of a task in messages; raises InvalidJob if it has no importable name."""
    return checked_key(task.func, getattr(task, "key", None))


def register(task: Any) -> TaskHandler | None:
    """Register a task's handler and return it; None if the function has a handler already."""
    key = key_of(task)
    existing = registry.get(key)
    if existing is not None and existing.code is task.func:
        return None
    handler = TaskHandler(key, task)
    registry.register(handler)
    return handler


def find(key: str) -> Handler | None:
    """Import the module of a key that is not registered yet; returns its handler, if any.

    Only for keys from verified messages, only modules for tasks, and only Task objects there.
    No other module is imported, because an import runs its code.
    """
    module, _, name = key.rpartition(".")
    if not is_for_tasks(module):
        return None
    try:
        candidate = getattr(import_module(module), name, None)
    except Exception as error:  # noqa: BLE001 - an import runs code that may raise anything
        emit(TaskModuleFailed(named=module, error=error))
        return None
    if isinstance(candidate, Task) and key_of(candidate) == key:
        register(candidate)
    return registry.get(key)


def may_find(key: str) -> bool:
    """Whether ``find`` would import a module: one that is imported has registered its tasks."""
    module = key.rpartition(".")[0]
    return module not in sys.modules and is_for_tasks(module)


def is_for_tasks(module: str) -> bool:
    """Whether a module is within ``tasks`` or ``jobs`` of an installed app, or TASK_MODULES."""
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    allowed = [f"{app.name}.{name}" for app in apps.get_app_configs() for name in DISCOVERED]
    allowed += get_settings().task_modules
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def why_not_found(handler: Handler) -> str | None:
    """Why a worker would not find a task of this process, as far as it can tell; or None.

    A module that was imported before the apps were ready is also imported in workers.
    """
    if not isinstance(handler, TaskHandler) or handler.known_from_start:
        return None
    module, _, name = handler.key.rpartition(".")
    if module != handler.function.__module__ or is_for_tasks(module):
        return None
    return (
        f"workers would not find the task {handler.key}: they import the modules tasks and jobs "
        f"of installed apps, and what TASK_MODULES names. Add {module!r} to "
        f"DJANGO_JOBS['TASK_MODULES'], or move {name} to one of those modules"
    )
