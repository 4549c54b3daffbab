"""A dead letter lives on as a new job, and only as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from django_jobs.backends.base import OnConflict
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.registry import backends
from django_jobs.backends.sync import SyncBackend
from django_jobs.db.home import jobs_database, record, store_now
from django_jobs.db.transactions import in_transition
from django_jobs.exceptions import (
    ConfigurationError,
    DuplicateJob,
    EnqueueOutcomeUnknown,
    InvalidJob,
    Rejection,
)
from django_jobs.ids import new_id
from django_jobs.models import FailedJob
from django_jobs.operations.resealing import checked, resealed
from django_jobs.operations.resolving import REPLAYED, locked, resolve, resolved_how, write

if TYPE_CHECKING:
    from django_jobs.backends.base import Backend
    from django_jobs.operations.editing import Edited
    from django_jobs.operations.resolving import Witness
    from django_jobs.wire.envelope import Envelope

ReplayStatus = Literal["replayed", "already-replayed", "discarded", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of a wish to replay.

    ``new_id`` is the job that a dead letter lives on as, ``why`` the sentence for a
    refusal (or about who came before). ``discarded`` with a ``new_id``: somebody discarded it
    after the new job was enqueued on a backend elsewhere, and before that was on record.
    ``replayed`` with a ``why``: the same, but the dead letter was purged.
    """

    failed_id: int
    job_id: str
    status: ReplayStatus
    new_id: str | None = None
    why: str = ""


def replay(
    failed_id: int,
    *,
    by: str,
    reason: str = "",
    using: str | None = None,
    witness: Witness | None = None,
    edited: Edited | None = None,
) -> Replayed:
    """Enqueue a dead letter as a new job, once; raises FailedJob.DoesNotExist.

    The new job has the payload and the terms of the old one, its queue and backend, no
    attempts behind it, no delay, and as long to live as the old one had. What cannot be
    verified, or could not run, is refused. ``witness`` is called with the dead letter
    and its former resolution, in the transaction that marks it. With ``edited`` the new job
    gets that payload, if the handler takes it.
    """
    return _Replay(failed_id, by, reason, using or jobs_database(), witness, edited).run()


class _Replay:
    """One wish to replay.

    Where the new job goes into the same database, all of it is one transaction. Anywhere
    else the new id is written down first: after a failure in between, the same id is
    enqueued again, which is a no-op if it had arrived.
    """

    def __init__(
        self,
        failed_id: int,
        by: str,
        reason: str,
        alias: str,
        witness: Witness | None,
        edited: Edited | None,
    ) -> None:
        self.failed_id = failed_id
        self.by = by
        self.reason = reason
        self.alias = alias
        self.witness = witness
        self.edited = edited
        self._begun: FailedJob | None = None

    def run(self) -> Replayed:
        answer = in_transition(self.alias, lambda _: self._begin())
        if isinstance(answer, Replayed):
            return answer
        backend, envelope, identifier = answer
        try:
            refusal = self._enqueue(backend, envelope, identifier)
        except EnqueueOutcomeUnknown as error:
            why = f"{error.__cause__ or error}: replay it again, the job will not be doubled"
            return Replayed(
                failed_id=self.failed_id, job_id=envelope.identifier, status="refused", why=why
            )
        return in_transition(self.alias, lambda _: self._finish(identifier, refusal))

    def _begin(self) -> Replayed | tuple[Backend, Envelope, str]:
        failed = locked(self.alias, self.failed_id)
        if failed.resolution:
            return self._resolved_before(failed)
        try:
            envelope = checked(failed, self.edited)
            backend = backends[failed.backend]
        except (Rejection, InvalidJob, ConfigurationError) as error:
            return self._answer(failed, "refused", why=str(error))
        identifier = str(failed.replayed_as or new_id())
        if self._joins(backend):
            if refusal := self._enqueue(backend, envelope, identifier):
                return self._answer(failed, "refused", why=refusal)
            return self._replayed(failed, identifier)
        write(self.alias, failed, replayed_as=UUID(identifier))
        self._begun = failed
        return backend, envelope, identifier

    def _joins(self, backend: Backend) -> bool:
        """Whether the new job can be stored in this transaction, and nothing but stored."""
        if isinstance(backend, SyncBackend):
            return False  # its enqueue runs the job, and no transaction of ours lasts that long
        return isinstance(backend, DatabaseBackend) and backend.database == self.alias

    def _enqueue(self, backend: Backend, envelope: Envelope, identifier: str) -> str:
        """Store the new job; why it was refused, or nothing.

        Elsewhere it may have arrived before, and have ended since: that is left alone.
        """
        outgoing = resealed(envelope, identifier, store_now(self.alias))
        store = backend.enqueue if self._joins(backend) else backend.push
        try:
            store([outgoing], on_conflict=OnConflict.RAISE)
        except (DuplicateJob, InvalidJob) as error:
            return str(error)
        return ""

    def _finish(self, identifier: str, refusal: str) -> Replayed:
        try:
            failed = locked(self.alias, self.failed_id)
        except FailedJob.DoesNotExist:
            if self._begun is None:
                raise
            return self._purged_meanwhile(self._begun, identifier, refusal)
        if failed.resolution == REPLAYED:
            return self._resolved_before(failed)
        if failed.resolution:
            return self._resolved_meanwhile(failed, "" if refusal else identifier)
        if refusal:
            write(self.alias, failed, replayed_as=None)
            return self._answer(failed, "refused", why=refusal)
        return self._replayed(failed, identifier)

    def _replayed(self, failed: FailedJob, identifier: str) -> Replayed:
        failed.replayed_as = UUID(identifier)
        resolve(
            self.alias,
            failed,
            REPLAYED,
            by=self.by,
            note=self.reason,
            witness=self.witness,
            detail={} if self.edited is None else {"edited": True},
        )
        return self._answer(failed, "replayed", identifier)

    def _resolved_before(self, failed: FailedJob) -> Replayed:
        if failed.resolution == REPLAYED:
            how = resolved_how(failed)
            return self._answer(failed, "already-replayed", str(failed.replayed_as), how)
        return self._answer(failed, "discarded", why=resolved_how(failed))

    def _resolved_meanwhile(self, failed: FailedJob, identifier: str) -> Replayed:
        """Somebody discarded it while the new job was on its way: that stays, and both are told.

        To call the job off would be a second decision, and it may run already.
        """
        how = resolved_how(failed)
        if not identifier:
            write(self.alias, failed, replayed_as=None)
            return self._answer(failed, "discarded", why=how)
        self._record(failed, identifier)
        why = f"{how}, while job {identifier} was made of it; jobs_cancel {identifier} calls it off"
        return self._answer(failed, "discarded", identifier, why)

    def _purged_meanwhile(self, failed: FailedJob, identifier: str, refusal: str) -> Replayed:
        """The new job is there, or was refused; only the row to write that into is gone."""
        if refusal:
            return self._answer(failed, "refused", why=refusal)
        self._record(failed, identifier, purged=True)
        if self.witness is not None:
            failed.resolution, failed.replayed_as = REPLAYED, UUID(identifier)
            self.witness(failed, "")
        why = f"the dead letter was purged while job {identifier} was made of it"
        return self._answer(failed, "replayed", identifier, why)

    def _record(self, failed: FailedJob, identifier: str, **more: object) -> None:
        """Add a replay to the record whose dead letter cannot be marked as replayed."""
        known = {"failed_id": failed.pk, "was": failed.resolution, "replayed_as": identifier}
        record(
            self.alias,
            "replay",
            by=self.by,
            reason=self.reason,
            backend=failed.backend,
            queue=failed.queue,
            subject=str(failed.job_id),
            detail={**known, **more},
        )

    def _answer(
        self, failed: FailedJob, status: ReplayStatus, new_id: str | None = None, why: str = ""
    ) -> Replayed:
        return Replayed(
            failed_id=failed.pk, job_id=str(failed.job_id), status=status, new_id=new_id, why=why
        )
