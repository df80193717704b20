"""Web push: browsers as targets. The push service of a browser carries what only that browser can read.

RFC 8030 (delivery), RFC 8188 and 8291 (encryption, by http-ece), RFC 8292 (VAPID).
"""

import hashlib
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import http_ece
import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from hubbub_client.transport.discovery import is_loopback
from hubbub_frontend.private_files import make_private_folder, write_private
from hubbub_notify.target import SendOutcome
from hubbub_notify.text import Notice

LIMIT_S = 30.0
"""Time limit of one attempt, seconds."""

LIFETIME_S = 12 * 3600
"""How long a push service keeps what a browser that is off has not fetched, and a signature is good, seconds."""

PADDED_BYTES = 3072
"""Bytes of each message, so that its length says nothing. What a browser must take is a little more."""

DEFAULT_CONTACT = "mailto:nobody@example.com"
RETRYABLE_STATUSES = frozenset((408, 425, 429))
GONE_STATUSES = frozenset((404, 410))


class Keys:
    """The keys of this page at push services: `public` is the key for subscriptions of browsers, base64url."""

    def __init__(self, file: Path) -> None:
        """Read the private key in the file. If there is no file, make a key and a file that only its owner can read.

        Raises OSError, and ValueError for a file without such a key.
        """
        try:
            self._private = _load_key(file)
        except FileNotFoundError:
            self._private = generate_private_key(SECP256R1())
            pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            make_private_folder(file.parent)
            write_private(file, pem)
        point = self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public = urlsafe_b64encode(point).rstrip(b"=").decode()

    def make_authorization_header(self, endpoint: str, contact: str | None) -> str:
        """Return the header that names the sender and its contact to the push service at `endpoint` (RFC 8292)."""
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(time.time()) + LIFETIME_S,
            "sub": contact or DEFAULT_CONTACT,
        }
        return f"vapid t={jwt.encode(claims, self._private, 'ES256')}, k={self.public}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """A browser that has subscribed. `on_unsubscribed` is called when its push service does not know it any more."""

    endpoint: str = field(repr=False)
    p256dh: bytes = field(repr=False)
    auth: bytes = field(repr=False)
    keys: Keys = field(repr=False)
    contact: str | None
    on_unsubscribed: Callable[[], None] = field(repr=False)

    @property
    def key(self) -> str:
        """Return a digest of the endpoint, which identifies the browser."""
        return hashlib.sha256(self.endpoint.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Return the name of the browser for people: `a browser by` the host of its push service."""
        return f"a browser by {urlsplit(self.endpoint).hostname}"

    async def send(self, notice: Notice) -> tuple[SendOutcome, str]:
        """Send a notice once, and return the outcome and its reason. A repeated push replaces the first in the browser.

        Call `on_unsubscribed` if the browser has unsubscribed, or if its key cannot be used.
        """
        headers = {
            "Authorization": self.keys.make_authorization_header(self.endpoint, self.contact),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(LIFETIME_S),
            "Urgency": "high",
            "Topic": notice.id,
        }
        try:
            encrypted = self._encrypt(notice)
        except ValueError:  # a page may give any bytes as its key
            self.on_unsubscribed()
            return "gave_up", "its key cannot be used"
        # A proxy of the environment must not get requests to a loopback address.
        loopback = is_loopback(urlsplit(self.endpoint).hostname or "")
        try:
            with anyio.fail_after(LIMIT_S):
                async with (
                    httpx2.AsyncClient(timeout=None, follow_redirects=False, trust_env=not loopback) as client,
                    client.stream("POST", self.endpoint, content=encrypted, headers=headers) as response,
                ):
                    status = response.status_code
        except TimeoutError:
            return "failed", f"no answer within {LIMIT_S:g} s"
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return "failed", type(error).__name__
        if 200 <= status < 300:
            return "sent", ""
        if status in GONE_STATUSES:
            self.on_unsubscribed()
            return "gave_up", "it has unsubscribed"
        return ("failed" if status in RETRYABLE_STATUSES or status >= 500 else "gave_up"), f"HTTP status {status}"

    def _encrypt(self, notice: Notice) -> bytes:
        """Encrypt a notice, its body cut until it fits. Raises ValueError for a key that cannot be used."""
        body = notice.body
        while len(message := _encode_message(notice, body)) > PADDED_BYTES:
            body = f"{body[: len(body) * 3 // 4]}…"
        encrypt = cast("Callable[..., bytes]", cast("Any", http_ece).encrypt)
        return encrypt(
            message.ljust(PADDED_BYTES),
            private_key=generate_private_key(SECP256R1()),
            dh=self.p256dh,
            auth_secret=self.auth,
            version="aes128gcm",
        )


def _load_key(file: Path) -> EllipticCurvePrivateKey:
    """Return the private key in a file. Raises OSError, ValueError."""
    pem = file.read_bytes()
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):  # damaged, or with a password
        key = None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise ValueError(f"{file} has no key of the curve P-256; delete it, and browsers subscribe again")
    return key


def _encode_message(notice: Notice, body: str) -> bytes:
    """Return a notice as the JSON that the page in the browser reads, with `body` in place of the notice's body."""
    return json.dumps({"id": notice.id, "title": notice.title, "body": body, "to": notice.to}).encode()
