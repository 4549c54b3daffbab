"""Errors of tasks, as results tell them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from django_jobs.tasks.compat import TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTaskError(TaskError):  # type: ignore[misc]  # the stubs forget that it is frozen
    """A TaskError that also finds classes inside of classes, as ``Order.DoesNotExist`` is."""

    @property
    def exception_class(self) -> type[BaseException]:
        try:
            found: type[BaseException] = TaskError.exception_class.fget(self)  # type: ignore[attr-defined]  # a property
        except ImportError:
            nested = _nested(self.exception_class_path)
            if nested is None:
                raise
            return nested
        return found


def task_error(error_type: str, traceback: str) -> JobsTaskError:
    """An error as Tasks tell it; our texts leave the module of built-in exceptions away."""
    path = error_type if "." in error_type else f"builtins.{error_type}"
    return JobsTaskError(exception_class_path=path, traceback=traceback)


def _nested(path: str) -> type[BaseException] | None:
    """An exception class within a class of a module that is loaded by now, or None."""
    parts = path.split(".")
    for cut in range(len(parts) - 2, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:cut]))
        for name in parts[cut:]:
            found = getattr(found, name, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
    return None
