"""HMAC-SHA256 over the exact bytes that travel, with rotation.

The signature covers a version tag, the key id and the body bytes, so a signature made
for one purpose or key id is not valid for another. The first key signs, every key verifies.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAG = b"django_jobs.envelope.v1\x00"
_HEX_LENGTH = hashlib.sha256().digest_size * 2


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret and the public name it is known by on the wire."""

    key_id: str
    secret: bytes = field(repr=False)

    @classmethod
    def named(cls, key_id: str, secret: str | bytes) -> SigningKey:
        return cls(key_id, secret.encode() if isinstance(secret, str) else secret)

    @classmethod
    def unnamed(cls, secret: str | bytes) -> SigningKey:
        """A key whose id is a digest of it: stable, and reveals nothing of the secret."""
        raw = secret.encode() if isinstance(secret, str) else secret
        digest = hashlib.sha256(b"django_jobs.key_id\x00" + raw).hexdigest()
        return cls(digest[:12], raw)


class Signer:
    """Signs with the first of its keys and verifies with any of them."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        if not keys or not all(key.secret for key in keys):
            raise ValueError("a signer needs at least one key, and no empty one")
        self._keys = {key.key_id: _prepared(key) for key in keys}
        self.key_id = keys[0].key_id
        self._current = self._keys[self.key_id]

    def sign(self, body: str) -> str:
        """The signature of a body under the current key, as lower-case hex."""
        mac = self._current.copy()
        mac.update(body.encode())
        return mac.hexdigest()

    def verify(self, body: bytes, signature: str, key_id: str) -> bool:
        """Whether the signature was made over these bytes under the key of that id."""
        digest = _decoded(signature)
        prepared = self._keys.get(key_id)
        # An unknown key id costs the same work as a wrong signature.
        mac = (prepared or self._current).copy()
        mac.update(body)
        matches = hmac.compare_digest(mac.digest(), digest)
        return matches and prepared is not None

    def knows(self, key_id: str) -> bool:
        return key_id in self._keys


def _prepared(key: SigningKey) -> hmac.HMAC:
    prefix = _TAG + key.key_id.encode() + b"\x00"
    return hmac.new(key.secret, prefix, hashlib.sha256)


def _decoded(signature: str) -> bytes:
    """The signature's bytes; text that is not valid hex matches nothing."""
    if len(signature) != _HEX_LENGTH:
        return b""
    try:
        return bytes.fromhex(signature)
    except ValueError:
        return b""
