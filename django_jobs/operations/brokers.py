"""What backends outside the database say of their queues; one that is broken hides no other."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.execution.errors import error_text
from django_jobs.routers import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.backends.base import QueueStats

logger = logging.getLogger("django_jobs")


def brokers() -> list[str]:
    """The aliases of backends whose jobs are in no database."""
    return [alias for alias, one in get_settings().backends.items() if database_of(one) is None]


def queues_of_brokers() -> Iterator[tuple[str, str]]:
    """Backend and queue of all that they hold; who cannot tell is heard of by ``stats_of``."""
    for alias in brokers():
        try:
            names = backends[alias].queues()
        except Exception:  # noqa: BLE001 - one broken backend must not hide the others
            names = []
        yield from ((alias, name) for name in names)


def stats_of(backend: str, queue: str) -> QueueStats | str:
    """How a queue stands, or the kind of error that keeps its backend from telling."""
    try:
        return backends[backend].stats(queue)
    except Exception as error:  # noqa: BLE001 - one broken backend must not hide the others
        # A driver's words name hosts and ports: they are for the log, not for whoever looks.
        told = error_text(error)
        logger.warning(
            "the backend %s does not tell of its queue %s: %s: %s",
            *(backend, queue, told.type, told.message),
        )
        return _kinds(error)


def _kinds(error: Exception) -> str:
    """The type of an error, and of the one it stands for."""
    kind, cause = type(error).__name__, error.__cause__
    return kind if cause is None else f"{kind} ({type(cause).__name__})"
