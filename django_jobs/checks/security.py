"""Keys and signatures. No message shows a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it

from django_jobs.routers import shipped_parent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage

    from django_jobs.conf import JobsSettings, Problem

SHORTEST_KEY = 16
GOOD_KEY = 32
VARIED_KEY = 8
# Messages of these never leave the process.
_IN_PROCESS = frozenset({"sync", "memory"})


def check_verification(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Signatures are what keeps a stranger's message from being run."""
    if settings.verify_signatures:
        return
    for config in settings.backends.values():
        carrier = shipped_parent(config.path)
        if carrier == "database":
            yield Warning(
                f"VERIFY_SIGNATURES is False: whoever can write to the job table of the "
                f"backend {config.alias!r} decides what workers run.",
                hint="Remove VERIFY_SIGNATURES; to retire a key, list the new one first in "
                "SIGNING_KEYS instead.",
                id="django_jobs.W001",
            )
        elif carrier not in _IN_PROCESS:
            yield Error(
                f"VERIFY_SIGNATURES is False while the backend {config.alias!r} "
                f"({config.path}) is a broker: whoever reaches it decides what workers run.",
                hint="Remove VERIFY_SIGNATURES. It is possible on the database only.",
                id="django_jobs.E009",
            )


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
