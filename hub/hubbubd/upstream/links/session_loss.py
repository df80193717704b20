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
"""Seconds after the first refusal for which an older pending request is a sign that the session goes on."""


class SessionLossDetector:
    """What the responses on one connection say of its session.

    By the specification 404 ends a session (2025-11-25, basic/transports, session management). Servers that restart and
    forget, and balancers that lead to another server, refuse everything in other ways: with an error like "not
    initialized", or with another status. A ping has no params that could be wrong, so its refusal shows that.
    """

    def __init__(self) -> None:
        self._pings_work = False
        self._first_refused_id: int | None = None
        self._first_refused_at = 0.0

    def note_result(self, method: str) -> None:
        """Note a result: the session is alive."""
        self._pings_work = self._pings_work or method == "ping"
        self._first_refused_id = None

    def note_refusal(self, request_id: int | None) -> None:
        """Note a refusal that may be about the session."""
        if self._first_refused_id is None:
            self._first_refused_id = request_id
            self._first_refused_at = anyio.current_time()

    def is_over(self, ping: Exception, other_refusal: Exception | None, pending_ids: Iterable[int | str]) -> bool:
        """Return whether a refused ping shows that the session is over.

        `other_refusal` is how another request was refused just before. If pings never worked, a refused one counts only
        when its text is that of the other refusal. A status of 500 and above may be a gateway's, and temporary: it
        counts only beside another refusal. A request that was sent before the first refusal and is still pending is
        being served, so the session is not over, for UNDER_WAY_S.
        """
        if not _is_refused(ping):
            return False
        if not self._pings_work and (other_refusal is None or _refusal_text(ping) != _refusal_text(other_refusal)):
            return False
        if other_refusal is None and _http_status(ping) >= 500:
            return False
        first_refused = self._first_refused_id or 0
        is_served = any(isinstance(each, int) and each < first_refused for each in pending_ids)
        return not is_served or anyio.current_time() - self._first_refused_at > UNDER_WAY_S

    def may_be_over(self, ping: Exception) -> bool:
        """Return whether a refused ping may mean that the session is over, as pings worked before.

        This needs less evidence than `is_over`. The keep-alive counts such a ping as missed.
        """
        return self._pings_work and _is_refused(ping)


def may_concern_session(failure: Exception, outgoing: OutgoingMessage) -> bool:
    """Return whether a refusal may be about the session, and not about the request."""
    if isinstance(failure, PeerError):
        is_error_without_id = outgoing.status >= 400 and outgoing.error_lacks_id
        return is_error_without_id or failure.code not in ABOUT_REQUEST
    return outgoing.fault is not None and outgoing.fault.code == FaultCode.HTTP_ERROR


def may_be_retried(outgoing: OutgoingMessage) -> bool:
    """Return whether a request that was refused because its session is over can be sent in another session.

    A request that was refused by a status of 4xx was not carried out. After any other refusal this is not certain:
    then only idempotent requests are sent again.
    """
    return 400 <= outgoing.status < 500 or outgoing.method in REPEATABLE


def _is_refused(ping: Exception) -> bool:
    """Return whether a failed ping was refused: with an HTTP status, or an error other than an unknown method."""
    if isinstance(ping, PeerError):
        return ping.code != METHOD_NOT_FOUND
    return isinstance(ping, UpstreamError) and ping.fault.code == FaultCode.HTTP_ERROR


def _refusal_text(failure: Exception) -> tuple[object, ...]:
    """Return code or message, and text: two refusals for the same reason have the same."""
    if isinstance(failure, PeerError):
        return failure.code, failure.message
    assert isinstance(failure, UpstreamError)
    return failure.fault.message, failure.fault.details.get("body")


def _http_status(failure: Exception) -> int:
    """Return the HTTP status of a failure; 0 without one."""
    return failure.fault.details.get("status", 0) if isinstance(failure, UpstreamError) else 0
