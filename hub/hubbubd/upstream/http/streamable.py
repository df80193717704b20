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
from hubbubd.timing.turns import wait_for_turn
from hubbubd.upstream import faults
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.http import body
from hubbubd.upstream.http.client import HttpClient, HttpFailure, HttpRequest, HttpResponse
from hubbubd.upstream.http.streams.delivery import SESSION, MessageDelivery, MessageRefused
from hubbubd.upstream.http.streams.event_parser import EventParser, EventTooLong
from hubbubd.upstream.http.streams.get_stream import (
    ATTEMPTS,
    GetStream,
    StreamContext,
    explain_not_opened,
    is_stream,
    reopen_headers,
    reopen_pause_s,
)
from hubbubd.upstream.http.streams.read_stream import HttpReadStream
from hubbubd.upstream.http.streams.write_stream import HttpWriteStream
from hubbubd.upstream.messages.codec import SHORT, BadMessage, NotParsed, parse_message
from hubbubd.upstream.messages.exchange import OUTGOING, OutgoingMessage
from hubbubd.upstream.messages.retries import ReopenBackoff
from hubbubd.upstream.messages.streams import LinkCallbacks, TransportStreams

CLOSE_LIMIT_S: Final = 2.0
"""Seconds to wait for the last notifications to be taken, and for a server to confirm the end of a session."""

POST_HEADERS: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class ResponseLost(Exception):
    """The response to a request cannot come any more, for this reason."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@asynccontextmanager
async def http_transport(
    url: URL, max_bytes: int, client: HttpClient, callbacks: LinkCallbacks, stream_slots: Slots
) -> AsyncGenerator[TransportStreams]:
    """Open a streamable HTTP transport to `url`; leaving ends its session.

    `stream_slots` limits how many of the servers' own streams are opened at once.
    """
    transport = StreamableHttp(url, max_bytes, client, callbacks, stream_slots)
    try:
        yield TransportStreams(
            read=transport.read_stream,
            write=transport,
            reports_delivery=True,
            explain_end=closed_stream_fault,
            ignores_cookie=lambda: client.cookies.has_ignored_cookie,
        )
    finally:
        await transport.end()


async def closed_stream_fault() -> Fault:
    """Return the fault of a read stream that has ended for no other reason: the server closed it; an `explain_end`."""
    return faults.fault("CONNECTION_LOST", "the server closed the stream")


class StreamableHttp:
    """An open transport, and its write stream. Messages of more than `max_bytes` are not read."""

    def __init__(
        self, url: URL, max_bytes: int, client: HttpClient, callbacks: LinkCallbacks, stream_slots: Slots
    ) -> None:
        self.read_stream = HttpReadStream()
        self._url = url
        self._max_bytes = max_bytes
        self._client = client
        self._callbacks = callbacks
        self._stream_slots = stream_slots
        self._delivery = MessageDelivery(client, self._note_loss, all_vital=False)
        self._write_stream = HttpWriteStream(self._post, callbacks.mark_lost)
        self._session_id: str | None = None
        self._is_session_lost = False
        self._version: str | None = None

    async def send(self, item: SessionMessage, /) -> None:
        """Start to POST a message; a cancellation may instead close the connection of the request that it cancels.

        If the message's headers name a protocol version, later messages name that version, too. After the notification
        `initialized`, a stream is opened for the messages that the server sends by itself.
        """
        message, metadata = item.message, item.metadata
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            if self._version in MODERN_PROTOCOL_VERSIONS:  # there, the end of the request's connection cancels it
                self._write_stream.abort_request(cancelled_request_id_from_params(message.params))
                return
        elif isinstance(message, JSONRPCRequest) and message.method == "initialize":
            self._version = None  # a probe may have set it
        elif isinstance(metadata, ClientMessageMetadata) and metadata.headers is not None:
            self._version = metadata.headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        await self._write_stream.send(item)
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/initialized":
            self._start_get_stream()

    def _start_get_stream(self) -> None:
        """Start to read the stream of messages that the server sends by itself, if the server has a session."""
        if self._session_id is not None:
            context = StreamContext(self._build_headers, self._callbacks, self._stream_slots)
            self._write_stream.start_task(
                GetStream(self._client, self._url, self._max_bytes, self.read_stream, context).run()
            )

    def _note_loss(self, fault: Fault) -> None:
        """Note that the connection is lost, and whether the session is over with it."""
        self._is_session_lost |= fault.code == FaultCode.SESSION_LOST
        self._callbacks.mark_lost(fault)

    async def aclose(self) -> None:
        """Accept no more messages; those under way are still sent, and responses are read until `end`."""
        await self._write_stream.aclose()

    async def end(self) -> None:
        """End the session, cancel all requests under way, and end the read stream."""
        with anyio.move_on_after(CLOSE_LIMIT_S, shield=True):
            await self._write_stream.wait_for_notifications()
            if self._session_id is not None and not self._is_session_lost:
                await self._end_session()
        with anyio.CancelScope(shield=True):
            await self._write_stream.end()
            await self.read_stream.aclose()

    async def _end_session(self) -> None:
        """Tell the server that the session is over (DELETE)."""
        try:
            response = await self._client.send(HttpRequest("DELETE", self._url, self._build_headers({})))
        except (HttpFailure, UpstreamError):
            return  # it is gone, or goes by itself
        response.close()

    def _build_headers(self, extra: Mapping[str, str]) -> CIMultiDict[str]:
        """Return the headers of a request: its own, and those that name the session and the revision."""
        headers = self._client.build_headers(extra)
        if self._session_id is not None:
            headers[SESSION] = self._session_id
        if self._version is not None:
            headers.setdefault(MCP_PROTOCOL_VERSION_HEADER, self._version)
        return headers

    async def _post(self, message: JSONRPCMessage, headers: Mapping[str, str], content: bytes) -> None:
        """Send one message; a request is answered over its own response, or over a stream."""
        request = HttpRequest("POST", self._url, self._build_headers({**POST_HEADERS, **headers}), content)
        if isinstance(message, JSONRPCRequest):
            await self._send_request(message, request)
            return
        try:
            response = await self._delivery.send(request)
        except MessageRefused as refusal:  # noted in the `OutgoingMessage`
            if refusal.fault.code == FaultCode.SESSION_LOST:
                self._handle_not_found(message)
            return
        self._write_stream.start_task(response.drain_and_close())

    def _handle_not_found(self, message: JSONRPCMessage) -> None:
        """Start to check whether the session is over, since the server answered this message with 404.

        The message is an answer or a notification. A notification is also noted for operators: some servers refuse it.
        """
        if isinstance(message, JSONRPCNotification):
            about = describe_deviation(Deviation.NOTIFICATION_REFUSED, f"{message.method}, HTTP 404")
            self._callbacks.note(Deviation.NOTIFICATION_REFUSED, about)
        self._write_stream.start_task(self._callbacks.check_session())

    async def _send_request(self, message: JSONRPCRequest, request: HttpRequest) -> None:
        """Send a request, and hand over its response, or an error in place of one that cannot come."""
        outgoing = OUTGOING.get() or OutgoingMessage(awaits_result=True)
        try:
            response = await self._delivery.send(request)
            if message.method == "initialize":
                self._store_session_id(response)
            await self._read_response(response, message)
        except MessageRefused as refusal:
            outgoing.was_sent = refusal.was_sent
            server_error = refusal.error.error if refusal.error is not None else None
            await self._fail_request(message, server_error or _placeholder_error(refusal.fault))
        except ResponseLost as failure:
            outgoing.fault = failure.fault
            await self._fail_request(message, _placeholder_error(failure.fault))

    async def _fail_request(self, request: JSONRPCRequest, error: ErrorData) -> None:
        """Hand over an error as the response to a request."""
        await self.read_stream.put(
            JSONRPCError(jsonrpc="2.0", id=request.id, error=error), 0
        )  # no bytes: the hub made it

    def _store_session_id(self, response: HttpResponse) -> None:
        """Store the session's id that the response to `initialize` names. Raises ResponseLost for an invalid one."""
        session = response.headers.get(SESSION)
        if not session:
            return
        if not (session.isascii() and session.isprintable()):
            response.close()
            raise ResponseLost(faults.fault("INVALID_RESPONSE", "its session id has characters beyond visible ASCII"))
        self._session_id = session

    async def _read_response(self, response: HttpResponse, request: JSONRPCRequest) -> None:
        """Read the response to a request, and hand over each message in it. Raises ResponseLost."""
        if response.status == 202:
            response.close()
            note = "it accepted the request without a response"
            raise ResponseLost(faults.fault("INVALID_RESPONSE", note, status=202))
        if response.content_type.startswith("application/json"):
            if not await self._pass_message(await self._read_body(response), request):
                raise ResponseLost(faults.fault("INVALID_RESPONSE", "it is no response"))
        elif is_stream(response):
            await self._follow_stream(response, request)
        else:
            response.close()
            raise ResponseLost(faults.fault("INVALID_RESPONSE", f"its content type is {response.content_type[:100]!r}"))

    async def _read_body(self, response: HttpResponse) -> bytes:
        """Return the whole body of a response. Raises ResponseLost."""
        try:
            data = await response.read(self._max_bytes)
        except HttpFailure as broken:
            raise ResponseLost(broken.fault) from None
        except body.BodyTooLarge as exc:
            raise ResponseLost(faults.fault("INVALID_RESPONSE", str(exc), limit=exc.limit)) from None
        finally:
            response.close()
        if len(data) > SHORT:
            await wait_for_turn()  # parsing it is long work
        return data

    async def _pass_message(self, data: bytes, request: JSONRPCRequest) -> bool:
        """Hand over a message that came for a request, and return whether it is the response. Raises ResponseLost."""
        try:
            message = parse_message(data)
        except NotParsed as too_large:  # a request or notification of the server, which the link refuses
            await self.read_stream.put(too_large, len(data))
            return False
        except BadMessage as bad:
            if bad.answered_ids and not any(coerce_request_id(each) == request.id for each in bad.answered_ids):
                raise ResponseLost(_misdirected_fault(bad.answered_ids[0], request)) from None
            note = f"Failed to parse the response: {bad}"[: faults.BODY_EXCERPT]
            raise ResponseLost(faults.fault("INVALID_RESPONSE", note)) from None
        is_response = isinstance(message, JSONRPCResponse | JSONRPCError)
        if is_response:
            # One that names another request would become the result of another call.
            if message.id is not None and coerce_request_id(message.id) != request.id:
                raise ResponseLost(_misdirected_fault(message.id, request))
            message.id = request.id
        await self.read_stream.put(message, len(data))
        return is_response

    async def _follow_stream(self, response: HttpResponse, request: JSONRPCRequest) -> None:
        """Follow a stream until the response, over as many connections as that takes. Raises ResponseLost."""
        events = EventParser(self._max_bytes)
        backoff = ReopenBackoff()
        while True:
            fault = faults.fault("CONNECTION_LOST", "the stream ended without the response")
            try:
                if await self._read_until_response(response, events, request):
                    await response.drain_and_close()
                    return
            except HttpFailure as broken:
                fault = broken.fault
            except EventTooLong as exc:
                raise ResponseLost(faults.fault("INVALID_RESPONSE", str(exc))) from None
            finally:
                response.close()
            events = EventParser(self._max_bytes, events.last_id, events.retry_ms)
            response = await self._reopen_stream(events, backoff, fault)

    async def _read_until_response(self, response: HttpResponse, events: EventParser, request: JSONRPCRequest) -> bool:
        """Hand over the messages of a stream; return whether the response was among them."""
        async for piece in body.read_in_turns(response.chunks()):
            for event in events.feed(piece):
                if event.kind == "message" and event.data:
                    if len(event.data) > SHORT:
                        await wait_for_turn()
                    if await self._pass_message(event.data, request):
                        return True
        return False

    async def _reopen_stream(self, events: EventParser, backoff: ReopenBackoff, fault: Fault) -> HttpResponse:
        """Open the stream of a request again, after its last event. Raises ResponseLost, also if no event had an id."""
        if not events.last_id:  # nothing says where to go on
            raise ResponseLost(fault)
        for _ in range(ATTEMPTS):
            await anyio.sleep(reopen_pause_s(events))
            await backoff.wait()
            try:
                response = await self._client.send(
                    HttpRequest("GET", self._url, self._build_headers(reopen_headers(events)))
                )
            except (HttpFailure, UpstreamError) as exc:
                fault = exc.fault
                continue
            if is_stream(response) and response.status < 300:
                return response
            response.close()
            # Whatever the status says: the server may have carried the request out.
            note = f"the stream broke off, and was refused when it was opened again: {explain_not_opened(response)}"
            fault = faults.fault("CONNECTION_LOST", note, status=response.status)
            if response.status == 404:
                self._write_stream.start_task(self._callbacks.check_session())
        raise ResponseLost(fault)


def _placeholder_error(fault: Fault) -> ErrorData:
    """Return the error that stands for the response to a request, where the response cannot come.

    The link reports the fault that was noted in the request's `OutgoingMessage`, and not this error.
    """
    return ErrorData(code=CONNECTION_CLOSED, message=fault.message)


def _misdirected_fault(answered_id: int | str, request: JSONRPCRequest) -> Fault:
    """Return the fault of a request for which the response to another one arrived."""
    return faults.fault("INVALID_RESPONSE", f"a response to request {answered_id!r} came for request {request.id}")
