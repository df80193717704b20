"""The requests of an OAuth flow and their replies, between the SDK's form and the hub's HTTP client."""

from typing import Final
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth
from multidict import CIMultiDict
from yarl import URL

from hubbubd.config.network import is_loopback
from hubbubd.errors import Fault, UpstreamError
from hubbubd.payload import loads
from hubbubd.upstream import faults
from hubbubd.upstream.checking import weight
from hubbubd.upstream.http.body import TooLarge
from hubbubd.upstream.http.client import AUTOMATIC, KEEPS_METHOD, Answer, Hop, HttpFailure, Request

REPLY_LIMIT_S: Final = 30.0
"""Seconds to wait for a part of an authorization server's reply."""

REPLY_BYTES: Final = 1024 * 1024
"""The largest reply of an authorization server."""

REPLY_VALUES: Final = 5000
"""The most JSON values in such a reply."""

CHALLENGE_BYTES: Final = 64 * 1024
"""How much is read of what a server says with a refusal."""

_OF_THE_WIRE: Final = frozenset({"connection", "content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers that belong to one hop, or that the HTTP client makes itself."""


class NoReply(Exception):
    """A request of a flow had no reply, for this reason."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def reply_to(outgoing: httpx2.Request, hop: Hop, server_url: str) -> httpx2.Response:
    """Send a request of a flow, whose target the server chose (SSRF). Raises OAuthFlowError, NoReply."""
    url = URL(str(outgoing.url), encoded=True)
    own = urlsplit(server_url).hostname or ""
    # A remote server must not direct the hub to services on the hub's own loopback.
    near = url.host == own or (is_loopback(own) and is_loopback(url.raw_host or ""))
    if url.scheme != "https" and not near:
        raise OAuthFlowError(f"{url.with_query(None)} is not https")
    headers = CIMultiDict((name, value) for name, value in outgoing.headers.items() if name not in _OF_THE_WIRE)
    headers.update(AUTOMATIC)
    try:
        answer = await hop(Request(outgoing.method, url, headers, await outgoing.aread() or None, read_s=REPLY_LIMIT_S))
        reply = await _reply(answer, outgoing)
    except HttpFailure as exc:
        note = f"{url.host} could not be asked: {exc.fault.message}"
        raise NoReply(faults.fault("AUTHENTICATION_FAILED", note, retryable=True)) from None
    except UpstreamError as exc:
        raise NoReply(exc.fault) from None
    await require_short(reply)
    return reply


def demands(answer: Answer) -> bool:
    """Return whether a response is a refusal that another token may change (RFC 6750, section 3.1)."""
    if answer.status != 403:
        return answer.status == 401
    response = httpx2.Response(403, headers=[*answer.headers.items()])
    return extract_field_from_www_auth(response, "error") == "insufficient_scope"


async def refusal(answer: Answer) -> httpx2.Response:
    """Return a refusal as the SDK takes it."""
    begun = await answer.beginning(CHALLENGE_BYTES, REPLY_LIMIT_S)
    return httpx2.Response(answer.status, headers=_headers(answer), content=begun)


async def _reply(answer: Answer, asked: httpx2.Request) -> httpx2.Response:
    """Return a reply as the SDK takes it. Raises HttpFailure, OAuthFlowError."""
    try:
        if answer.compressed:
            raise OAuthFlowError("the authorization server's reply is compressed")
        content = await answer.read(REPLY_BYTES)
    except TooLarge as exc:
        raise OAuthFlowError(f"the authorization server's reply does not fit: {exc}") from None
    finally:
        answer.close()
    reply = httpx2.Response(answer.status, headers=_headers(answer), content=content, request=asked)
    if reply.has_redirect_location and (asked.method == "GET" or reply.status_code in KEEPS_METHOD):
        # The SDK decides whether it is followed; then it passes `reply_to`, too.
        headers = {name: value for name, value in asked.headers.items() if name not in _OF_THE_WIRE}
        target = asked.url.join(reply.headers["location"])
        reply.next_request = httpx2.Request(asked.method, target, headers=headers, content=asked.content)
    return reply


def _headers(answer: Answer) -> list[tuple[str, str]]:
    return [(name, value) for name, value in answer.headers.items() if name.lower() not in _OF_THE_WIRE]


async def require_short(reply: httpx2.Response) -> None:
    """Raise OAuthFlowError for a reply with too many values: the SDK validates a reply in one go."""
    try:
        document = loads(await reply.aread())
    except ValueError:
        return  # not JSON, such as an error page
    if weight(document, REPLY_VALUES) >= REPLY_VALUES:
        raise OAuthFlowError(f"the authorization server's reply has more than {REPLY_VALUES} values")
