"""Dead letters: find and group them, replay them as new jobs, or discard them.

A dead letter is resolved only once. Resolving it again changes nothing, and the answer says
how it was resolved before.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from django.db.models import Max, Min, Q, Sum

from django_jobs.backends.home import jobs_database, moment_before
from django_jobs.db.dead_letters import recount
from django_jobs.db.transactions import in_transition
from django_jobs.exceptions import ConfigurationError, InvalidJob, Rejection
from django_jobs.ids import parse_id
from django_jobs.models import FailedJob, FailureGroup
from django_jobs.operations.replay import (
    DISCARDED,
    REPLAYED,
    Replayed,
    checked,
    locked,
    replay,
    resolve,
    resolved_how,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from django.db.models import QuerySet

    from django_jobs.operations.replay import Witness


__all__ = [
    "Discarded",
    "Foreseen",
    "Group",
    "Matching",
    "Replayed",
    "discard",
    "discard_each",
    "foresee",
    "groups",
    "obstacle_of",
    "recount_groups",
    "replay",
    "replay_each",
    "select",
]

_KEY = re.compile(r"[0-9]{1,18}")
DiscardStatus = Literal["discarded", "already-discarded", "replayed"]
_WHEN_RESOLVED: dict[str, DiscardStatus] = {DISCARDED: "already-discarded", REPLAYED: "replayed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The result of discarding a dead letter."""

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
    """The dead letters that fit all conditions, the latest first.

    ``ids`` are numbers of dead letters or ids of jobs; raises ValueError for anything else.
    """
    alias = using or jobs_database()
    until = None if older_than is None else moment_before(alias, older_than)
    matching = Matching(queue=queue, handler=handler, reason=reason, until=until)
    letters = matching.letters(alias, unresolved=unresolved).order_by("-failed_at", "-pk")
    return letters if ids is None else letters.filter(_named(ids))


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
    """Replay dead letters one after the other, each in its own transaction.

    Only those that exist at the start: a replayed job that dies again is not replayed again.
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
    """Discard dead letters one after the other, each in its own transaction."""
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


def _named(ids: Iterable[int | str]) -> Q:
    numbers, job_ids = [], []
    for name in ids:
        if job_id := parse_id(name):
            job_ids.append(job_id)
        elif _KEY.fullmatch(str(name)):
            numbers.append(int(name))
        else:
            raise ValueError(f"{name!r} is neither the number of a dead letter nor a job's id")
    return Q(pk__in=numbers) | Q(job_id__in=job_ids)


# A filter of dead letters that can be stored as JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """A filter: dead letters that fit everything that is set.

    ``since`` is included, ``until`` is not.
    """

    queue: str | None = None
    handler: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    keys: tuple[int, ...] | None = None

    def letters(self, alias: str, *, unresolved: bool = True) -> QuerySet[FailedJob]:
        """The dead letters that fit: the open ones, or all of them."""
        conditions = {
            "queue": self.queue,
            "handler": self.handler,
            "reason": self.reason,
            "fingerprint": self.fingerprint,
            "failed_at__gte": self.since,
            "failed_at__lt": self.until,
            "pk__in": self.keys,
            "resolution": "" if unresolved else None,
        }
        chosen = {name: value for name, value in conditions.items() if value is not None}
        return FailedJob.objects.using(alias).filter(**chosen)

    def document(self) -> dict[str, Any]:
        """The filter as a JSON document."""
        conditions = {name: value for name, value in asdict(self).items() if value is not None}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in conditions.items()
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Matching:
        names = {field.name for field in fields(cls)}
        conditions = {name: value for name, value in document.items() if name in names}
        for name in ("since", "until"):
            if name in conditions:
                conditions[name] = datetime.fromisoformat(conditions[name])
        if "keys" in conditions:
            conditions["keys"] = tuple(conditions["keys"])
        return cls(**conditions)


# Dead letters grouped by the error they share.


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Dead letters with one error: ``seen`` of them are on record, ``open`` are unresolved."""

    fingerprint: str
    handler: str
    reason: str
    error_type: str
    error_message: str
    open: int
    seen: int
    first_seen: datetime
    last_seen: datetime


def groups(*, limit: int = 100, resolved: bool = False, using: str | None = None) -> list[Group]:
    """The groups with open dead letters, the largest first; with ``resolved``, the others too.

    Reads stored counts, never the dead letters themselves.
    """
    rows = (
        FailureGroup.objects.using(using or jobs_database())
        .order_by()
        .values("fingerprint")
        .annotate(
            all_open=Sum("open"),
            all_seen=Sum("seen"),
            first=Min("first_seen"),
            last=Max("last_seen"),
            any_handler=Max("handler"),
            any_reason=Max("reason"),
            any_type=Max("error_type"),
            any_message=Max("error_message"),
        )
        .filter(**({"all_seen__gt": 0} if resolved else {"all_open__gt": 0}))
        .order_by("-all_open", "-last")
    )
    return [
        Group(
            fingerprint=row["fingerprint"],
            handler=row["any_handler"],
            reason=row["any_reason"],
            error_type=row["any_type"],
            error_message=row["any_message"],
            open=row["all_open"],
            seen=row["all_seen"],
            first_seen=row["first"],
            last_seen=row["last"],
        )
        for row in rows[:limit]
    ]


def recount_groups(*, using: str | None = None) -> int:
    """Count all groups anew, which reads every dead letter; returns the number of groups.

    For rows that no worker wrote, such as those of a restored table.
    """
    return recount(using or jobs_database())


# Dry runs: what a replay or a discard would do, without changing anything.


LOOKED_AT_MOST = 1_000
_NOT_NEEDED = ("traceback", "output", "meta", "error_message")


@dataclass(slots=True)
class Foreseen:
    """Of ``looked`` dead letters, how many would be resolved, and ``why`` others be refused."""

    looked: int = 0
    would: int = 0
    resolved: int = 0
    why: Counter[str] = field(default_factory=Counter)

    @property
    def refused(self) -> int:
        return self.why.total()


def foresee(letters: QuerySet[FailedJob], verb: str, limit: int = LOOKED_AT_MOST) -> Foreseen:
    """What a replay or a discard of the first ``limit`` dead letters would do."""
    foreseen = Foreseen()
    for failed in letters.order_by("pk").defer(*_NOT_NEEDED)[:limit]:
        foreseen.looked += 1
        if failed.resolution:
            foreseen.resolved += 1
        elif verb == "replay" and (why := obstacle_of(failed)):
            foreseen.why[why] += 1
        else:
            foreseen.would += 1
    return foreseen


def obstacle_of(failed: FailedJob) -> str:
    """Why a dead letter cannot be replayed at present; empty if it can."""
    try:
        checked(failed)
    except (Rejection, InvalidJob, ConfigurationError) as problem:
        return str(problem)
    return ""
