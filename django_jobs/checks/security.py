"""Keys and signatures. No message shows a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it
from django.utils.module_loading import import_string

from django_jobs.backends.base import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage

    from django_jobs.conf import JobsSettings, Problem

SHORTEST_KEY = 16
GOOD_KEY = 32
VARIED_KEY = 8


def check_verification(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Signatures are what keeps a stranger's message from being run."""
    if settings.verify_signatures:
        return
    for config in settings.backends.values():
        carrier = _class_of(config.path)
        if carrier is None or _runs_where_it_enqueues(carrier):
            continue
        if carrier.trusted_store:
            yield Warning(
                f"VERIFY_SIGNATURES is False: whoever can write to the job table of the "
                f"backend {config.alias!r} decides what workers run.",
                hint="Remove VERIFY_SIGNATURES; to retire a key, list the new one first in "
                "SIGNING_KEYS instead.",
                id="django_jobs.W001",
            )
        else:
            yield Error(
                f"VERIFY_SIGNATURES is False, which does not hold for the backend "
                f"{config.alias!r} ({config.path}): its jobs are verified all the same, because "
                "anyone who reaches a broker could decide what workers run.",
                hint="Remove VERIFY_SIGNATURES. It counts for jobs in your own database only.",
                id="django_jobs.E009",
            )


def _class_of(path: str) -> type[Backend] | None:
    """The class of a backend; None for what is reported elsewhere (E003, E004)."""
    try:
        found = import_string(path)
    except Exception:  # noqa: BLE001 - importing runs code that may raise anything
        return None
    return found if isinstance(found, type) and issubclass(found, Backend) else None


def _runs_where_it_enqueues(carrier: type[Backend]) -> bool:
    """Whether its messages never leave the process."""
    return carrier.ends_with_process or getattr(carrier, "runs_at_enqueue", False)


def check_key_strength(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """A key that can be guessed signs for everybody."""
    way_out = (
        "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(48))'. List it "
        "first in SIGNING_KEYS, and keep the old one behind it until its jobs have run."
    )
    for key in settings.signing_keys:
        length = len(key.secret)
        if length < SHORTEST_KEY:
            yield Error(
                f"The signing key {key.key_id!r} has {length} bytes and can be guessed.",
                hint=f"Use at least {GOOD_KEY}. {way_out}",
                id="django_jobs.E010",
            )
        elif length < GOOD_KEY or len(set(key.secret)) < VARIED_KEY:
            yield Warning(
                f"The signing key {key.key_id!r} is weak: {length} bytes, "
                f"{len(set(key.secret))} different ones.",
                hint=f"Use at least {GOOD_KEY} random bytes. {way_out}",
                id="django_jobs.W002",
            )


SECURITY_CHECKS = (check_verification, check_key_strength)
