"""Retry policies that users wrote, by dotted path.

A path from a message is never imported. It only selects among the paths that this
site's own settings and decorators name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.module_loading import import_string

from django_jobs.exceptions import SettingsError
from django_jobs.execution.retry import RetryPolicy

if TYPE_CHECKING:
    from django_jobs.conf import JobsSettings
    from django_jobs.execution.retry import RetrySpec
    from django_jobs.handlers.registry import Registry


class Policies:
    """The users' policies of this process, each made once."""

    def __init__(self, settings: JobsSettings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._made: dict[str, RetryPolicy] = {}

    def own(self, spec: RetrySpec | None, queue: str) -> RetryPolicy | None:
        """The policy for a job, or None when a built-in one decides."""
        if spec is None:
            spec = self._settings.effective_retry(queue)
        if not isinstance(spec, str) or "." not in spec:  # as built_in() tells them apart
            return None
        if spec not in self._named_here():
            return None
        if spec not in self._made:
            try:
                self._made[spec] = _make(spec)
            except Exception as error:  # noqa: BLE001 - user code; the attempt tells of it and goes on
                self._made[spec] = _Unusable(error)
        return self._made[spec]

    def _named_here(self) -> set[str]:
        specs = [self._settings.retry, *(queue.retry for queue in self._settings.queues.values())]
        specs += [getattr(self._registry.get(key), "retry", None) for key in self._registry]
        return {path for path in specs if isinstance(path, str)}


class _Unusable:
    """Stands for a policy that could not be made, and says so where it is asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def delay(self, retry_number: int) -> float | None:
        raise self._error


def _make(path: str) -> RetryPolicy:
    try:
        found = import_string(path)
    except ImportError as error:
        raise SettingsError(f"the retry policy {path!r} cannot be imported: {error}") from error
    policy = found() if isinstance(found, type) else found
    if not isinstance(policy, RetryPolicy):
        raise SettingsError(f"the retry policy {path!r} has no delay(retry_number)")
    return policy
