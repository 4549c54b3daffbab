"""Dead letters are added and counted by group here, in the transaction that changes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Max, Min, Q

from django_jobs.db.minutes import plus
from django_jobs.db.transactions import in_transition
from django_jobs.models import FailedJob, FailureGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SLOTS = 8
_MESSAGE = 255
GROUPED = ("fingerprint", "resolution", "handler", "reason", "error_type", "failed_at")
"""What ``count_gone`` reads of a dead letter."""


def add_dead_letter(alias: str, dead: FailedJob) -> bool:
    """Add and count a dead letter; False if it exists already, which leaves it unchanged.

    In the caller's transaction, which has locked the job that the dead letter is made of.
    """
    return bool(add_dead_letters(alias, [dead]))


def add_dead_letters(alias: str, letters: Sequence[FailedJob]) -> list[FailedJob]:
    """Add and count dead letters of one backend, each of another job; return the new ones.

    In the caller's transaction. Groups are counted in a fixed order, so that two such
    transactions do not deadlock.
    """
    existing = FailedJob.objects.using(alias).filter(
        backend=letters[0].backend, job_id__in=[letter.job_id for letter in letters]
    )
    there = set(existing.values_list("job_id", flat=True))
    new = [letter for letter in letters if letter.job_id not in there]
    FailedJob.objects.using(alias).bulk_create(new, ignore_conflicts=True)
    groups: dict[str, list[FailedJob]] = {}
    for letter in sorted(new, key=lambda letter: letter.failed_at):
        groups.setdefault(letter.fingerprint, []).append(letter)
    for fingerprint in sorted(groups):
        count_new(alias, groups[fingerprint][-1], len(groups[fingerprint]))
    return new


def count_new(alias: str, failed: FailedJob, count: int = 1) -> None:
    """Count ``count`` new dead letters, the last of which is ``failed``, in their group.

    In the caller's transaction.
    """
    changes = {
        "open": plus("open", count),
        "seen": plus("seen", count),
        "last_seen": failed.failed_at,
    }
    rows = _mine(alias, failed.fingerprint)
    if rows.update(**changes):
        return
    group = FailureGroup(
        fingerprint=failed.fingerprint,
        slot=_slot(),
        handler=failed.handler,
        reason=failed.reason,
        error_type=failed.error_type,
        error_message=failed.error_message[:_MESSAGE],
        first_seen=failed.failed_at,
        last_seen=failed.failed_at,
    )
    FailureGroup.objects.using(alias).bulk_create([group], ignore_conflicts=True)
    rows.update(**changes)


def count_resolved(alias: str, failed: FailedJob) -> None:
    """Count a dead letter of a group as resolved, in the caller's transaction."""
    if not _mine(alias, failed.fingerprint).update(open=plus("open", -1)):
        _of(alias, failed.fingerprint, failed, open=-1)


def count_gone(alias: str, letters: Iterable[FailedJob]) -> None:
    """Subtract dead letters that are being deleted from their groups.

    In the caller's transaction.
    """
    gone: dict[str, list[int]] = {}
    any_of = {}
    for failed in letters:
        counts = gone.setdefault(failed.fingerprint, [0, 0])
        counts[0] += 1
        counts[1] += not failed.resolution
        any_of[failed.fingerprint] = failed
    # In a fixed order, so that two deletions do not deadlock.
    for fingerprint, (seen, still_open) in sorted(gone.items()):
        changes: dict[str, Any] = {"seen": plus("seen", -seen), "open": plus("open", -still_open)}
        if not _mine(alias, fingerprint).update(**changes):
            _of(alias, fingerprint, any_of[fingerprint], seen=-seen, open=-still_open)


def recount(alias: str) -> int:
    """Rebuild the counts of all groups from the dead letters; return how many groups there are.

    Reads the whole table. Needed for rows that were added by other means than a settle.
    """

    def work(_: Any) -> int:
        rows = (
            FailedJob.objects.using(alias)
            .order_by()
            .values("fingerprint")
            .annotate(
                seen_count=Count("pk"),
                open_count=Count("pk", filter=Q(resolution="")),
                first=Min("failed_at"),
                last=Max("failed_at"),
                latest=Max("pk"),
            )
        )
        groups = [_counted(alias, row) for row in rows]
        FailureGroup.objects.using(alias).all().delete()
        FailureGroup.objects.using(alias).bulk_create(groups)
        return len(groups)

    return in_transition(alias, work)


def _counted(alias: str, row: Mapping[str, Any]) -> FailureGroup:
    failed = (
        FailedJob.objects.using(alias).defer("body", "traceback", "output").get(pk=row["latest"])
    )
    return FailureGroup(
        fingerprint=row["fingerprint"],
        slot=0,
        handler=failed.handler,
        reason=failed.reason,
        error_type=failed.error_type,
        error_message=failed.error_message[:_MESSAGE],
        open=row["open_count"],
        seen=row["seen_count"],
        first_seen=row["first"],
        last_seen=row["last"],
    )


def _of(alias: str, fingerprint: str, failed: FailedJob, **counts: int) -> None:
    """Start a slot with a negative count: the slot of another process has the additions."""
    group = FailureGroup(
        fingerprint=fingerprint,
        slot=_slot(),
        handler=failed.handler,
        reason=failed.reason,
        error_type=failed.error_type,
        first_seen=failed.failed_at,
        last_seen=failed.failed_at,
    )
    FailureGroup.objects.using(alias).bulk_create([group], ignore_conflicts=True)
    changes = {name: plus(name, count) for name, count in counts.items()}
    _mine(alias, fingerprint).update(**changes)


def _mine(alias: str, fingerprint: str) -> Any:
    return FailureGroup.objects.using(alias).filter(fingerprint=fingerprint, slot=_slot())


def _slot() -> int:
    return os.getpid() % SLOTS
