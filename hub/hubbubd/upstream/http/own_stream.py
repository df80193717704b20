"""The server's own stream of streamable HTTP (a GET): what it asks and tells beside the responses."""

from collections.abc import Callable, Mapping
from typing import Final

import anyio
from multidict import CIMultiDict
from yarl import URL

from hubbubd.errors import Fault, FaultCode, UpstreamError
from hubbubd.slots import Slots
from hubbubd.turns import turn
from hubbubd.upstream import faults
from hubbubd.upstream.again import Pace
from hubbubd.upstream.framing import SHORT, BadMessage, read
from hubbubd.upstream.http import body
from hubbubd.upstream.http.arrivals import Arrivals
from hubbubd.upstream.http.client import Answer, HttpClient, HttpFailure, Request, is_redirect
from hubbubd.upstream.http.events import Events, TooLong
from hubbubd.upstream.http.posting import SESSION
from hubbubd.upstream.streams import Lose

ATTEMPTS: Final = 2
"""Attempts in a row to open a stream, after which it is given up."""

REOPEN_S: Final = 1.0
"""Seconds before a stream that ended is opened again, if the server names no pause."""

LAST_EVENT_ID: Final = "last-event-id"

STREAMED: Final = {"accept": "text/event-stream", "cache-control": "no-store"}
"""Headers of a request for a stream."""


def reopening(events: Events) -> dict[str, str]:
    """Return the headers of a request for what follows these events."""
    return STREAMED if not events.last_id else {**STREAMED, LAST_EVENT_ID: events.last_id}


def pause_s(events: Events) -> float:
    """Return the seconds that the server of a stream wants to pass before it is opened again."""
    return REOPEN_S if events.retry_ms is None else events.retry_ms / 1000


def is_stream(answer: Answer) -> bool:
    """Return whether a response is a stream of events."""
    return answer.media.startswith("text/event-stream")


async def hand_over(data: bytes, arrivals: Arrivals) -> None:
    """Hand over a message that answers nothing in particular, or why it cannot be read."""
    if len(data) > SHORT:
        await turn()  # parsing it is long work
    try:
        item = read(data)
    except BadMessage as bad:
        item = bad
    await arrivals.put(item, len(data))


class _Broken(Exception):
    """An attempt failed. `counts` says that the server has such a stream, or should have."""

    def __init__(self, fault: Fault, *, counts: bool = True) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.counts = counts


class OwnStream:
    """Reads the stream for as long as there is one.

    It is optional: a server that refuses it from the beginning (any 4xx, or another content type) has none. One that
    breaks and cannot be restored is a lost connection, as nobody would hear what the server asks.
    """

    def __init__(
        self,
        client: HttpClient,
        url: URL,
        max_bytes: int,
        arrivals: Arrivals,
        *,
        headers: Callable[[Mapping[str, str]], CIMultiDict[str]],
        lose: Lose,
        openings: Slots,
    ) -> None:
        self._client = client
        self._url = url
        self._max_bytes = max_bytes
        self._arrivals = arrivals
        self._headers = headers
        self._lose = lose
        self._openings = openings
        self._pace = Pace()
        self._worked = False

    async def run(self) -> None:
        """Read until there is no stream."""
        events = Events(self._max_bytes)
        attempts = broken = 0
        while attempts < ATTEMPTS:
            try:
                if not await self._read(events):
                    return
                attempts = broken = 0
            except _Broken as exc:
                attempts += 1
                broken += exc.counts
                if broken >= ATTEMPTS:
                    fault = exc.fault
                    self._lose(faults.fault("GET_STREAM_LOST", fault.message, cause=fault.code, **fault.details))
            events = Events(self._max_bytes, events.last_id, events.retry_ms)
            await anyio.sleep(pause_s(events))

    async def _read(self, events: Events) -> bool:
        """Read a stream to its regular end; return False when the server has none. Raises _Broken."""
        try:
            answer = await self._open(events)
        except HttpFailure as exc:
            raise _Broken(exc.fault) from None
        except UpstreamError as exc:
            raise _Broken(exc.fault) from None
        if answer is None:
            return False
        try:
            async for piece in body.in_turns(answer.chunks()):
                for event in events.feed(piece):
                    if event.kind == "message" and event.data:
                        await hand_over(event.data, self._arrivals)
        except HttpFailure as exc:
            raise _Broken(exc.fault) from None
        except TooLong as exc:
            raise _Broken(faults.fault("INVALID_RESPONSE", str(exc))) from None
        finally:
            answer.close()
        return True

    async def _open(self, events: Events) -> Answer | None:
        await self._pace.wait()
        request = Request("GET", self._url, self._headers(reopening(events)))
        opened = await self._openings.take()
        try:
            answer = await self._client.send(request)
        finally:
            opened()
        if is_stream(answer) and answer.status < 400 and not answer.compressed:
            self._worked = True
            return answer
        answer.close()
        if is_redirect(answer):
            return None
        if answer.status < 400:
            self._worked = self._worked or is_stream(answer)
            what = "it is compressed" if answer.compressed else "the GET stream is no event stream"
            raise _Broken(faults.fault("INVALID_RESPONSE", what), counts=self._worked)
        fault = faults.of_status(answer.status, answer.headers, b"", session=SESSION in request.headers)
        if fault.code == FaultCode.SESSION_LOST and self._worked:
            self._lose(fault)
            raise _Broken(fault, counts=False)
        raise _Broken(fault, counts=self._worked or answer.status >= 500)
