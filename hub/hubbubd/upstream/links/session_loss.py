"""Whether the session of a server over HTTP is over, though the server does not say so with 404."""

from collections.abc import Iterable
from typing import Final

import anyio
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED

from hubbubd.errors import FaultCode, PeerError, UpstreamError
from hubbubd.upstream.messages.exchange import OutgoingMessage
from hubbubd.upstream.messages.retries import REPEATABLE

ABOUT_REQUEST: Final = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED})
"""Codes of errors that are about the request, and not about the session."""

UNDER_WAY_S: Final = 60.0
"""Seconds for which a request that began before the first refusal keeps a session that seems to be over."""


class SessionLossDetector:
    """What the responses on one connection say of its session.

    By the specification 404 ends a session (2025-11-25, basic/transports, session management). Servers that restart and
    forget, and balancers that lead to another server, refuse everything in other ways: with an error like "not
    initialized", or with another status. A ping has nothing to object to, so a refused one tells.
    """

    def __init__(self) -> None:
        self._pings_work = False
        self._refused_from: int | None = None
        self._refused_at = 0.0

    def answered(self, method: str) -> None:
        """Note a result: the session is alive."""
        self._pings_work = self._pings_work or method == "ping"
        self._refused_from = None

    def refused(self, request_id: int | None) -> None:
        """Note a refusal that may be about the session."""
        if self._refused_from is None:
            self._refused_from = request_id
            self._refused_at = anyio.current_time()

    def is_over(self, ping: Exception, beside: Exception | None, under_way: Iterable[int | str]) -> bool:
        """Return whether a refused ping shows that the session is over.

        `beside` is how another request was refused just before. Pings that never worked tell only by refusing in the
        same words. A refusal with 500 and above may be of a gateway, and passes: it tells only beside another one.
        What has been `under_way` since before all refusals is served, so the session is not over for a while.
        """
        if not _is_refused(ping) or not (self._pings_work or (beside and _words(ping) == _words(beside))):
            return False
        if beside is None and _status(ping) >= 500:
            return False
        first = self._refused_from or 0
        served = any(isinstance(each, int) and each < first for each in under_way)
        return not served or anyio.current_time() - self._refused_at > UNDER_WAY_S

    def may_be_over(self, ping: Exception) -> bool:
        """Return whether a refused ping, if it is not the only one, shows that the session is over."""
        return self._pings_work and _is_refused(ping)


def is_doubtful(failure: Exception, exchange: OutgoingMessage) -> bool:
    """Return whether a refusal may be about the session. An error with a status may be if it names no request."""
    if isinstance(failure, PeerError):
        unnamed = exchange.status >= 400 and exchange.names_no_request
        return unnamed or failure.code not in ABOUT_REQUEST
    return exchange.fault is not None and exchange.fault.code == FaultCode.HTTP_ERROR


def may_go_again(exchange: OutgoingMessage) -> bool:
    """Return whether a request that was refused as all others are can go to another session.

    One that was refused by its status was not carried out. An error in a response with 200, or a broken server, says
    less: then only requests that are idempotent go again.
    """
    return 400 <= exchange.status < 500 or exchange.method in REPEATABLE


def _is_refused(ping: Exception) -> bool:
    if isinstance(ping, PeerError):
        return ping.code != METHOD_NOT_FOUND
    return isinstance(ping, UpstreamError) and ping.fault.code == FaultCode.HTTP_ERROR


def _words(failure: Exception) -> tuple[object, ...]:
    if isinstance(failure, PeerError):
        return failure.code, failure.message
    assert isinstance(failure, UpstreamError)
    return failure.fault.message, failure.fault.details.get("body")


def _status(failure: Exception) -> int:
    return failure.fault.details.get("status", 0) if isinstance(failure, UpstreamError) else 0
