"""From a dead letter that can be verified to a new message in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django_jobs.conf import get_settings
from django_jobs.enqueue import payload_text
from django_jobs.exceptions import QueueRefused
from django_jobs.handlers.registry import check_allowed, registry
from django_jobs.operations.editing import put_back
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import MAX_MOMENT, Header, Message, Seal
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer

if TYPE_CHECKING:
    from django_jobs.models import FailedJob
    from django_jobs.operations.editing import Edited
    from django_jobs.wire.envelope import Envelope, Outgoing


def verified(failed: FailedJob) -> Envelope:
    """What a dead letter says, when it may be believed; raises Rejection.

    The signature is looked at even where VERIFY_SIGNATURES is off: a replay signs anew,
    and must not lend a forged body a true signature.
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
    """The same, when it could also run here and now; raises Rejection or InvalidJob.

    ``edited``: with another payload, which is judged in place of the one it has.
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
    """A new message of the same payload and terms, due at once and signed anew."""
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
    # Fields that a later release wrote are kept, as they are everywhere else.
    body = f"{outgoing.body[:-1]},{strict_json.dumps(dict(envelope.unknown))[1:]}"
    return outgoing._replace(body=body, signature=signer.sign(body))


def message_of(failed: FailedJob) -> Message:
    """A dead letter as the message it was; its columns must say what its body says."""
    return Message(
        body=failed.body,
        signature=failed.signature,
        key_id=failed.key_id,
        # It waits for nothing any more, whatever its schedule said.
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
