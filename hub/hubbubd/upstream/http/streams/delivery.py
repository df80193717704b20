"""Delivers messages over HTTP: statuses and `Retry-After`, the delivery of answers, retries, lost sessions."""

from dataclasses import dataclass
from typing import Final

import anyio
from mcp_types import JSONRPCError

from hubbubd.errors import Fault, FaultCode, UpstreamError
from hubbubd.upstream import faults
from hubbubd.upstream.http.client import (
    HttpClient,
    HttpFailure,
    HttpRequest,
    HttpResponse,
    describe_redirect,
    is_redirect,
)
from hubbubd.upstream.messages.codec import BadMessage, parse_message
from hubbubd.upstream.messages.exchange import OUTGOING, OutgoingMessage
from hubbubd.upstream.messages.retries import STALE_CONNECTIONS
from hubbubd.upstream.messages.streams import MarkLost

SESSION: Final = "mcp-session-id"
"""The header that names a session."""

ACKNOWLEDGE_LIMIT_S: Final = 30.0
"""Seconds to wait for a server to accept an answer or notification."""

RETRY_PAUSES_S: Final = (0.1, 0.5)
"""Pauses before the retries of an answer or notification whose connection broke, in seconds."""

GATEWAYS: Final = (502, 503, 504)
"""Statuses that a gateway may have answered in the server's place."""

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error response's body is read."""


class MessageRefused(Exception):
    """The server did not accept a message. `error` is its JSON-RPC error; unless `was_sent`, it was not reached."""

    def __init__(self, fault: Fault, error: JSONRPCError | None = None, *, was_sent: bool = True) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.error = error
        self.was_sent = was_sent


@dataclass(slots=True)
class MessageDelivery:
    """Sends the messages of one connection, and notes in the `OutgoingMessage` what became of each.

    With `all_vital` the connection is lost with any message that is not accepted: for HTTP with SSE, where the response
    comes over another connection. Else only with the first notification, for which a server may wait, and not if the
    server itself refuses it.
    """

    client: HttpClient
    mark_lost: MarkLost
    all_vital: bool
    _has_notified: bool = False

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a message and return its response. Raises MessageRefused for a refusal, a redirect, or no response."""
        outgoing = OUTGOING.get()
        if outgoing is not None:
            outgoing.session_id = request.headers.get(SESSION)
        if outgoing is None or not outgoing.awaits_result:
            request.read_timeout_s = ACKNOWLEDGE_LIMIT_S
        try:
            response = await self._send_with_retries(request, outgoing)
        except HttpFailure as exc:
            # A message whose own connection breaks costs itself alone: calls go on beside it.
            raise self._note_failure(exc.fault, outgoing, unreached=not exc.may_have_arrived) from None
        except UpstreamError as exc:
            raise self._note_failure(exc.fault, outgoing, unreached=False) from None
        except BaseException:
            if outgoing is not None:
                outgoing.settle("the connection closed before the answer was taken")
            raise
        await self._check_status(request, response, outgoing)
        return response

    async def _send_with_retries(self, request: HttpRequest, outgoing: OutgoingMessage | None) -> HttpResponse:
        """Send a request. Answers and notifications are idempotent, so they are retried when their connection broke."""
        if outgoing is not None and outgoing.awaits_result:
            return await self._send_request(request, outgoing.method)
        for pause_s in RETRY_PAUSES_S:
            try:
                response = await self.client.send(request)
            except HttpFailure as exc:
                if not exc.may_have_arrived or exc.timed_out:
                    raise
            else:
                if response.status not in GATEWAYS:
                    return response
                response.close()
            await anyio.sleep(pause_s)
        return await self.client.send(request)

    async def _send_request(self, request: HttpRequest, method: str) -> HttpResponse:
        """Send a request, and again over a new connection where that is safe (`SendProgress.may_be_retried`)."""
        for _ in range(STALE_CONNECTIONS):
            try:
                return await self.client.send(request)
            except HttpFailure as exc:
                if not exc.may_have_arrived or exc.timed_out or not request.progress.may_be_retried(method):
                    raise
        return await self.client.send(request)

    def _note_failure(self, fault: Fault, outgoing: OutgoingMessage | None, *, unreached: bool) -> MessageRefused:
        """Note that a message could not be sent, or its response not be used; return the exception to raise.

        The connection is marked as lost if the server was not reached, or if the message is vital.
        """
        _note_outcome(outgoing, fault)
        if unreached or self._is_vital(outgoing):
            self.mark_lost(fault)
        return MessageRefused(fault, was_sent=not unreached)

    def _is_vital(self, outgoing: OutgoingMessage | None) -> bool:
        """Return whether the connection is lost if this message is not accepted; None stands for a notification."""
        return self.all_vital or (outgoing is None and not self._has_notified)

    async def _check_status(
        self, request: HttpRequest, response: HttpResponse, outgoing: OutgoingMessage | None
    ) -> None:
        """Raise MessageRefused for a response that is a refusal, a redirect or compressed; else note the success."""
        if response.status >= 400:
            raise await self._note_refusal(request, response, outgoing)
        if is_redirect(response):
            response.close()
            note = describe_redirect(request.url, response)
            fault = faults.fault("HTTP_ERROR", note, status=response.status)
            _note_outcome(outgoing, fault)
            if self.all_vital:
                self.mark_lost(fault)
            raise MessageRefused(fault)
        if response.is_compressed:
            response.close()
            raise self._note_failure(faults.fault("INVALID_RESPONSE", "it is compressed"), outgoing, unreached=False)
        self._has_notified = self._has_notified or outgoing is None
        if outgoing is not None and outgoing.awaits_result and not self.all_vital:
            outgoing.fault = None
        else:
            _note_outcome(outgoing, None)

    async def _note_refusal(
        self, request: HttpRequest, response: HttpResponse, outgoing: OutgoingMessage | None
    ) -> MessageRefused:
        """Note a refusal by status, and whether it ends the connection; return the exception to raise."""
        body = await response.read_beginning(ERROR_BODY_BYTES, ACKNOWLEDGE_LIMIT_S)
        in_session = SESSION in request.headers
        fault = faults.fault_from_status(response.status, response.headers, body, in_session=in_session)
        error = _error_message(response, body)
        _note_outcome(outgoing, fault)
        awaits_result = outgoing is not None and outgoing.awaits_result
        if outgoing is not None and outgoing.awaits_result:
            own_error = error if fault.code == FaultCode.HTTP_ERROR else None
            outgoing.status = response.status
            # A JSON-RPC error with an id is about that request; without one it may be about the session.
            outgoing.error_lacks_id = own_error is None or own_error.id is None
            # A ping has no params that could be wrong: a refusal is about the session.
            if outgoing.method == "ping" and in_session and response.status == 400 and outgoing.error_lacks_id:
                fault = outgoing.fault = faults.fault("SESSION_LOST", "HTTP 400", **fault.details)
            elif own_error is not None:
                outgoing.fault = None
        is_connection_lost = self._is_vital(outgoing) and (self.all_vital or response.status in GATEWAYS)
        # A 404 for an answer or notification may be about itself: some servers do not know them.
        if is_connection_lost or (fault.code == FaultCode.SESSION_LOST and awaits_result):
            self.mark_lost(fault)
        return MessageRefused(fault, error)


def _note_outcome(outgoing: OutgoingMessage | None, fault: Fault | None) -> None:
    """Note the outcome of a message: its fault, or None when it was accepted."""
    if outgoing is not None:
        outgoing.fault = fault
        outgoing.settle(fault.message if fault else None)


def _error_message(response: HttpResponse, body: bytes) -> JSONRPCError | None:
    """Return the JSON-RPC error that a response has; None without one."""
    if not response.content_type.startswith("application/json"):
        return None
    try:
        message = parse_message(body)
    except BadMessage:
        return None
    return message if isinstance(message, JSONRPCError) else None
