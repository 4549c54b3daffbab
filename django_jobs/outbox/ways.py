"""Which way a job goes to what carries it, as the settings say."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from django.db import DEFAULT_DB_ALIAS

from django_jobs.exceptions import NotSupported
from django_jobs.routers import database_of, outbox_database

if TYPE_CHECKING:
    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings


class Way(NamedTuple):
    """``outbox``: the database alias whose outbox a job goes into, or None.

    ``after``: the alias whose open transaction is committed first, or None.
    """

    outbox: str | None = None
    after: str | None = None


@lru_cache(maxsize=256)
def way(settings: JobsSettings, backend: Backend, queue: str) -> Way:
    """The way to a backend for the jobs of a queue."""
    config = settings.backends.get(backend.alias)
    if config is None or getattr(backend, "runs_at_enqueue", False):
        return Way()
    own = database_of(config)
    wanted = settings.queue(queue).outbox if settings.backend_for(queue) == config.alias else None
    if config.outbox if wanted is None else wanted:
        home = outbox_database(settings, config.alias)
        if home is not None:
            return Way(outbox=home)
    said = config.on_commit
    if said is None:
        said = not backend.capabilities.transactional_enqueue
    after = DEFAULT_DB_ALIAS if said is True else said or None
    return Way(after=None if after == own else after)


def check(backend: Backend, unique_key: str | None, result_ttl: float) -> None:
    """Refuse what cannot be kept when jobs go through an outbox; raises NotSupported."""
    if unique_key is not None:
        raise NotSupported(
            f"unique_key={unique_key!r}: whether a live job holds the key is known only to the "
            f"backend {backend.alias!r}, and a job in its outbox reaches it later; use an "
            "idempotency_key, which is looked at when the job runs, or a queue with OUTBOX False"
        )
    if result_ttl < backend.shortest_memory:
        raise NotSupported(
            f"result_ttl={result_ttl:g}: the backend {backend.alias!r} tells by its result that a "
            "job from the outbox has ended and must not come twice; keep it for at least "
            f"{backend.shortest_memory:g} seconds"
        )
