"""Browsers that want pushes: what they say of themselves, and whether it can be believed."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

import anyio

from hubbub_client.errors import InvalidArgument
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_client.transport.discovery import is_loopback

PUSH_HOSTS = (
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "*.notify.windows.com",
    "web.push.apple.com",
    "*.push.apple.com",
)
"""Push services of browsers. By others, a page could have the bridge send where only the bridge can reach."""

MAX_ENDPOINT_CHARS = 2000
"""Characters of an endpoint."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Where a browser gets its pushes, and the keys with which they are sealed."""

    endpoint: str = field(repr=False)
    p256dh: bytes = field(repr=False)
    auth: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscription, and how to end it."""

    subscription: Subscription
    end: Callable[[], None]


@dataclass(frozen=True, slots=True)
class PushGateway:
    """What sends pushes. `key` returns what browsers subscribe with, or raises OSError or ValueError; it blocks. `run`
    waits for the first subscription, and then sends to those that it is given, until cancelled.
    """

    key: Callable[[], str]
    hosts: tuple[str, ...]
    run: Callable[[Hub, anyio.Event, Callable[[], Sequence[Subscriber]]], Coroutine[Any, Any, None]]


def parse_subscription(document: object, hosts: Sequence[str]) -> Subscription:
    """Return the subscription that a page sends. Raises InvalidArgument."""
    fields = as_object(document)
    endpoint = fields.get("endpoint")
    if not isinstance(endpoint, str) or not _is_allowed(endpoint, hosts):
        raise InvalidArgument(
            "the push service of this browser is not known here; `hubbub web --push-host HOST` allows another",
            reason="PUSH_HOST_NOT_ALLOWED",
        )
    keys = as_object(fields.get("keys"))
    p256dh, auth = _decode_key(keys.get("p256dh")), _decode_key(keys.get("auth"))
    # RFC 8291: an uncompressed point of P-256 begins with 4 and has 65 bytes, the secret has 16.
    if len(p256dh) != 65 or p256dh[0] != 4 or len(auth) != 16:
        raise InvalidArgument("these are no keys of a subscription", violations=(("keys", "cannot be used"),))
    return Subscription(endpoint, p256dh, auth)


def _is_allowed(endpoint: str, hosts: Sequence[str]) -> bool:
    """Return whether an endpoint is at one of the hosts, and is reached over https, or over http on loopback."""
    if len(endpoint) > MAX_ENDPOINT_CHARS or not endpoint.isascii():
        return False
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port  # reading the port checks it
    except ValueError:
        return False
    is_private = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return is_private and not parts.username and any(fnmatchcase(host, pattern) for pattern in hosts)


def _decode_key(text: object) -> bytes:
    """Return the bytes of a key in base64url; empty if the text is no such key."""
    try:
        return urlsafe_b64decode(f"{text}==") if isinstance(text, str) and len(text) < 200 else b""
    except ValueError:
        return b""
