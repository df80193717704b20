"""What becomes of a request over HTTP: statuses and `Retry-After`, the delivery of answers, retries, lost sessions."""

from dataclasses import dataclass
from typing import Final

import anyio
from mcp_types import JSONRPCError

from hubbubd.errors import Fault, FaultCode, UpstreamError
from hubbubd.upstream import faults
from hubbubd.upstream.http.client import HttpClient, HttpFailure, HttpRequest, HttpResponse, is_redirect, not_followed
from hubbubd.upstream.messages.codec import BadMessage, parse_message
from hubbubd.upstream.messages.exchange import OUTGOING, OutgoingMessage
from hubbubd.upstream.messages.retries import STALE_CONNECTIONS
from hubbubd.upstream.messages.streams import MarkLost

SESSION: Final = "mcp-session-id"
"""The header that names a session."""

ACKNOWLEDGE_LIMIT_S: Final = 30.0
"""Seconds to wait for a server to accept an answer or notification."""

AGAIN_AFTER_S: Final = (0.1, 0.5)
"""Pauses before the retries of an answer or notification whose connection broke, in seconds."""

GATEWAYS: Final = (502, 503, 504)
"""Statuses that a gateway may have answered in the server's place."""

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error response's body is read."""


class MessageRefused(Exception):
    """A message was not taken. `said` is the server's own error; if not `sent`, there was no connection for it."""

    def __init__(self, fault: Fault, said: JSONRPCError | None = None, *, sent: bool = True) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.said = said
        self.sent = sent


@dataclass(slots=True)
class MessageDelivery:
    """Sends the messages of one connection, and notes in the exchange what became of each.

    With `all_vital` the connection is lost with any message that is not taken: for HTTP with SSE, where the response
    comes by another way. Else only with the first notification, for which a server may wait.
    """

    client: HttpClient
    mark_lost: MarkLost
    all_vital: bool
    _greeted: bool = False

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a message, and return what is neither a refusal nor a redirect. Raises MessageRefused."""
        exchange = OUTGOING.get()
        if exchange is not None:
            exchange.session_id = request.headers.get(SESSION)
        if exchange is None or not exchange.awaits_result:
            request.read_s = ACKNOWLEDGE_LIMIT_S
        try:
            answer = await self._sent(request, exchange)
        except HttpFailure as exc:
            # A message whose own connection breaks costs itself alone: calls go on beside it.
            raise self._failed(exc.fault, exchange, lost=not exc.reached) from None
        except UpstreamError as exc:
            raise self._failed(exc.fault, exchange, lost=False) from None
        except BaseException:
            if exchange is not None:
                exchange.settle("the connection closed before the answer was taken")
            raise
        await self._judge(request, answer, exchange)
        return answer

    async def _sent(self, request: HttpRequest, exchange: OutgoingMessage | None) -> HttpResponse:
        """Send a request. Answers and notifications are idempotent, so they are retried when their connection broke."""
        if exchange is not None and exchange.awaits_result:
            return await self._sent_unless_begun(request, exchange.method)
        for pause_s in AGAIN_AFTER_S:
            try:
                answer = await self.client.send(request)
            except HttpFailure as exc:
                if not exc.reached or exc.too_slow:
                    raise
            else:
                if answer.status not in GATEWAYS:
                    return answer
                answer.close()
            await anyio.sleep(pause_s)
        return await self.client.send(request)

    async def _sent_unless_begun(self, request: HttpRequest, method: str) -> HttpResponse:
        """Send a request, and again over a new connection where that is safe (`Way.may_be_retried`)."""
        for _ in range(STALE_CONNECTIONS):
            try:
                return await self.client.send(request)
            except HttpFailure as exc:
                if not exc.reached or exc.too_slow or not request.way.may_be_retried(method):
                    raise
        return await self.client.send(request)

    def _failed(self, fault: Fault, exchange: OutgoingMessage | None, *, lost: bool) -> MessageRefused:
        _note(exchange, fault)
        if lost or self._is_vital(exchange):
            self.mark_lost(fault)
        return MessageRefused(fault, sent=not lost)

    def _is_vital(self, exchange: OutgoingMessage | None) -> bool:
        return self.all_vital or (exchange is None and not self._greeted)

    async def _judge(self, request: HttpRequest, answer: HttpResponse, exchange: OutgoingMessage | None) -> None:
        if answer.status >= 400:
            raise await self._refused(request, answer, exchange)
        if is_redirect(answer):
            answer.close()
            note = not_followed(request.url, answer)
            fault = faults.fault("HTTP_ERROR", note, status=answer.status)
            _note(exchange, fault)
            raise MessageRefused(fault)
        if answer.compressed:
            answer.close()
            raise self._failed(faults.fault("INVALID_RESPONSE", "it is compressed"), exchange, lost=False)
        self._greeted = self._greeted or exchange is None
        if exchange is not None and exchange.awaits_result and not self.all_vital:
            exchange.fault = None
        else:
            _note(exchange, None)

    async def _refused(
        self, request: HttpRequest, answer: HttpResponse, exchange: OutgoingMessage | None
    ) -> MessageRefused:
        body = await answer.beginning(ERROR_BODY_BYTES, ACKNOWLEDGE_LIMIT_S)
        in_session = SESSION in request.headers
        fault = faults.fault_from_status(answer.status, answer.headers, body, session=in_session)
        said = _error_message(answer, body)
        _note(exchange, fault)
        awaited = exchange is not None and exchange.awaits_result
        if exchange is not None and exchange.awaits_result:
            own = said if fault.code == FaultCode.HTTP_ERROR else None
            exchange.status = answer.status
            # A JSON-RPC error with an id is about that request; without one it may be about the session.
            exchange.names_no_request = own is None or own.id is None
            if exchange.method == "ping" and in_session and answer.status == 400 and exchange.names_no_request:
                fault = exchange.fault = faults.fault("SESSION_LOST", "HTTP 400", **fault.details)
            elif own is not None:
                exchange.fault = None
        unheard = self._is_vital(exchange) and (self.all_vital or answer.status in GATEWAYS)
        # What awaits no result may be refused for itself, by a server that knows no such path for it.
        if unheard or (fault.code == FaultCode.SESSION_LOST and awaited):
            self.mark_lost(fault)
        return MessageRefused(fault, said)


def _note(exchange: OutgoingMessage | None, fault: Fault | None) -> None:
    if exchange is not None:
        exchange.fault = fault
        exchange.settle(fault.message if fault else None)


def _error_message(answer: HttpResponse, body: bytes) -> JSONRPCError | None:
    if not answer.media.startswith("application/json"):
        return None
    try:
        message = parse_message(body)
    except BadMessage:
        return None
    return message if isinstance(message, JSONRPCError) else None
