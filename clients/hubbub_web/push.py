"""Browsers that want pushes: what they say of themselves, and whether it can be believed."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast
from urllib.parse import urlsplit

import anyio

from hubbub_client.errors import InvalidArgument
from hubbub_client.hub import Hub
from hubbub_client.transport.discovery import is_loopback

HOSTS = (
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "*.notify.windows.com",
    "web.push.apple.com",
    "*.push.apple.com",
)
"""Push services of browsers. By others, a page could have the bridge send where only the bridge can reach."""

LONGEST = 2000
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
class Pushing:
    """What sends pushes. `key` returns what browsers subscribe with, or raises OSError or ValueError; it blocks. `run`
    waits for the first subscription, and then sends to those that it is given, until cancelled.
    """

    key: Callable[[], str]
    hosts: tuple[str, ...]
    run: Callable[[Hub, anyio.Event, Callable[[], Sequence[Subscriber]]], Coroutine[Any, Any, None]]


def subscription(shape: object, hosts: Sequence[str]) -> Subscription:
    """Return the subscription in a page's words. Raises InvalidArgument."""
    given = _mapping(shape)
    endpoint = given.get("endpoint")
    if (
        not isinstance(endpoint, str)
        or len(endpoint) > LONGEST
        or not endpoint.isascii()
        or not _is_allowed(endpoint, hosts)
    ):
        raise InvalidArgument(
            "the push service of this browser is not known here; `hubbub web --push-host HOST` allows another",
            reason="PUSH_HOST_NOT_ALLOWED",
        )
    keys = _mapping(given.get("keys"))
    p256dh, auth = _decoded(keys.get("p256dh")), _decoded(keys.get("auth"))
    if len(p256dh) != 65 or p256dh[0] != 4 or len(auth) != 16:
        raise InvalidArgument("these are no keys of a subscription", violations=(("keys", "cannot be used"),))
    return Subscription(endpoint, p256dh, auth)


def _is_allowed(endpoint: str, hosts: Sequence[str]) -> bool:
    try:
        where = urlsplit(endpoint)
        host, _ = where.hostname or "", where.port
    except ValueError:
        return False
    if where.username or where.scheme not in ("http", "https") or (where.scheme == "http" and not is_loopback(host)):
        return False
    return any(fnmatchcase(host, pattern) for pattern in hosts)


def _decoded(text: object) -> bytes:
    try:
        return urlsafe_b64decode(f"{text}==") if isinstance(text, str) and len(text) < 200 else b""
    except ValueError:
        return b""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
