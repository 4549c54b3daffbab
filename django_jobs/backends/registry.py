"""Backends by alias. One instance per alias and process, built when first used."""

from __future__ import annotations

import difflib
import os
import threading
from typing import TYPE_CHECKING

from django.apps import apps
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_jobs.backends.base import Backend, ignored, unfounded
from django_jobs.conf import get_settings
from django_jobs.exceptions import InvalidBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.conf import BackendConfig


class Backends:
    """The backends of ``DJANGO_JOBS["BACKENDS"]``."""

    def __init__(self) -> None:
        self._built: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Make a new lock: the thread that holds the old one may not exist in this process."""
        self._lock = threading.Lock()

    def __getitem__(self, alias: str) -> Backend:
        """The backend of an alias; raises InvalidBackend naming the nearest one."""
        built = self._built.get(alias)
        if built is not None:
            return built
        configured = get_settings().backends
        if alias not in configured:
            near = difflib.get_close_matches(alias, configured, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            aliases = ", ".join(sorted(configured))
            raise InvalidBackend(
                f"there is no backend {alias!r}{hint}; DJANGO_JOBS['BACKENDS'] has {aliases}"
            )
        with self._lock:
            return self._built.setdefault(alias, build(configured[alias]))

    def __iter__(self) -> Iterator[str]:
        return iter(get_settings().backends)

    def forget(self) -> None:
        """Rebuild each backend at its next use."""
        self._built = {}


def build(config: BackendConfig) -> Backend:
    """The backend that a configuration describes; raises InvalidBackend."""
    if apps.apps_ready and not apps.is_installed("django_jobs"):
        raise InvalidBackend(
            "'django_jobs' is not in INSTALLED_APPS; add it, and run manage.py migrate"
        )
    try:
        backend_class = import_string(config.path)
    except ImportError as error:
        raise InvalidBackend(
            f"the backend {config.alias!r} is {config.path!r}, which cannot be imported: {error}"
        ) from error
    if not (isinstance(backend_class, type) and issubclass(backend_class, Backend)):
        raise InvalidBackend(
            f"the backend {config.alias!r} is {config.path!r}, "
            "which is no subclass of django_jobs.backends.base.Backend"
        )
    backend = backend_class(config.alias, config.options)
    for claim, needed in unfounded(backend).items():
        raise InvalidBackend(
            f"the backend {config.alias!r} ({config.path}) claims {claim!r}, which it can only "
            f"have as a django_jobs.backends.base.{needed}; derive it from that too"
        )
    for method, part in ignored(backend).items():
        raise InvalidBackend(
            f"the backend {config.alias!r} ({config.path}) has {method}(), which is only called on "
            f"a django_jobs.backends.base.{part}; derive it from that too"
        )
    return backend


backends = Backends()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=backends.after_fork)


def _forget(*, setting: str, **_kwargs: object) -> None:
    if setting == "DJANGO_JOBS":
        backends.forget()


setting_changed.connect(_forget)
