"""Functions that are imported when they are first called.

A process that only enqueues does not load the code that runs jobs, and lower layers do not import
higher ones. To call it they have dotted paths, most of them set in ``apps.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from collections.abc import Callable


class LazyFunction:
    """The function of a dotted path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._function: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            self._function = import_string(self.path)
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<lazy {self.path}>"
