"""Secrets as bytes that can be read only with a key of the vault, and only in the place where they were put.

Each version of a row has a key of its own (AES-256-GCM), which is wrapped with a key of the vault. Both bind the place:
the vault, the row and its version. So no row can stand for another one, and no content for that of another version.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbubd import payload

FORMAT: Final = "hubbub/1"

KEY_BYTES: Final = 32
"""AES-256."""

NONCE_BYTES: Final = 12
"""Random. A key of the vault wraps one key for each version of a row: far fewer than the 2^32 that it is good for (NIST
SP 800-38D, section 8.3)."""

ID_DIGITS: Final = 12
"""Hexadecimal digits of a key's id."""


class UnreadableSecret(Exception):
    """The sealed content of a row cannot be opened: it was changed, or is of another place, version or key."""


@dataclass(frozen=True, slots=True)
class VaultKey:
    """A key of the vault. `id` names it and tells nothing of it."""

    secret: bytes = field(repr=False)
    id: str = ""

    @classmethod
    def with_id(cls, secret: bytes) -> Self:
        """Return the key of these bytes, with its id. Raises ValueError unless there are KEY_BYTES bytes."""
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, and this has {len(secret)}")
        digest = hashlib.sha256(f"{FORMAT} key".encode() + secret).hexdigest()
        return cls(secret, digest[:ID_DIGITS])


@dataclass(frozen=True, slots=True)
class SealLocation:
    """The place for which something is sealed: the vault's id, the row's name and kind, and its version."""

    vault: str
    name: str
    kind: str
    version: int

    @property
    def associated_data(self) -> bytes:
        """The authenticated data of both encryptions: no two places have the same."""
        return payload.dumps([FORMAT, self.vault, self.name, self.kind, self.version])


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A row: the id of a vault key, the row's key `wrapped` with it, and the `content` sealed with the row's key."""

    key_id: str
    wrapped: bytes = field(repr=False)
    content: bytes = field(repr=False)


def seal(key: VaultKey, location: SealLocation, content: bytes) -> SealedSecret:
    """Encrypt a content for its place: the content with a new key of the row, and this key with `key`."""
    row_key = secrets.token_bytes(KEY_BYTES)
    associated_data = location.associated_data
    return SealedSecret(
        key.id, _encrypt(key.secret, row_key, associated_data), _encrypt(row_key, content, associated_data)
    )


def unseal(key: VaultKey, location: SealLocation, sealed: SealedSecret) -> bytes:
    """Return the content that was sealed for this place. Raises UnreadableSecret."""
    associated_data = location.associated_data
    return _decrypt(_decrypt(key.secret, sealed.wrapped, associated_data), sealed.content, associated_data)


def rewrap(old: VaultKey, new: VaultKey, location: SealLocation, sealed: SealedSecret) -> SealedSecret:
    """Return the same sealed content, whose row key is now encrypted with `new` instead of `old`.

    Raises UnreadableSecret.
    """
    associated_data = location.associated_data
    row_key = _decrypt(old.secret, sealed.wrapped, associated_data)
    return SealedSecret(new.id, _encrypt(new.secret, row_key, associated_data), sealed.content)


def _encrypt(key: bytes, content: bytes, associated_data: bytes) -> bytes:
    """Return a random nonce, followed by the encrypted bytes; decryption needs the same `associated_data`."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, content, associated_data)


def _decrypt(key: bytes, encrypted: bytes, associated_data: bytes) -> bytes:
    """Return the bytes that `_encrypt` has encrypted. Raises UnreadableSecret for another key or `associated_data`."""
    try:
        return AESGCM(key).decrypt(encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:], associated_data)
    except (InvalidTag, ValueError):  # ValueError: too short for a nonce, or a key of another length
        raise UnreadableSecret from None
