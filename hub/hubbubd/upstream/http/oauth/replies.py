"""The requests of an OAuth flow and their replies, between the SDK's form and the hub's HTTP client."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth
from multidict import CIMultiDict
from yarl import URL

from hubbubd import payload
from hubbubd.config.sections.network import is_loopback
from hubbubd.errors import Fault, UpstreamError
from hubbubd.upstream import faults
from hubbubd.upstream.http.body import BodyTooLarge
from hubbubd.upstream.http.client import DEFAULT_HEADERS, KEEPS_METHOD, Hop, HttpFailure, HttpRequest, HttpResponse
from hubbubd.upstream.http.oauth.documents import (
    FlowKnowledge,
    classify_request,
    effective_status,
    parse_document,
    read_issuer,
    repair_document,
)
from hubbubd.upstream.protocol.schema_check import count_values

REPLY_LIMIT_S: Final = 30.0
"""Seconds to wait for a part of an authorization server's reply."""

REPLY_BYTES: Final = 1024 * 1024
"""The largest reply of an authorization server."""

REPLY_VALUES: Final = 5000
"""The most JSON values in such a reply."""

CHALLENGE_BYTES: Final = 64 * 1024
"""How much is read of what a server says with a refusal."""

_HOP_HEADERS: Final = frozenset({"connection", "content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers that belong to one hop, or that the HTTP client makes itself."""


class NoReply(Exception):
    """A request of a flow had no reply, for this reason."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class OAuthReply:
    """A reply to a request of a flow: its document, None if it has none, and the whole as the SDK takes it."""

    document: Any
    response: httpx2.Response
    issuer: str = ""
    """Of metadata: the issuer as the server spells it."""

    @property
    def methods(self) -> list[str] | None:
        """How clients may authenticate, as the metadata of an authorization server say; None if they do not."""
        document: Any = self.document
        if not isinstance(document, dict):
            return None
        methods = cast("dict[str, Any]", document).get("token_endpoint_auth_methods_supported")
        return [str(each) for each in cast("list[Any]", methods)] if isinstance(methods, list) else None


async def send_flow_request(
    outgoing: httpx2.Request, hop: Hop, server_url: str, knowledge: FlowKnowledge
) -> OAuthReply:
    """Send a request of a flow, if its target is https or the server's own host: a server may choose the target (SSRF).

    Raises OAuthFlowError, NoReply.
    """
    url = URL(str(outgoing.url), encoded=True)
    server_host = urlsplit(server_url).hostname or ""
    # A remote server must not direct the hub to services on the hub's own loopback.
    is_own_host = url.host == server_host or (is_loopback(server_host) and is_loopback(url.raw_host or ""))
    if url.scheme != "https" and not is_own_host:
        raise OAuthFlowError(f"{url.with_query(None)} is not https")
    headers = CIMultiDict((name, value) for name, value in outgoing.headers.items() if name not in _HOP_HEADERS)
    headers.update(DEFAULT_HEADERS | {"Accept": "application/json"})  # unasked, GitHub answers form-encoded
    try:
        response = await hop(
            HttpRequest(outgoing.method, url, headers, await outgoing.aread() or None, read_timeout_s=REPLY_LIMIT_S)
        )
        return await _read_reply(response, outgoing, knowledge)
    except HttpFailure as exc:
        note = f"{url.host} could not be asked: {exc.fault.message}"
        raise NoReply(faults.fault("AUTHENTICATION_FAILED", note, retryable=True)) from None
    except UpstreamError as exc:
        raise NoReply(exc.fault) from None


def is_access_refusal(response: HttpResponse) -> bool:
    """Return whether a response is a refusal that another token may change (RFC 6750, section 3.1)."""
    if response.status != 403:
        return response.status == 401
    headers = httpx2.Response(403, headers=[*response.headers.items()])
    return extract_field_from_www_auth(headers, "error") == "insufficient_scope"


async def read_sdk_refusal(response: HttpResponse) -> httpx2.Response:
    """Read the beginning of a refusal's body, and return the refusal as a response of the SDK's HTTP library."""
    beginning = await response.read_beginning(CHALLENGE_BYTES, REPLY_LIMIT_S)
    return httpx2.Response(response.status, headers=_forwarded_headers(response), content=beginning)


async def _read_reply(response: HttpResponse, outgoing: httpx2.Request, knowledge: FlowKnowledge) -> OAuthReply:
    """Read, repair and return a reply as the SDK takes it. Raises HttpFailure, OAuthFlowError."""
    try:
        if response.is_compressed:
            raise OAuthFlowError("the authorization server's reply is compressed")
        content = await response.read(REPLY_BYTES)
    except BodyTooLarge as exc:
        raise OAuthFlowError(f"the authorization server's reply does not fit: {exc}") from None
    finally:
        response.close()
    kind = classify_request(outgoing)
    status, document, issuer = response.status, None, ""
    with suppress(ValueError):  # no document, such as an error page
        document = parse_document(content, kind)
    if document is not None:
        require_few_values(document)
        issuer = read_issuer(document)
        document = repair_document(document, kind, knowledge)
        status, content = effective_status(document, kind, status), payload.dumps(document)
    reply = httpx2.Response(status, headers=_forwarded_headers(response), content=content, request=outgoing)
    if reply.has_redirect_location and (outgoing.method == "GET" or status in KEEPS_METHOD):
        # The SDK decides whether it is followed; then it passes `send_flow_request`, too.
        headers = {name: value for name, value in outgoing.headers.items() if name not in _HOP_HEADERS}
        target = outgoing.url.join(reply.headers["location"])
        reply.next_request = httpx2.Request(outgoing.method, target, headers=headers, content=outgoing.content)
    return OAuthReply(document, reply, issuer)


def _forwarded_headers(response: HttpResponse) -> list[tuple[str, str]]:
    """Return the headers of a response that the SDK gets: without those of one hop."""
    return [(name, value) for name, value in response.headers.items() if name.lower() not in _HOP_HEADERS]


def require_few_values(document: Any) -> None:
    """Raise OAuthFlowError for a reply with too many values: the SDK validates a reply in one go."""
    if count_values(document, REPLY_VALUES) >= REPLY_VALUES:
        raise OAuthFlowError(f"the authorization server's reply has more than {REPLY_VALUES} values")
