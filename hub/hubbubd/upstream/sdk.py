"""What of the SDK is replaced, all of it here: who decides what a message is, and for how long a stream is not opened.

Its two transports over HTTP read names of their modules when a message or a stream comes, and have no parameter for
them: in `streamable_http` methods of a class that its client makes by itself, in `sse` a function within a function. To
do without would mean a copy of either transport, or to read each message twice. With the SDK's own decoder stdio and
HTTP would take and refuse other messages, and nobody would know how many bytes one had; with its own events a server
names any pause. tests/upstream/test_sdk.py fails when a version moves the names.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import httpx2
import mcp_types
from mcp.client import sse, streamable_http
from mcp_types import JSONRPCMessage
from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from hubbubd import bounds
from hubbubd.upstream.exchange import SIZE
from hubbubd.upstream.framing import BadMessage, read

LONGEST_RETRY_MS: Final = 3_600_000
"""The longest pause that a server may name as `retry`, before a stream of its own is opened again: as a `Retry-After`
may, it slows the hub down and does not send it away."""


class Decoder:
    """Stands in for the SDK's own, so that one and the same decides for every transport what a message is."""

    def validate_json(self, data: bytes | str, *, by_name: bool) -> JSONRPCMessage:
        """As of a TypeAdapter. Raises ValidationError."""
        SIZE.set(len(data))
        try:
            return read(data)
        except BadMessage as bad:
            problem = PydanticCustomError("message", "{problem}", {"problem": str(bad), "bad": bad})
            details = InitErrorDetails(type=problem, input=None)
            raise ValidationError.from_exception_data("the message", [details]) from None


def as_read(item: Exception) -> Exception:
    """What the decoder raised, where a transport hands on in its place what the SDK expects."""
    if not isinstance(item, ValidationError):
        return item
    bad = item.errors()[0].get("ctx", {}).get("bad")
    return bad if isinstance(bad, BadMessage) else item


class Events(httpx2.EventSource):
    """The events of a stream, each `retry` in them read within bounds."""

    async def __aiter__(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        async for event in super().__aiter__():
            yield event if event.retry is None else replace(event, retry=_retry_ms(event.retry))


def _retry_ms(named: int) -> int | None:
    return bounds.whole(named, high=LONGEST_RETRY_MS)


_opened = streamable_http.sse_within_origin  # pyright: ignore[reportPrivateImportUsage]


@asynccontextmanager
async def events_within_origin(*args: Any, max_event_size: int | None, **options: Any) -> AsyncGenerator[Events]:
    """Stands in for the SDK's own way to open a stream, so that what it sleeps for is within bounds."""
    async with _opened(*args, max_event_size=max_event_size, **options) as source:
        yield Events(source.response, max_event_size)


def replace_parts() -> None:
    """Has both transports use what is here; of the names of `sse.types` the others stay."""
    streamable_http.jsonrpc_message_adapter = Decoder()  # pyright: ignore[reportPrivateImportUsage]
    streamable_http.EventSource = Events  # pyright: ignore[reportPrivateImportUsage]
    streamable_http.sse_within_origin = events_within_origin  # pyright: ignore[reportPrivateImportUsage]
    sse.types = SimpleNamespace(**{**vars(mcp_types), "jsonrpc_message_adapter": Decoder()})  # pyright: ignore[reportPrivateImportUsage]
