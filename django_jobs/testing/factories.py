"""Signed messages made by hand: no settings, no registry, no database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.ids import new_id
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import Outgoing, Seal, Terms
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer, SigningKey

if TYPE_CHECKING:
    from collections.abc import Mapping

SITE = "tests.settings"
MAX_PAYLOAD_BYTES = 256 * 1024
NO_ARGUMENTS: Mapping[str, Any] = {"args": [], "kwargs": {}}


def make_signer(secret: str = "a secret for tests only") -> Signer:  # noqa: S107 - as it says
    """A signer with one key; the same secret makes an equal signer."""
    return Signer([SigningKey.unnamed(secret)])


def make_opener(
    backend: str = "default", *, site: str = SITE, signer: Signer | None = None
) -> Opener:
    """An opener that believes what ``make_outgoing`` made for the same backend."""
    return Opener(
        backend=backend,
        site=site,
        max_payload_bytes=MAX_PAYLOAD_BYTES,
        signer=signer or make_signer(),
    )


def make_outgoing(
    queue: str = "default",
    payload: Any = NO_ARGUMENTS,
    *,
    identifier: str | None = None,
    enqueued_at: int = 1_700_000_000_000_000,
    signer: Signer | None = None,
    **terms: Any,
) -> Outgoing:
    """A sealed message with a fresh id; ``terms`` are the fields of Terms."""
    stated = {"job": "tests.noop", "backend": "default", "site": SITE, **terms}
    seal = Seal(Terms(queue=queue, **stated), signer or make_signer())
    return seal.outgoing(identifier or new_id(), strict_json.dumps(payload), enqueued_at)
