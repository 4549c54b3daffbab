"""Tasks among the handlers: one namespace with ``@job``, one allow-list.

A task gets into the registry when it is made, or when it is first enqueued. In a worker a
key that a verified message names may still be unknown: then, and only then, the module of
its path is imported, if it belongs to this site.
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
from django_jobs.telemetry.events import emit
from django_jobs.telemetry.trouble_events import TaskModuleFailed

if TYPE_CHECKING:
    from django_jobs.handlers.base import Handler


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

    Only for keys out of verified messages, only modules of installed apps or of
    TASK_MODULES, and only what is a Task there.
    """
    module, _, name = key.rpartition(".")
    if not is_of_this_site(module):
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
    return module not in sys.modules and is_of_this_site(module)


def is_of_this_site(module: str) -> bool:
    """Whether a module belongs to an installed app or to TASK_MODULES."""
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    allowed = [config.name for config in apps.get_app_configs()]
    allowed += get_settings().task_modules
    return any(module == name or module.startswith(f"{name}.") for name in allowed)
