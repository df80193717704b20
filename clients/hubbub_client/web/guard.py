"""What every request must bring and every response carries, whatever it is about.

Host is checked against DNS rebinding, Origin against pages of other sites. What changes or tells anything is a POST
with a JSON body and a header of the page's own, neither of which another site can send without being asked first.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-hubbub-token"  # noqa: S105 - a header's name
MAX_BODY_BYTES = 6 * 1024 * 1024
"""An answer may have 4 MiB; JSON in JSON takes some more."""

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
            "trusted-types 'none'",
        )
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


def is_loopback(host: str) -> bool:
    """Whether this name or address never leaves the machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Refuses what a page of ours would not send, before anything looks at it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        problem = _problem(scope["method"], Headers(scope=scope))
        app = PlainTextResponse(problem[1], problem[0]) if problem else self._app
        await app(scope, receive, send_guarded)


def _problem(method: str, headers: Headers) -> tuple[int, str] | None:
    host = headers.get("host", "")
    if not _is_ours(host):
        return 421, "This is served to loopback addresses only."
    if method in ("GET", "HEAD"):
        return None
    if method != "POST":
        return 405, "Only GET and POST are served."
    if headers.get("origin") != f"http://{host}" or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return 403, "This comes from another site."
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "The body must be JSON."
    if TOKEN_HEADER not in headers:
        return 403, f"The header {TOKEN_HEADER} is missing."
    return None


def _is_ours(host: str) -> bool:
    """Any port will do: it differs where the page is reached through a tunnel."""
    try:
        return is_loopback(urlsplit(f"http://{host}").hostname or "")
    except ValueError:
        return False
