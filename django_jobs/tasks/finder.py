"""Tasks among the handlers: one namespace with ``@job``, one allow-list.

A task gets into the registry when it is made, or when it is first enqueued. In a worker a
key that a verified message names may still be unknown: then, and only then, the module of
its path is imported, if it is one in which this site keeps its tasks.
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
    """What messages call a task; raises InvalidJob where it has no name to be found by."""
    return checked_key(task.func, getattr(task, "key", None))


def register(task: Any) -> TaskHandler | None:
    """Make a task a handler, unless its function is one already; the task's handler, if new."""
    key = key_of(task)
    known = registry.get(key)
    if known is not None and getattr(known, "function", None) is task.func:
        return None
    handler = TaskHandler(key, task)
    registry.register(handler)
    return handler


def find(key: str) -> Handler | None:
    """The handler of a key that nobody registered yet, after importing its module.

    Only for keys out of verified messages, only modules for tasks, and only what is a Task
    there. Any other module is not imported, for an import runs what it holds.
    """
    module, _, name = key.rpartition(".")
    if not is_for_tasks(module):
        return None
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:  # noqa: BLE001 - an import runs code that may raise anything
        emit(TaskModuleFailed(named=module, error=error))
        return None
    if isinstance(found, Task) and key_of(found) == key:
        register(found)
    return registry.get(key)


def may_find(key: str) -> bool:
    """Whether ``find`` would import a module; what is imported has registered its tasks."""
    module = key.rpartition(".")[0]
    return module not in sys.modules and is_for_tasks(module)


def is_for_tasks(module: str) -> bool:
    """Whether it is in the ``tasks`` or ``jobs`` of an installed app, or in one of TASK_MODULES."""
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    allowed = [f"{app.name}.{name}" for app in apps.get_app_configs() for name in DISCOVERED]
    allowed += get_settings().task_modules
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def why_not_found(handler: Handler) -> str | None:
    """Why a worker would not find a task that is known here, as far as this process can see.

    What was imported before the apps were ready, a worker has imported as well.
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
