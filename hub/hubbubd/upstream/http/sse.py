"""HTTP with SSE, the transport of revision 2024-11-05: one stream of events in, POSTs out."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage
from yarl import URL

from hubbubd.errors import Fault, UpstreamError
from hubbubd.upstream import faults
from hubbubd.upstream.http import body
from hubbubd.upstream.http.client import (
    HttpClient,
    HttpFailure,
    HttpRequest,
    HttpResponse,
    describe_redirect,
    is_redirect,
    is_same_origin,
    join_url,
)
from hubbubd.upstream.http.streamable import closed_stream_fault
from hubbubd.upstream.http.streams.delivery import (
    ACKNOWLEDGE_LIMIT_S,
    ERROR_BODY_BYTES,
    MessageDelivery,
    MessageRefused,
)
from hubbubd.upstream.http.streams.event_parser import EventParser, EventTooLong
from hubbubd.upstream.http.streams.get_stream import STREAM_HEADERS, is_stream, pass_message
from hubbubd.upstream.http.streams.read_stream import HttpReadStream
from hubbubd.upstream.http.streams.write_stream import HttpWriteStream
from hubbubd.upstream.messages.streams import MarkLost, TransportStreams

POST_HEADERS: Final = {"content-type": "application/json"}


@asynccontextmanager
async def sse_transport(
    url: URL, max_bytes: int, client: HttpClient, mark_lost: MarkLost
) -> AsyncGenerator[TransportStreams]:
    """Open a transport whose stream of events is at `url`. Raises UpstreamError."""
    transport = HttpWithSse(client, url, max_bytes, mark_lost)
    try:
        await transport.open()
        yield TransportStreams(
            read=transport.read_stream, write=transport, reports_delivery=True, explain_end=transport.explain_end
        )
    finally:
        with anyio.CancelScope(shield=True):
            await transport.end()


class HttpWithSse:
    """An open transport, and its write stream. Messages of more than `max_bytes` are not read."""

    def __init__(self, client: HttpClient, url: URL, max_bytes: int, mark_lost: MarkLost) -> None:
        self.read_stream = HttpReadStream()
        self._client = client
        self._url = url
        self._max_bytes = max_bytes
        self._delivery = MessageDelivery(client, mark_lost, all_vital=True)
        self._write_stream = HttpWriteStream(self._post, mark_lost)
        self._endpoint: URL | None = None
        self._endpoint_known = anyio.Event()
        self._fault: Fault | None = None

    async def open(self) -> None:
        """Open the stream, and wait until it names the endpoint for POSTs. Raises UpstreamError."""
        try:
            response = await self._client.send(
                HttpRequest("GET", self._url, self._client.build_headers(STREAM_HEADERS))
            )
        except HttpFailure as exc:
            raise UpstreamError(exc.fault) from None
        if response.status >= 400:
            beginning = await response.read_beginning(ERROR_BODY_BYTES, ACKNOWLEDGE_LIMIT_S)
            raise UpstreamError(
                faults.fault_from_status(response.status, response.headers, beginning, in_session=False)
            )
        if is_redirect(response) or response.is_compressed or not is_stream(response):
            response.close()
            raise UpstreamError(_not_a_stream_fault(self._url, response))
        self._write_stream.start_task(self._read(response))
        await self._endpoint_known.wait()
        if self._fault is not None:
            raise UpstreamError(self._fault)

    async def send(self, item: SessionMessage, /) -> None:
        """Start to POST a message when it is the message's turn. Raises ClosedResourceError after `aclose`."""
        await self._write_stream.send(item)

    async def aclose(self) -> None:
        """Accept no more messages; those under way are still sent, and the stream is read on until `end`."""
        await self._write_stream.aclose()

    async def end(self) -> None:
        """Cancel all requests under way, and end the read stream."""
        await self._write_stream.end()
        await self.read_stream.aclose()

    async def explain_end(self) -> Fault:
        """Return why the stream has ended."""
        return self._fault or await closed_stream_fault()

    async def _read(self, response: HttpResponse) -> None:
        """Read the stream to its end: where to post to, then messages. `_fault` says why it ended, if that is known."""
        events = EventParser(self._max_bytes)
        try:
            async for piece in body.read_in_turns(response.chunks()):
                for event in events.feed(piece):
                    if event.kind == "endpoint" and self._endpoint is None:
                        self._endpoint = self._resolve_endpoint(event.data.decode(errors="replace"))
                        self._endpoint_known.set()
                    elif event.kind == "message" and event.data:
                        await pass_message(event.data, self.read_stream)
        except HttpFailure as exc:
            self._fault = exc.fault
        except UpstreamError as exc:
            self._fault = exc.fault
        except EventTooLong as exc:
            self._fault = faults.fault("INVALID_RESPONSE", str(exc))
        finally:
            response.close()
            if self._endpoint is None and self._fault is None:
                self._fault = faults.fault("INVALID_RESPONSE", "its stream ended without naming an endpoint")
            self._endpoint_known.set()
            self.read_stream.end()

    def _resolve_endpoint(self, reference: str) -> URL:
        """Return the URL for POSTs: of the same origin, as it gets the credentials. Raises UpstreamError."""
        endpoint = join_url(self._url, reference)
        if endpoint is None or not is_same_origin(endpoint, self._url) or endpoint.user is not None:
            where = f"at {endpoint.origin()}" if endpoint is not None else "nothing that can be asked"
            note = f"its endpoint is {where}, and not within its own origin, {self._url.origin()}"
            raise faults.error("INVALID_RESPONSE", note)
        return endpoint

    async def _post(self, message: JSONRPCMessage, headers: Mapping[str, str], content: bytes) -> None:
        """Send one message. The answer comes over the stream."""
        assert self._endpoint is not None, "open"
        request = HttpRequest("POST", self._endpoint, self._client.build_headers(POST_HEADERS), content)
        try:
            response = await self._delivery.send(request)
        except MessageRefused:
            return  # noted in the `OutgoingMessage`; the connection is lost
        self._write_stream.start_task(response.drain_and_close())


def _not_a_stream_fault(url: URL, response: HttpResponse) -> Fault:
    """Return the fault of a response that is a redirect, compressed, or no stream of events."""
    if is_redirect(response):
        return faults.fault("HTTP_ERROR", describe_redirect(url, response), status=response.status)
    what = "it is compressed" if response.is_compressed else f"its content type is {response.content_type[:100]!r}"
    return faults.fault("INVALID_RESPONSE", what)
