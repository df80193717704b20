"""Statements of the hub's own that others carry: signed, not sealed, so they hold no secret.

    statement = base64url(JSON) "." base64url(HMAC-SHA-256(key, purpose, JSON))

A registered program's id is one, so registrations take no room, and nobody is locked out by those of others (RFC 7591,
appendix A.5.2). Another is what a consent page was shown for. A statement of one purpose is none of another.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, cast

from hubbubd import payload

MAX_STATEMENT: Final = 12_000
"""Characters of a statement; the hub's own are shorter."""


def sign(key: bytes, purpose: str, members: Mapping[str, Any]) -> str:
    """Return the statement of these members, JSON values."""
    body = payload.dumps(dict(members))
    return f"{_encode(body)}.{_encode(mac(key, purpose, body))}"


def read(key: bytes, purpose: str, statement: str) -> dict[str, Any] | None:
    """Return the members of a statement; None if it is not of this key and purpose."""
    body_text, _, mac_text = statement.partition(".")
    if len(statement) > MAX_STATEMENT or not statement.isascii():
        return None
    try:
        body, received_mac = _decode(body_text), _decode(mac_text)
    except ValueError:
        return None
    if not hmac.compare_digest(mac(key, purpose, body), received_mac):
        return None
    # Only one text stands for these bytes: base64 ignores some bits at its end.
    if f"{_encode(body)}.{_encode(received_mac)}" != statement:
        return None
    return cast("dict[str, Any]", payload.loads(body))


def mac(key: bytes, purpose: str, data: bytes) -> bytes:
    """Return the HMAC of the data, which proves that the key's holder made it for this purpose."""
    return hmac.digest(key, purpose.encode() + b"\0" + data, hashlib.sha256)


def _encode(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Return the bytes of base64url without padding. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
