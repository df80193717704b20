"""The server's own stream of streamable HTTP (a GET): requests and notifications that belong to no response."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import anyio
from multidict import CIMultiDict
from yarl import URL

from hubbubd.errors import UpstreamError
from hubbubd.timing.slots import Slots
from hubbubd.timing.turns import wait_for_turn
from hubbubd.upstream import faults
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.http import body
from hubbubd.upstream.http.client import HttpClient, HttpFailure, HttpRequest, HttpResponse
from hubbubd.upstream.http.streams.event_parser import LONGEST_RETRY_MS, EventParser, EventTooLong
from hubbubd.upstream.http.streams.read_stream import HttpReadStream
from hubbubd.upstream.messages.codec import SHORT, BadMessage, parse_message
from hubbubd.upstream.messages.retries import ReopenBackoff
from hubbubd.upstream.messages.streams import LinkCallbacks

ATTEMPTS: Final = 2
"""Failed attempts in a row after which a request's stream is given up, and the server's own counts as refused."""

REOPEN_S: Final = 1.0
"""Seconds before a stream that ended is opened again, if the server names no pause."""

SELDOM_S: Final = 300.0
"""Seconds between attempts to open a stream that was refused again and again: pauses double up to this one."""

DOUBLINGS: Final = 10
"""The most doublings of a pause: with so many it is longer than SELDOM_S."""

NO_STREAM: Final = frozenset({405, 501})
"""Statuses of a server that has no such stream (2025-11-25, basic/transports, listening for messages)."""

LOST_EVENT_STATUSES: Final = frozenset({400, 404, 410, 422})
"""Statuses with which a server may refuse to go on after an event that it no longer has."""

LONGEST_S: Final = LONGEST_RETRY_MS / 1000
"""The longest pause, in seconds, that a server may ask for with `Retry-After`."""

SIMILAR_CUTS: Final = 3
"""So many streams in a row that are cut at about the same age show a time limit between hub and server."""
AGE_SPREAD: Final = 0.2
"""How much these ages may differ, as a part of the greatest one."""

LAST_EVENT_ID: Final = "last-event-id"

STREAM_HEADERS: Final = {"accept": "text/event-stream", "cache-control": "no-store"}
"""Headers of a request for a stream."""


def reopen_headers(events: EventParser) -> dict[str, str]:
    """Return the headers of a request for what follows these events."""
    return STREAM_HEADERS if not events.last_id else {**STREAM_HEADERS, LAST_EVENT_ID: events.last_id}


def reopen_pause_s(events: EventParser) -> float:
    """Return the seconds to wait before a stream is opened again: as its server has said, else REOPEN_S."""
    return REOPEN_S if events.retry_ms is None else events.retry_ms / 1000


def is_stream(response: HttpResponse) -> bool:
    """Return whether a response is a stream of events."""
    return response.content_type.startswith("text/event-stream")


def explain_not_opened(response: HttpResponse) -> str:
    """Return why a response is no stream that can be read."""
    if response.status >= 300:
        return f"HTTP {response.status}"
    return "it is compressed" if response.is_compressed else f"its content type is {response.content_type[:100]!r}"


async def pass_message(data: bytes, read_stream: HttpReadStream) -> None:
    """Parse a message that belongs to no request, and put it into `read_stream`, or the BadMessage that it causes."""
    if len(data) > SHORT:
        await wait_for_turn()  # parsing it is long work
    try:
        item = parse_message(data)
    except BadMessage as bad:
        item = bad
    await read_stream.put(item, len(data))


class _StreamNotOpened(Exception):
    """The stream was refused, or cannot be read.

    `status` is that of the response, 0 without one. `wait_s` are the seconds that the server asks to wait. With
    `would_fail_again`, another attempt after the same last event would fail, too.
    """

    def __init__(
        self, why: str, status: int = 0, wait_s: float | None = None, *, would_fail_again: bool = False
    ) -> None:
        super().__init__(why)
        self.would_fail_again = would_fail_again or status in LOST_EVENT_STATUSES
        self.why = why
        self.status = status
        self.wait_s = wait_s or 0.0


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What the stream needs of its connection: `build_headers` completes those of a request, `slots` bound openings."""

    build_headers: Callable[[Mapping[str, str]], CIMultiDict[str]]
    callbacks: LinkCallbacks
    slots: Slots


class GetStream:
    """Reads the server's own stream whenever there is one.

    It is optional (2025-11-25, basic/transports, listening for messages), so no refusal and no break of it costs the
    connection, or a call. What was open is opened again for as long as that works; a stream that is refused
    is tried again after longer and longer pauses, unless the server said from the beginning that it has none.
    """

    def __init__(
        self, client: HttpClient, url: URL, max_bytes: int, read_stream: HttpReadStream, context: StreamContext
    ) -> None:
        self._client = client
        self._url = url
        self._max_bytes = max_bytes
        self._read_stream = read_stream
        self._context = context
        self._backoff = ReopenBackoff()
        self._was_opened = False
        self._refusals = 0
        self._cut_ages_s: deque[float] = deque(maxlen=SIMILAR_CUTS)

    async def run(self) -> None:
        """Read until the connection ends, or the server has no such stream."""
        events = EventParser(self._max_bytes)
        while True:
            pause_s = 0.0
            try:
                await self._read(await self._open(events), events)
                self._refusals = 0
                self._note_cuts()
            except _StreamNotOpened as refusal:
                self._refusals += 1
                if self._is_unsupported(refusal):
                    return
                if self._was_opened and self._refusals == 1:  # it may be refused because the session is over
                    await self._context.callbacks.check_session()
                self._note_refusal(refusal)
                if self._refusals >= ATTEMPTS and refusal.would_fail_again:  # begin again, not after the last event
                    events = EventParser(self._max_bytes)
                backoff_s = REOPEN_S * 2 ** min(self._refusals - 1, DOUBLINGS)
                pause_s = max(min(backoff_s, SELDOM_S), min(refusal.wait_s, LONGEST_S))
            events = EventParser(self._max_bytes, events.last_id, events.retry_ms)
            await anyio.sleep(max(pause_s, reopen_pause_s(events)))

    def _is_unsupported(self, refusal: _StreamNotOpened) -> bool:
        """Return whether the server has said from the beginning, by NO_STREAM, that it has no such stream."""
        return not self._was_opened and self._refusals >= ATTEMPTS and refusal.status in NO_STREAM

    def _note_refusal(self, refusal: _StreamNotOpened) -> None:
        """Note for operators that the stream cannot be opened, if the server is likely to have one.

        A server that has refused it with 4xx from the beginning has none: few say so with 405.
        """
        client_error = 400 <= refusal.status < 500 or refusal.status in NO_STREAM
        if self._refusals >= ATTEMPTS and (self._was_opened or not client_error):
            self._context.callbacks.note(
                Deviation.STREAM_REFUSED, describe_deviation(Deviation.STREAM_REFUSED, refusal.why)
            )

    def _note_cuts(self) -> None:
        """Note for operators that streams end after the same time again and again."""
        ages = self._cut_ages_s
        if len(ages) == SIMILAR_CUTS and max(ages) - min(ages) < AGE_SPREAD * max(ages):
            about = f"after {max(ages):.0f} s; a time limit of a proxy or a load balancer?"
            self._context.callbacks.note(Deviation.STREAM_CUT, describe_deviation(Deviation.STREAM_CUT, about))

    async def _read(self, response: HttpResponse, events: EventParser) -> None:
        """Read a stream to its end; note its age if it is cut. Raises _StreamNotOpened for too long an event."""
        opened_at = anyio.current_time()
        try:
            async for piece in body.read_in_turns(response.chunks()):
                for event in events.feed(piece):
                    if event.kind == "message" and event.data:
                        await pass_message(event.data, self._read_stream)
        except HttpFailure:
            self._cut_ages_s.append(anyio.current_time() - opened_at)
        except EventTooLong as exc:
            raise _StreamNotOpened(str(exc), would_fail_again=True) from None
        finally:
            response.close()

    async def _open(self, events: EventParser) -> HttpResponse:
        """Open the stream, after the last of these events. Raises _StreamNotOpened."""
        await self._backoff.wait()
        request = HttpRequest("GET", self._url, self._context.build_headers(reopen_headers(events)))
        release_slot = await self._context.slots.take()
        try:
            response = await self._client.send(request)
        except HttpFailure as exc:
            raise _StreamNotOpened(exc.fault.message) from None
        except UpstreamError as exc:
            raise _StreamNotOpened(exc.fault.message) from None
        finally:
            release_slot()
        if is_stream(response) and response.status < 300 and not response.is_compressed:
            self._was_opened = True
            self._context.callbacks.note(Deviation.STREAM_REFUSED, None)
            return response
        response.close()
        raise _StreamNotOpened(
            explain_not_opened(response), response.status, faults.read_retry_after_s(response.headers)
        )
