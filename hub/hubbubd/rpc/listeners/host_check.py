"""Under which names an HTTP port is reached: against pages that rebind a name of theirs to the hub's address.

RFC 9110, section 7.2; MCP 2025-11-25, basic/transports, security warning.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hubbubd.config.sections.network import is_loopback

_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,300}")


@lru_cache(maxsize=64)
def is_served(authority: str, address: str, hosts: tuple[str, ...], *, secure: bool) -> bool:
    """Return whether a request's `Host` is one of this port's: one of `hosts`, or the `address` that it came to.

    On loopback, or without TLS, the names of loopback count, too. With TLS beyond loopback all names count if `hosts`
    is empty: a page that rebinds a name of its own lacks the certificate for it.
    """
    name = parse_host(authority)
    if name is None:
        return False
    allowed = [each.strip("[]") for each in hosts]
    if name in allowed or name == address:
        return True
    if is_loopback(address) or not secure:
        return is_loopback_name(name)
    return not allowed


def parse_host(authority: str) -> str | None:
    """Return the host of `HOST[:PORT]`, in lower case, without the brackets of IPv6; None for any other text."""
    if _AUTHORITY.fullmatch(authority) is None:
        return None
    try:
        parts = urlsplit(f"//{authority}")
        return parts.hostname if parts.port is None or parts.port else None  # there is no port 0
    except ValueError:
        return None


def is_loopback_name(host: str) -> bool:
    """Return whether a name is one of this machine's own."""
    return host == "localhost" or is_loopback(host)


def wrap_with_host_check(
    app: ASGIApp, origins: Callable[[], Sequence[str]], hosts: Callable[[], Sequence[str]], *, secure: bool
) -> ASGIApp:
    """Return the application behind a check that refuses DNS rebinding and pages of other Origins (simple requests)."""

    async def serve_checked(scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or refuse it: 421 for a Host that is not served here, 403 for another Origin."""
        headers, (address, _) = dict(scope["headers"]), scope.get("server") or ("", 0)
        origin = headers.get(b"origin", b"").decode("latin-1")
        served: ASGIApp = app
        if not is_served(headers.get(b"host", b"").decode("latin-1"), address, tuple(hosts()), secure=secure):
            served = PlainTextResponse("This Host is not served here; connect_hosts allows more.\n", 421)
        elif origin and origin not in origins():
            served = PlainTextResponse("Pages of this Origin may not use the hub; connect_origins allows more.\n", 403)
        await served(scope, receive, send)

    return serve_checked
