"""Marking a dead letter as resolved: the row, the record and the witness, in one step."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django_jobs.backends.database.dead_letters import count_resolved
from django_jobs.backends.database.rows import for_people
from django_jobs.db.home import record, store_now
from django_jobs.models import FailedJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Witness = Callable[[FailedJob, str], None]
    """Is told the dead letter and its former resolution, in the transaction that marks it."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
REPLAYED, DISCARDED = "replayed", "discarded"
_ACTIONS = {REPLAYED: "replay", DISCARDED: "discard"}


def locked(alias: str, failed_id: int) -> FailedJob:
    """A dead letter that nobody else can resolve meanwhile; raises FailedJob.DoesNotExist."""
    found = FailedJob.objects.using(alias).select_for_update().filter(pk=failed_id).first()
    if found is None:
        raise FailedJob.DoesNotExist(f"there is no dead letter {failed_id}")
    return found


def resolve(
    alias: str,
    failed: FailedJob,
    resolution: str,
    *,
    by: str,
    note: str,
    witness: Witness | None,
    detail: Mapping[str, Any] = NOTHING,
) -> None:
    """Mark a locked dead letter, in the caller's transaction."""
    before = failed.resolution
    write(
        alias,
        failed,
        resolution=resolution,
        replayed_as=failed.replayed_as,
        resolved_by=by[:150],
        resolution_note=note,
        resolved_at=for_people(store_now(alias)),
    )
    count_resolved(alias, failed)
    record(
        alias,
        _ACTIONS[resolution],
        by=by,
        reason=note,
        backend=failed.backend,
        queue=failed.queue,
        subject=str(failed.job_id),
        detail={
            "failed_id": failed.pk,
            "was": before,
            "replayed_as": None if failed.replayed_as is None else str(failed.replayed_as),
            **detail,
        },
    )
    if witness is not None:
        witness(failed, before)


def write(alias: str, failed: FailedJob, **changes: Any) -> None:
    """Save some columns of a dead letter."""
    for name, value in changes.items():
        setattr(failed, name, value)
    failed.save(using=alias, update_fields=list(changes))


def resolved_how(failed: FailedJob) -> str:
    """Who resolved a dead letter, how and when, as half a sentence."""
    when = "" if failed.resolved_at is None else f" at {failed.resolved_at:%Y-%m-%d %H:%M:%S %Z}"
    return f"{failed.resolution} by {failed.resolved_by or 'somebody'}{when}".rstrip()
