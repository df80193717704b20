"""Streamable HTTP: a POST for each message, whose response may be a stream of events, and a GET for the server's own.

The path of a request: `HttpWriteStream` starts a task for it, `MessageDelivery` sends it and judges the status of the
response, `EventParser` splits the stream, `codec.parse_message` parses each message, and `HttpReadStream` hands it to
the link.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from multidict import CIMultiDict
from yarl import URL

from hubbubd.errors import Fault, FaultCode, UpstreamError
from hubbubd.timing.slots import Slots
from hubbubd.timing.turns import turn
from hubbubd.upstream import faults
from hubbubd.upstream.deviations import Deviation, words
from hubbubd.upstream.http import body
from hubbubd.upstream.http.client import HttpClient, HttpFailure, HttpRequest, HttpResponse
from hubbubd.upstream.http.streams.delivery import SESSION, MessageDelivery, MessageRefused
from hubbubd.upstream.http.streams.event_parser import EventParser, EventTooLong
from hubbubd.upstream.http.streams.get_stream import (
    ATTEMPTS,
    GetStream,
    StreamContext,
    is_stream,
    not_opened,
    pause_s,
    reopening,
)
from hubbubd.upstream.http.streams.read_stream import HttpReadStream
from hubbubd.upstream.http.streams.write_stream import HttpWriteStream
from hubbubd.upstream.messages.codec import SHORT, BadMessage, NotParsed, parse_message
from hubbubd.upstream.messages.exchange import OUTGOING, OutgoingMessage
from hubbubd.upstream.messages.streams import LinkCallbacks, TransportStreams

CLOSE_LIMIT_S: Final = 2.0
"""Seconds to wait for the last notifications to be taken, and for a server to confirm the end of a session."""

POSTED: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Unanswered(Exception):
    """The response to a request cannot come any more, for this reason."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@asynccontextmanager
async def http_transport(
    url: URL, max_bytes: int, client: HttpClient, ties: LinkCallbacks, openings: Slots
) -> AsyncGenerator[TransportStreams]:
    """Open a streamable HTTP transport to `url`; leaving ends its session. `openings` bound those of its own stream."""
    transport = StreamableHttp(url, max_bytes, client, ties, openings)
    try:
        yield TransportStreams(
            read=transport.arrivals,
            write=transport,
            receipts=True,
            explain_end=ended,
            ignored_cookie=lambda: client.cookies.ignored,
        )
    finally:
        await transport.end()


async def ended() -> Fault:
    """Return why a read stream has ended."""
    return faults.fault("CONNECTION_LOST", "the server closed the stream")


class StreamableHttp:
    """An open transport, and its write stream. Messages of more than `max_bytes` are not read."""

    def __init__(self, url: URL, max_bytes: int, client: HttpClient, ties: LinkCallbacks, openings: Slots) -> None:
        self.arrivals = HttpReadStream()
        self._url = url
        self._max_bytes = max_bytes
        self._client = client
        self._ties = ties
        self._openings = openings
        self._posting = MessageDelivery(client, self._lost, all_vital=False)
        self._sending = HttpWriteStream(self._post, ties.mark_lost)
        self._session: str | None = None
        self._forgotten = False
        self._version: str | None = None

    async def send(self, item: SessionMessage, /) -> None:
        """As `streams.WriteStream`."""
        message, given = item.message, item.metadata
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            if self._version in MODERN_PROTOCOL_VERSIONS:  # there, the end of the request's connection cancels it
                self._sending.abort(cancelled_request_id_from_params(message.params))
                return
        elif isinstance(message, JSONRPCRequest) and message.method == "initialize":
            self._version = None  # a probe may have set it
        elif isinstance(given, ClientMessageMetadata) and given.headers is not None:
            self._version = given.headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        await self._sending.send(item)
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/initialized":
            self._begin_own_stream()

    def _begin_own_stream(self) -> None:
        if self._session is not None:
            around = StreamContext(self._headers, self._ties, self._openings)
            self._sending.start(GetStream(self._client, self._url, self._max_bytes, self.arrivals, around).run())

    def _lost(self, fault: Fault) -> None:
        self._forgotten |= fault.code == FaultCode.SESSION_LOST
        self._ties.mark_lost(fault)

    async def aclose(self) -> None:
        """As `streams.WriteStream`."""
        await self._sending.aclose()

    async def end(self) -> None:
        """End the session, and all that is under way."""
        with anyio.move_on_after(CLOSE_LIMIT_S, shield=True):
            await self._sending.notified()
            if self._session is not None and not self._forgotten:
                await self._end_session()
        with anyio.CancelScope(shield=True):
            await self._sending.end()
            await self.arrivals.aclose()

    async def _end_session(self) -> None:
        try:
            answer = await self._client.send(HttpRequest("DELETE", self._url, self._headers({})))
        except (HttpFailure, UpstreamError):
            return  # it is gone, or goes by itself
        answer.close()

    def _headers(self, own: Mapping[str, str]) -> CIMultiDict[str]:
        headers = self._client.headers(own)
        if self._session is not None:
            headers[SESSION] = self._session
        if self._version is not None:
            headers.setdefault(MCP_PROTOCOL_VERSION_HEADER, self._version)
        return headers

    async def _post(self, message: JSONRPCMessage, headers: Mapping[str, str], content: bytes) -> None:
        request = HttpRequest("POST", self._url, self._headers({**POSTED, **headers}), content)
        if isinstance(message, JSONRPCRequest):
            await self._request(message, request)
            return
        try:
            answer = await self._posting.send(request)
        except MessageRefused as refused:  # noted in the exchange
            if refused.fault.code == FaultCode.SESSION_LOST:
                self._refuse_unanswered(message)
            return
        self._sending.start(answer.spare())

    def _refuse_unanswered(self, message: JSONRPCMessage) -> None:
        """Note that 404 came for what awaits no result, and find out whether the session is over."""
        if isinstance(message, JSONRPCNotification):
            about = words(Deviation.NOTIFICATION_REFUSED, f"{message.method}, HTTP 404")
            self._ties.note(Deviation.NOTIFICATION_REFUSED, about)
        self._sending.start(self._ties.check_session())

    async def _request(self, message: JSONRPCRequest, request: HttpRequest) -> None:
        exchange = OUTGOING.get() or OutgoingMessage(awaits_result=True)
        try:
            answer = await self._posting.send(request)
            if message.method == "initialize":
                self._begin_session(answer)
            await self._take(answer, message, exchange)
        except MessageRefused as refused:
            exchange.sent = refused.sent
            own = refused.said.error if refused.said is not None else None
            await self._resolve(message, own or _instead(refused.fault))
        except Unanswered as unanswered:
            exchange.fault = unanswered.fault
            await self._resolve(message, _instead(unanswered.fault))

    async def _resolve(self, request: JSONRPCRequest, error: ErrorData) -> None:
        await self.arrivals.put(JSONRPCError(jsonrpc="2.0", id=request.id, error=error), 0)

    def _begin_session(self, answer: HttpResponse) -> None:
        session = answer.headers.get(SESSION)
        if not session:
            return
        if not (session.isascii() and session.isprintable()):
            answer.close()
            raise Unanswered(faults.fault("INVALID_RESPONSE", "its session id has characters beyond visible ASCII"))
        self._session = session

    async def _take(self, answer: HttpResponse, request: JSONRPCRequest, exchange: OutgoingMessage) -> None:
        """Take what answers a request. Raises Unanswered."""
        if answer.status == 202:
            answer.close()
            note = "it accepted the request without a response"
            raise Unanswered(faults.fault("INVALID_RESPONSE", note, status=202))
        if answer.media.startswith("application/json"):
            if not await self._hand_over(await self._whole(answer), request):
                raise Unanswered(faults.fault("INVALID_RESPONSE", "it is no response"))
        elif is_stream(answer):
            await self._follow(answer, request, exchange)
        else:
            answer.close()
            raise Unanswered(_wrong_type(answer))

    async def _whole(self, answer: HttpResponse) -> bytes:
        try:
            data = await answer.read(self._max_bytes)
        except HttpFailure as broken:
            raise Unanswered(broken.fault) from None
        except body.BodyTooLarge as exc:
            raise Unanswered(faults.fault("INVALID_RESPONSE", str(exc), limit=exc.limit)) from None
        finally:
            answer.close()
        if len(data) > SHORT:
            await turn()  # parsing it is long work
        return data

    async def _hand_over(self, data: bytes, request: JSONRPCRequest) -> bool:
        """Hand over what came for a request, and return whether it is the response. Raises Unanswered."""
        try:
            message = parse_message(data)
        except NotParsed as unread:
            await self.arrivals.put(unread, len(data))
            return False
        except BadMessage as bad:
            if bad.answered_ids and not any(coerce_request_id(each) == request.id for each in bad.answered_ids):
                raise Unanswered(_misdirected(bad.answered_ids[0], request)) from None
            note = f"Failed to parse the response: {bad}"[: faults.BODY_EXCERPT]
            raise Unanswered(faults.fault("INVALID_RESPONSE", note)) from None
        is_response = isinstance(message, JSONRPCResponse | JSONRPCError)
        if is_response:
            # One that names another request would become the result of another call.
            if message.id is not None and coerce_request_id(message.id) != request.id:
                raise Unanswered(_misdirected(message.id, request))
            message.id = request.id
        await self.arrivals.put(message, len(data))
        return is_response

    async def _follow(self, answer: HttpResponse, request: JSONRPCRequest, exchange: OutgoingMessage) -> None:
        """Follow a stream until the response, over as many connections as that takes. Raises Unanswered."""
        events = EventParser(self._max_bytes)
        while True:
            why = faults.fault("CONNECTION_LOST", "the stream ended without the response")
            try:
                if await self._until_response(answer, events, request):
                    await answer.spare()
                    return
            except HttpFailure as broken:
                why = broken.fault
            except EventTooLong as exc:
                raise Unanswered(faults.fault("INVALID_RESPONSE", str(exc))) from None
            finally:
                answer.close()
            events = EventParser(self._max_bytes, events.last_id, events.retry_ms)
            answer = await self._reopened(events, exchange, why)

    async def _until_response(self, answer: HttpResponse, events: EventParser, request: JSONRPCRequest) -> bool:
        async for piece in body.in_turns(answer.chunks()):
            for event in events.feed(piece):
                if event.kind == "message" and event.data:
                    if len(event.data) > SHORT:
                        await turn()
                    if await self._hand_over(event.data, request):
                        return True
        return False

    async def _reopened(self, events: EventParser, exchange: OutgoingMessage, why: Fault) -> HttpResponse:
        """Open the stream of a request again, after what has come of it. Raises Unanswered, also if that is nothing."""
        for _ in range(ATTEMPTS if events.last_id else 0):
            await anyio.sleep(pause_s(events))
            await exchange.pace.wait()
            try:
                answer = await self._client.send(HttpRequest("GET", self._url, self._headers(reopening(events))))
            except (HttpFailure, UpstreamError) as exc:
                why = exc.fault
                continue
            if is_stream(answer) and answer.status < 300:
                return answer
            answer.close()
            # Whatever the status says: the server may have carried the request out.
            note = f"the stream broke off, and was refused when it was opened again: {not_opened(answer)}"
            why = faults.fault("CONNECTION_LOST", note, status=answer.status)
            if answer.status == 404:
                self._sending.start(self._ties.check_session())
        raise Unanswered(why)


def _instead(fault: Fault) -> ErrorData:
    """Return what stands in the place of a response that is not there; the exchange has the fault."""
    return ErrorData(code=CONNECTION_CLOSED, message=fault.message)


def _misdirected(named: int | str, request: JSONRPCRequest) -> Fault:
    return faults.fault("INVALID_RESPONSE", f"a response to request {named!r} came for request {request.id}")


def _wrong_type(answer: HttpResponse) -> Fault:
    return faults.fault("INVALID_RESPONSE", f"its content type is {answer.media[:100]!r}")
