"""The signing keys: SIGNING_KEYS, else JOBS_SIGNING_KEY, else keys derived from SECRET_KEY.

No message here shows a key, nor an id that might be a key in the wrong place.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING

from django_jobs.conf.parsers import Place, ProblemKind, SettingRefused
from django_jobs.wire.signing import SigningKey

if TYPE_CHECKING:
    from collections.abc import Iterable

ENVIRONMENT_KEY = "JOBS_SIGNING_KEY"
_PURPOSE = b"django_jobs.signing_key.v1"
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PAIR = 2
_WAY_OUT = (
    "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(48))' "
    "and keep it out of the code."
)


def derived(secret: str | bytes) -> SigningKey:
    """The signing key of a SECRET_KEY: good for job messages and for nothing else."""
    return SigningKey.unnamed(hmac.new(_raw(secret), _PURPOSE, hashlib.sha256).digest())


def configured(place: Place, value: object) -> tuple[SigningKey, ...]:
    """The keys of SIGNING_KEYS; the first signs, all verify."""
    if not isinstance(value, list | tuple):
        raise place.refused(
            f"is a {type(value).__name__}, not a list",
            "Give a list of keys, or of (key id, key) pairs; the first one signs.",
        )
    if not value:
        raise place.refused(
            "is an empty list",
            f"Leave it out to derive a key from SECRET_KEY, or fill it. {_WAY_OUT}",
            ProblemKind.NO_KEY,
        )
    parsed: dict[str, SigningKey] = {}
    for index, item in enumerate(value):
        place.collect(parsed, str(index), place.inside(index), item, _signing_key)
    keys = tuple(parsed.values())
    _report_duplicates(place, keys)
    return keys


def from_environment(value: str) -> tuple[SigningKey, ...]:
    """The key of the environment variable; raises Refused when it is empty."""
    place = Place(ENVIRONMENT_KEY)
    if not value.strip():
        raise place.refused(
            "is set in the environment but empty",
            f"Remove the variable to derive a key from SECRET_KEY, or fill it. {_WAY_OUT}",
            ProblemKind.NO_KEY,
        )
    return (SigningKey.unnamed(_raw(value)),)


def from_secret_key(
    secret_key: str | bytes, fallbacks: Iterable[str | bytes]
) -> tuple[SigningKey, ...]:
    """The keys derived from the site's own secrets; raises Refused when there are none."""
    if not secret_key:
        raise Place("SECRET_KEY").refused(
            "is empty, and there is no other key to sign jobs with",
            f"Set SECRET_KEY, or DJANGO_JOBS['SIGNING_KEYS']. {_WAY_OUT}",
            ProblemKind.NO_KEY,
        )
    keys = [derived(secret) for secret in (secret_key, *fallbacks) if secret]
    # During a rotation the current key is often among the fallbacks too.
    return tuple({key.key_id: key for key in reversed(keys)}.values())[::-1]


def _signing_key(place: Place, item: object) -> SigningKey:
    if isinstance(item, str | bytes):
        return SigningKey.unnamed(_secret(place, item))
    if not isinstance(item, list | tuple) or len(item) != _PAIR:
        raise place.refused(
            f"is a {type(item).__name__}", "Give a key as text, or a (key id, key) pair."
        )
    key_id, secret = item
    raw = _secret(place, secret)
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise place.refused(
            "has an unusable key id",
            "An id is 1 to 64 letters, digits, '_', '.' and '-'. It is public; the key comes "
            "second in the pair.",
        )
    if len(key_id) > len(raw):
        raise place.refused(
            "has an id that is longer than its key", "Write the pair as (key id, key)."
        )
    return SigningKey.named(key_id, raw)


def _secret(place: Place, secret: object) -> bytes:
    if not isinstance(secret, str | bytes):
        raise place.refused(f"holds a {type(secret).__name__} as key", "Give the key as text.")
    raw = _raw(secret)
    if not raw.strip():
        raise place.refused("holds an empty key", _WAY_OUT, ProblemKind.NO_KEY)
    return raw


def _raw(secret: str | bytes) -> bytes:
    # Bytes of the environment that are not UTF-8 arrive as lone surrogates.
    return secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret


def _report_duplicates(place: Place, keys: tuple[SigningKey, ...]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key.key_id in seen:
            refusal: SettingRefused = place.refused(
                f"has the key id {key.key_id!r} twice",
                "Give every key an id of its own, and list every key once.",
                ProblemKind.DUPLICATE_KEY,
            )
            place.problems.append(refusal.problem)
        seen.add(key.key_id)
