"""Replay a dead letter as a new job, at most once; with other arguments if an operator wants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from django_jobs.backends.base import OnConflict, joins, push
from django_jobs.backends.home import jobs_database, record, store_now
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.db.clock import for_people
from django_jobs.db.dead_letters import count_resolved
from django_jobs.db.transactions import in_transition
from django_jobs.enqueue import payload_text
from django_jobs.exceptions import (
    ConfigurationError,
    DuplicateJob,
    EnqueueOutcomeUnknown,
    HandlerRefused,
    InvalidJob,
    InvalidPayload,
    QueueRefused,
    Rejection,
)
from django_jobs.handlers.registry import check_allowed, registry
from django_jobs.ids import new_id
from django_jobs.models import FailedJob
from django_jobs.redaction import HIDDEN, redacted
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import MAX_MOMENT, Header, Message, Seal
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_jobs.backends.base import Backend
    from django_jobs.handlers.base import Handler
    from django_jobs.wire.envelope import Envelope, Outgoing

    Witness = Callable[[FailedJob, str], None]
    """Called with the dead letter and its former resolution, in the transaction that marks it."""


# Replay with other arguments. Redacted values, which the operator never saw, are kept.


@dataclass(frozen=True, slots=True)
class Edited:
    """A payload in place of that of a dead letter.

    ``••••`` in the place of a redacted value stands for the old value.
    """

    payload: Any


def put_back(edited: Any, original: Any, handler: Handler | None) -> Any:
    """An edited payload for its handler, with redacted values put back; raises InvalidPayload.

    Refused if the handler would send them to another destination than before: an operator, who
    never saw them, could read them there.
    """
    payload = restored(edited, original)
    if payload != edited and _destination(handler, payload) != _destination(handler, original):
        raise InvalidPayload(
            "hidden values (••••) stay with what they were meant for: where a request goes, which "
            "event is sent, or any word of a command line was changed here; write the values "
            "themselves, or change nothing but other parts"
        )
    return payload


def _destination(handler: Handler | None, payload: Any) -> Any:
    if handler is None:
        return None
    try:
        return handler.destination(payload)
    except (InvalidPayload, HandlerRefused):
        return object()  # equal to no other destination


def restored(edited: Any, original: Any) -> Any:
    """An edited payload, with redacted values put back; raises InvalidPayload.

    A secret returns only to the place it came from. Dots in any other place stand for no value,
    and would be sent as they are. It must also stay redacted there: only what stands beside a
    value may show that it is a secret.
    """
    payload = _restored(edited, original, redacted(original), "the payload")
    _demand_hidden(edited, redacted(payload), "the payload")
    return payload


def _demand_hidden(edited: Any, shown: Any, place: str) -> None:
    if shown == HIDDEN:
        return
    if isinstance(edited, dict | list):
        for key, value in edited.items() if isinstance(edited, dict) else enumerate(edited):
            _demand_hidden(value, shown[key], f"{place}[{key!r}]")
    elif isinstance(edited, str) and HIDDEN in edited and shown != edited:
        raise InvalidPayload(
            f"{place} would no longer be hidden, for what stands beside it was changed; write the "
            "value itself, or leave what is beside it as it was"
        )


def _restored(edited: Any, original: Any, shown: Any, place: str) -> Any:
    if isinstance(edited, dict):
        old, seen = [value if isinstance(value, dict) else {} for value in (original, shown)]
        return {
            key: _restored(value, old.get(key), seen.get(key), f"{place}[{key!r}]")
            for key, value in edited.items()
        }
    if isinstance(edited, list):
        # By place: an item that was moved must not get the secret of another.
        return [
            _restored(
                value,
                _at(original, place_in),
                _seen(edited, shown, place_in),
                f"{place}[{place_in}]",
            )
            for place_in, value in enumerate(edited)
        ]
    if isinstance(edited, str) and edited == shown:
        return original
    if isinstance(edited, str) and HIDDEN in edited:
        raise InvalidPayload(
            f"{place} is {edited!r}, and there is no hidden value in that place to put back; "
            "write the value itself, or leave the dots where they were"
        )
    return edited


def _seen(edited: list[Any], shown: Any, place: int) -> Any:
    """The value shown in a place; None if the word before it, which names it, was changed."""
    seen = _at(shown, place)
    renamed = seen == HIDDEN and place and edited[place - 1] != _at(shown, place - 1)
    return None if renamed else seen


def _at(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, list) and place < len(values) else None


# Verifying a dead letter and making a new message from it.


def verified(failed: FailedJob) -> Envelope:
    """The envelope of a dead letter, once verified; raises Rejection.

    The signature is checked even if VERIFY_SIGNATURES is off: a replay signs anew, and must
    not give a forged body a valid signature.
    """
    settings = get_settings()
    opener = Opener(
        backend=failed.backend,
        site=settings.site,
        max_payload_bytes=settings.max_payload_bytes,
        signer=Signer(settings.signing_keys),
    )
    return opener.open(message_of(failed), failed.queue)


def checked(failed: FailedJob, edited: Edited | None = None) -> Envelope:
    """The verified envelope, if its job could run here now; raises Rejection or InvalidJob.

    ``edited``: another payload, which is checked and used in place of the old one.
    """
    envelope = verified(failed)
    if edited is not None:
        handler = registry.get(envelope.terms.job)
        payload = put_back(edited.payload, envelope.payload, handler)
        payload_text(envelope.terms.job, payload, get_settings())
        envelope = envelope._replace(payload=payload)
    settings, terms = get_settings(), envelope.terms
    if problem := settings.queue_problem(terms.queue):
        raise QueueRefused(problem)
    handler = registry.find(terms.job)
    check_allowed(terms.job, terms.queue, settings.queue(terms.queue).handlers)
    handler.validate(envelope.payload)
    return envelope


def resealed(envelope: Envelope, identifier: str, now: int) -> Outgoing:
    """A new message with the same payload and terms, due at once and signed anew."""
    terms = envelope.terms
    lifetime = None if terms.expires_at is None else terms.expires_at - envelope.enqueued_at
    signer = Signer(get_settings().signing_keys)
    seal = Seal(
        replace(
            terms,
            schedule=None,
            delay=None,
            expires_at=None if lifetime is None else now + max(lifetime, 0),
            replay_of=envelope.identifier,
        ),
        signer,
    )
    outgoing = seal.outgoing(identifier, strict_json.dumps(envelope.payload), now)
    if not envelope.unknown:
        return outgoing
    # Keep fields that a later release wrote, as everywhere else.
    body = f"{outgoing.body[:-1]},{strict_json.dumps(dict(envelope.unknown))[1:]}"
    return outgoing._replace(body=body, signature=signer.sign(body))


def message_of(failed: FailedJob) -> Message:
    """The message of a dead letter; verifying it compares its columns with its body."""
    return Message(
        body=failed.body,
        signature=failed.signature,
        key_id=failed.key_id,
        # A dead letter waits for nothing any more, whatever its schedule was.
        header=Header(failed.attempts, failed.deliveries, failed.crashes, MAX_MOMENT),
        index={
            "id": str(failed.job_id),
            "backend": failed.backend,
            "queue": failed.queue,
            "handler": failed.handler,
            "name": failed.name,
            "rank": failed.rank,
            "tenant": failed.tenant,
            "trace_id": failed.trace_id,
            "replay_of": None if failed.replay_of is None else str(failed.replay_of),
        },
    )


# Marking a dead letter as resolved: the row, the operator event and the witness together.


NOTHING: Mapping[str, Any] = MappingProxyType({})
REPLAYED, DISCARDED = "replayed", "discarded"
_ACTIONS = {REPLAYED: "replay", DISCARDED: "discard"}


def locked(alias: str, failed_id: int) -> FailedJob:
    """Lock a dead letter until the end of the transaction; raises FailedJob.DoesNotExist."""
    letter = FailedJob.objects.using(alias).select_for_update().filter(pk=failed_id).first()
    if letter is None:
        raise FailedJob.DoesNotExist(f"there is no dead letter {failed_id}")
    return letter


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
    """Mark a locked dead letter as resolved, in the caller's transaction."""
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
    """By which operator, how and when a dead letter was resolved, as half a sentence."""
    when = "" if failed.resolved_at is None else f" at {failed.resolved_at:%Y-%m-%d %H:%M:%S %Z}"
    return f"{failed.resolution} by {failed.resolved_by or 'an unknown user'}{when}".rstrip()


# The replay itself.


ReplayStatus = Literal["replayed", "already-replayed", "discarded", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    ``new_id`` is the new job, ``why`` the reason of a refusal, or how the dead letter was
    resolved before. ``discarded`` with a ``new_id``: it was discarded after the new job had been
    enqueued on another backend, but before that was recorded. ``replayed`` with a ``why``: as
    before, but the dead letter was purged.
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

    The new job has the payload, terms, queue and backend of the old one, no attempts so far, no
    delay, and as long to expire as the old one had. A dead letter that cannot be verified, or
    whose job could not run, is refused. ``witness`` is called with the dead letter and its
    former resolution, in the transaction that marks it. With ``edited`` the new job gets that
    payload, if the handler accepts it.
    """
    return _Replay(failed_id, by, reason, using or jobs_database(), witness, edited).run()


class _Replay:
    """One replay.

    If the new job goes into the same database, everything is one transaction. Otherwise the
    new id is stored first: after a failure in between, the same id is enqueued again, which
    does nothing if it had arrived.
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
        if joins(backend, self.alias):
            if refusal := self._enqueue(backend, envelope, identifier):
                return self._answer(failed, "refused", why=refusal)
            return self._replayed(failed, identifier)
        write(self.alias, failed, replayed_as=UUID(identifier))
        self._begun = failed
        return backend, envelope, identifier

    def _enqueue(self, backend: Backend, envelope: Envelope, identifier: str) -> str:
        """Store the new job; returns why it was refused, or an empty string.

        On another backend it may have arrived before, and have ended since: that is left alone.
        """
        outgoing = resealed(envelope, identifier, store_now(self.alias))
        store = backend.enqueue if joins(backend, self.alias) else partial(push, backend)
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
        """It was discarded while the new job was on its way: it stays so, and the answer has both.

        Cancelling the job would be a second decision, and it may run already.
        """
        how = resolved_how(failed)
        if not identifier:
            write(self.alias, failed, replayed_as=None)
            return self._answer(failed, "discarded", why=how)
        self._record(failed, identifier)
        why = f"{how}, while job {identifier} was made of it; jobs_cancel {identifier} cancels it"
        return self._answer(failed, "discarded", identifier, why)

    def _purged_meanwhile(self, failed: FailedJob, identifier: str, refusal: str) -> Replayed:
        """The new job is enqueued or refused, but the row to write that into is gone."""
        if refusal:
            return self._answer(failed, "refused", why=refusal)
        self._record(failed, identifier, purged=True)
        if self.witness is not None:
            failed.resolution, failed.replayed_as = REPLAYED, UUID(identifier)
            self.witness(failed, "")
        why = f"the dead letter was purged while job {identifier} was made of it"
        return self._answer(failed, "replayed", identifier, why)

    def _record(self, failed: FailedJob, identifier: str, **more: object) -> None:
        """Record a replay whose dead letter cannot be marked as replayed."""
        detail = {"failed_id": failed.pk, "was": failed.resolution, "replayed_as": identifier}
        record(
            self.alias,
            "replay",
            by=self.by,
            reason=self.reason,
            backend=failed.backend,
            queue=failed.queue,
            subject=str(failed.job_id),
            detail={**detail, **more},
        )

    def _answer(
        self, failed: FailedJob, status: ReplayStatus, new_id: str | None = None, why: str = ""
    ) -> Replayed:
        return Replayed(
            failed_id=failed.pk, job_id=str(failed.job_id), status=status, new_id=new_id, why=why
        )
