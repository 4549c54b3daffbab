"""From a leased message to its end: admit it, run one attempt, settle.

The names are imported when they are first used: the process that spawns children imports parts
of this package without loading any app.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobs.worker.build import process_once
    from django_jobs.worker.cycle import Report

__all__ = ["Report", "process_once"]


_PLACES = {"process_once": "build", "Report": "cycle"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
