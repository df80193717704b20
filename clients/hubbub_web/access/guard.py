"""Checks of every request, and headers of every response.

Host is checked against DNS rebinding, Origin against other sites. What changes or reads anything is a POST with a JSON
body and a header of the page's own; another site can send neither without a preflight.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub_client.transport.discovery import is_loopback

TOKEN_HEADER = "x-hubbub-token"  # noqa: S105 - a header's name
MAX_BODY_BYTES = 6 * 1024 * 1024
"""Largest body: an answer may have 4 MiB, and JSON within JSON takes more."""

HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "media-src data: blob:",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types hubbub-worker",
            "manifest-src 'self'",
            "worker-src 'self'",
        )
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


@dataclass(frozen=True, slots=True)
class Site:
    """The hosts at which the page is served: over TLS the `names` of its certificate, and loopback always."""

    names: frozenset[str] = frozenset()
    secure: bool = False

    @property
    def scheme(self) -> str:
        """Return the scheme of the page's addresses."""
        return "https" if self.secure else "http"

    def is_at(self, host: str) -> bool:
        """Return whether the page is served under a `Host`. Any port will do, since a tunnel changes the port."""
        try:
            name = urlsplit(f"{self.scheme}://{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self.names or f"*.{name.partition('.')[2]}" in self.names


class Guard:
    """Refuses requests that the page would not send, before anything reads them."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of HTTP, or refuse it; either way the response gets HEADERS."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            """Send a message of the response, with HEADERS at its start."""
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        problem = _find_problem(self._site, scope["method"], Headers(scope=scope))
        app = self._app
        if problem is not None:
            status, message = problem
            app = PlainTextResponse(message, status)
        await app(scope, receive, send_guarded)


def _find_problem(site: Site, method: str, headers: Headers) -> tuple[int, str] | None:
    """Return the status and message of a refusal; None for a request that the page may have sent."""
    host = headers.get("host", "")
    if not site.is_at(host):
        return 421, "This is not served under that name."
    if method in ("GET", "HEAD"):
        return None
    if method != "POST":
        return 405, "Only GET and POST are served."
    is_own_origin = headers.get("origin") == f"{site.scheme}://{host}"
    if not is_own_origin or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return 403, "This comes from another site."
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "The body must be JSON."
    if TOKEN_HEADER not in headers:
        return 403, f"The header {TOKEN_HEADER} is missing."
    return None
