"""Dead letters: find them, replay them as new jobs, or discard them.

A dead letter is replayed or discarded once. What is asked of one that was resolved
before changes nothing and says how it was resolved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from django_jobs.db.home import jobs_database, moment_before
from django_jobs.db.transactions import in_transition
from django_jobs.ids import parse_id
from django_jobs.models import FailedJob
from django_jobs.operations.replaying import Replayed, replay
from django_jobs.operations.resolving import DISCARDED, REPLAYED, locked, resolve, resolved_how

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from django.db.models import QuerySet

    from django_jobs.operations.resolving import Witness

__all__ = ["Discarded", "Replayed", "discard", "discard_each", "replay", "replay_each", "select"]

_KEY = re.compile(r"[0-9]{1,18}")
DiscardStatus = Literal["discarded", "already-discarded", "replayed"]
_WHEN_RESOLVED: dict[str, DiscardStatus] = {DISCARDED: "already-discarded", REPLAYED: "replayed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """What became of a wish to discard."""

    failed_id: int
    job_id: str
    status: DiscardStatus
    why: str = ""


def select(
    *,
    ids: Iterable[int | str] | None = None,
    queue: str | None = None,
    handler: str | None = None,
    reason: str | None = None,
    older_than: timedelta | None = None,
    unresolved: bool = True,
    using: str | None = None,
) -> QuerySet[FailedJob]:
    """The dead letters that fit all that is said, the latest first.

    ``ids`` are numbers of dead letters or ids of jobs; raises ValueError for what is neither.
    """
    alias = using or jobs_database()
    said = {"queue": queue, "handler": handler, "reason": reason}
    found = FailedJob.objects.using(alias).order_by("-failed_at", "-pk")
    found = found.filter(**{name: value for name, value in said.items() if value is not None})
    if unresolved:
        found = found.filter(resolution="")
    if older_than is not None:
        found = found.filter(failed_at__lte=moment_before(alias, older_than))
    if ids is not None:
        numbers, job_ids = _told_apart(ids)
        found = found.filter(pk__in=numbers) | found.filter(job_id__in=job_ids)
    return found


def discard(
    failed_id: int,
    *,
    by: str,
    reason: str = "",
    using: str | None = None,
    witness: Witness | None = None,
) -> Discarded:
    """Mark a dead letter as needing nothing more; raises FailedJob.DoesNotExist."""
    alias = using or jobs_database()

    def work(_: Any) -> Discarded:
        failed = locked(alias, failed_id)
        job_id = str(failed.job_id)
        if before := _WHEN_RESOLVED.get(failed.resolution):
            how = resolved_how(failed)
            return Discarded(failed_id=failed_id, job_id=job_id, status=before, why=how)
        resolve(alias, failed, DISCARDED, by=by, note=reason, witness=witness)
        return Discarded(failed_id=failed_id, job_id=job_id, status="discarded")

    return in_transition(alias, work)


def replay_each(
    queryset: QuerySet[FailedJob],
    *,
    by: str,
    reason: str = "",
    batch: int = 100,
    witness: Witness | None = None,
) -> Iterator[Replayed]:
    """Replay one after the other, each in a transaction of its own.

    Only what was there at the start: a replayed job that dies again is not replayed again.
    """
    for pk in _keys(queryset, batch):
        try:
            yield replay(pk, by=by, reason=reason, using=queryset.db, witness=witness)
        except FailedJob.DoesNotExist:
            continue  # purged since the key was read


def discard_each(
    queryset: QuerySet[FailedJob],
    *,
    by: str,
    reason: str = "",
    batch: int = 100,
    witness: Witness | None = None,
) -> Iterator[Discarded]:
    """Discard one after the other, each in a transaction of its own."""
    for pk in _keys(queryset, batch):
        try:
            yield discard(pk, by=by, reason=reason, using=queryset.db, witness=witness)
        except FailedJob.DoesNotExist:
            continue  # purged since the key was read


def _keys(queryset: QuerySet[FailedJob], batch: int) -> Iterator[int]:
    """Primary keys in rising order, up to the greatest one at the start."""
    if queryset.query.is_sliced:
        yield from sorted(queryset.values_list("pk", flat=True))
        return
    rising = queryset.order_by("pk").values_list("pk", flat=True)
    greatest = rising.last()
    after = 0
    while greatest is not None:
        keys = list(rising.filter(pk__gt=after, pk__lte=greatest)[:batch])
        if not keys:
            return
        yield from keys
        after = keys[-1]


def _told_apart(ids: Iterable[int | str]) -> tuple[list[int], list[str]]:
    numbers, job_ids = [], []
    for given in ids:
        if job_id := parse_id(given):
            job_ids.append(job_id)
        elif _KEY.fullmatch(str(given)):
            numbers.append(int(given))
        else:
            raise ValueError(f"{given!r} is neither the number of a dead letter nor a job's id")
    return numbers, job_ids
