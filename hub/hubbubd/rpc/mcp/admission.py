"""Who may use the endpoints for hosts: from which pages, under which names, with which credential (docs/mcp.md).

RFC 6750 and 9728, Fetch (CORS); MCP 2025-11-25, basic/authorization and transports, security warning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from hubbub_http import CERTIFICATE, MARK_AUTHENTICATED
from hubbubd.config.sections.network import is_loopback
from hubbubd.core.access import Principal
from hubbubd.core.hosts import endpoint_paths
from hubbubd.core.hosts.endpoint_paths import PATH
from hubbubd.core.jsonrpc import INVALID_REQUEST
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.errors import (
    HubError,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from hubbubd.rpc.auth import gate as auth
from hubbubd.rpc.context import Peer, amend_context, current, principal
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.listeners.host_check import is_loopback_name, is_served, parse_host
from hubbubd.rpc.login import metadata as login
from hubbubd.rpc.mcp.transport import SESSION_HEADER, VERSION_HEADER, Headers, HostHttpRequest, HttpRefusal

RPC: Final = "/hubbub.v1.McpService/Serve"
"""The RPC whose name a request of a host has in the table of permissions and in the audit log."""

CREDENTIAL_ADVICE: Final = (
    "a token of the hub is needed, as `Authorization: Bearer TOKEN`: `hubbub tokens create NAME --role caller` makes"
    " one"
)

LOGIN_ADVICE: Final = "; or log in, as this endpoint's metadata say (OAuth)"

_TOKEN_PARAMS: Final = ("access_token", "token")

_PREFLIGHT_S: Final = 7200
"""Seconds for which a browser remembers a preflight: two hours are the most that Chromium takes."""
_REQUEST_HEADERS: Final = "authorization, content-type, accept, last-event-id, traceparent, tracestate"
_RESPONSE_HEADERS: Final = ", ".join(("www-authenticate", SESSION_HEADER, VERSION_HEADER, "retry-after"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Decides whether a request of a host is served."""

    gate: auth.Gate
    oversight: Oversight
    origins: Callable[[], Sequence[str]] = tuple
    """The Origins of pages that may use the endpoints, besides those of loopback."""

    hosts: Callable[[], tuple[str, ...]] = tuple
    """Host names under which the endpoints are reached, besides those of loopback."""

    issuer: str | None = None
    """The identity provider whose tokens are accepted."""

    audience: str | None = None
    """The audience in the tokens of `issuer`; it may be the endpoints' URL."""

    secure: bool = False
    """Whether this port speaks TLS."""

    has_login: Callable[[], bool] = lambda: False
    """Returns whether the hub itself issues tokens to hosts, by a log-in."""

    public_url: str | None = None
    """The address of the endpoints behind a proxy; None without a proxy."""

    @property
    def is_seen_secure(self) -> bool:
        """Whether browsers speak TLS, to the hub or to the proxy before it."""
        return self.secure if self.public_url is None else self.public_url.startswith("https:")

    def check_host_and_origin(self, request: HostHttpRequest) -> None:
        """Refuse DNS rebinding: a Host that is not the hub's, or an Origin that is not allowed.

        Raises HttpRefusal. Allows the pages of the Origin to read the response (CORS).
        """
        address, _ = request.scope.get("server") or ("", 0)
        host, public_host = request.headers.get("host") or "", urlsplit(self.public_url or "").netloc
        if (not public_host or host.lower() != public_host) and not is_served(
            host, address, self.hosts(), secure=self.secure
        ):
            raise HttpRefusal(421, Refusal(INVALID_REQUEST, "this Host is not served here; mcp_hosts allows more"))
        origin = request.headers.get("origin")
        if origin is None or request.scope["path"] in login.PAGES:  # these pages check where a form comes from
            return
        if origin not in self.origins() and not _is_local_page(origin):
            message = "pages of this Origin may not use the hub; mcp_origins allows more"
            raise HttpRefusal(403, Refusal(INVALID_REQUEST, message))
        request.extra_headers += (
            (b"access-control-allow-origin", origin.encode()),
            (b"access-control-expose-headers", _RESPONSE_HEADERS.encode()),
            (b"vary", b"Origin"),
        )

    async def authenticate(self, request: HostHttpRequest) -> Principal:
        """Authenticate a request as an RPC, and return its caller. Records a refusal, and raises it as HubError."""
        peer = note_peer(request)
        try:
            query: bytes = request.scope.get("query_string", b"")
            params = parse_qsl(query.decode("latin-1"), keep_blank_values=True) if query else ()
            if params and any(name in _TOKEN_PARAMS for name, _ in params):
                raise Unauthenticated(
                    "a token in the URL is not taken, as it ends up in logs: send it as `Authorization: Bearer ...`",
                    reason="TOKEN_IN_URL",
                )
            caller = await self.gate.admit(RPC, request.fields, self.oversight, peer)
        except HubError as exc:
            raise self.oversight.record_refusal(RPC, self._reword_for_hosts(exc), principal()) from None
        assert caller is not None, "the peer was given"
        current().on_admitted()
        return caller

    def resource_metadata(self, request: HostHttpRequest) -> bytes:
        """Return the metadata that tells a host where to get a credential, as JSON (RFC 9728, section 2).

        Raises HttpRefusal without an authorization server: with metadata, hosts would try to log in, and fail.
        """
        has_login = self.has_login()
        issuer = self.base_url(request) if has_login else self.issuer
        path = unquote(request.scope["path"]).removeprefix(login.RESOURCE) or PATH
        if issuer is None or (has_login and endpoint_paths.parse(path) is None):
            raise HttpRefusal(404, Refusal(INVALID_REQUEST, f"there is no log-in here: {CREDENTIAL_ADVICE}"))
        return login.resource_metadata(self._endpoint_url(request, path), issuer, is_hub=has_login)

    def refusal_headers(self, request: HostHttpRequest, exc: HubError) -> Headers:
        """Return the headers of a refusal: how to authenticate, when to try again, or none."""
        if isinstance(exc, Unauthenticated):
            metadata_url = f"{self.base_url(request)}{login.RESOURCE}{quote(unquote(request.scope['path']), safe='/')}"
            challenge = [] if exc.reason == "TOKEN_MISSING" else ['error="invalid_token"']
            challenge += [f'resource_metadata="{metadata_url}"'] if self.has_login() or self.issuer is not None else []
            return ((b"www-authenticate", f"Bearer {', '.join(challenge)}".strip().encode()),)
        if exc.retry_after_s is not None:
            return ((b"retry-after", b"%d" % max(1, round(exc.retry_after_s))),)
        return ()

    def _endpoint_url(self, request: HostHttpRequest, path: str) -> str:
        """Return an endpoint's URL: the audience of the issuer's tokens if it is a URL, else the host's own."""
        if self.audience is not None and urlsplit(self.audience).scheme in ("http", "https"):
            return self.audience
        return f"{self.base_url(request)}{quote(path, safe='/')}"

    def base_url(self, request: HostHttpRequest) -> str:
        """Return the URL of this port without a path, as the sender of a request uses it."""
        return self.public_url or f"{'https' if self.secure else 'http'}://{request.headers.get('host')}"

    def _reword_for_hosts(self, exc: HubError) -> HubError:
        """Return an error with advice for hosts, which have no `client.json`."""
        if exc.reason != "TOKEN_MISSING":
            return exc
        return Unauthenticated(f"{CREDENTIAL_ADVICE}{LOGIN_ADVICE if self.has_login() else ''}", reason=exc.reason)


def note_peer(request: HostHttpRequest) -> Peer:
    """Set peer and address in the request's context, and return the peer."""
    host, port = request.scope.get("client") or ("", 0)
    peer = Peer(local=is_loopback(host), certificate=request.scope.get(CERTIFICATE))
    on_admitted: Callable[[], None] = request.scope.get(MARK_AUTHENTICATED, lambda: None)
    amend_context(peer=peer, on_admitted=on_admitted, address=f"{host}:{port}")
    return peer


def preflight_headers(request: HostHttpRequest) -> Headers:
    """Return the headers that tell a browser what a page may send (CORS preflight); its Origin was checked."""
    requested = request.headers.get("access-control-request-headers") or ""
    protocol_headers = [
        name for name in requested.lower().replace(" ", "").split(",") if name.startswith(("mcp-", "hubbub-"))
    ]
    headers: Headers = (
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", ", ".join((_REQUEST_HEADERS, *protocol_headers[:100])).encode("latin-1")),
        (b"access-control-max-age", str(_PREFLIGHT_S).encode()),
    )
    wants_private = request.headers.get("access-control-request-private-network") == "true"
    return (*headers, (b"access-control-allow-private-network", b"true")) if wants_private else headers


def http_status(exc: HubError) -> int:
    """Return the HTTP status of a refusal."""
    match exc:
        case Unauthenticated():
            return 401
        case PermissionDenied():
            return 403
        case NotFound():
            return 404
        case ResourceExhausted():
            return 413 if exc.reason == "MESSAGE_TOO_LARGE" else 429
        case Unavailable():
            return 503
        case _:
            return 400


def _is_local_page(origin: str) -> bool:
    """Return whether an Origin is that of a page of this machine."""
    scheme, _, authority = origin.partition("://")
    host = parse_host(authority) if scheme in ("http", "https") else None
    return host is not None and is_loopback_name(host)
