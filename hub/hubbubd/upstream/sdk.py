"""Monkey patches of the SDK, all of them: the message decoder, and the bound of an event stream's `retry`.

The SDK's two HTTP transports look these names up in their modules, and take no parameters for them; the code that uses
them is out of reach (methods of a class that `streamable_http` creates itself, a nested function in `sse`). The
alternatives are a copy of either transport, or parsing each message twice. With the SDK's own decoder, stdio and HTTP
would accept different messages, and message sizes would be unknown; with its own event source a server could name any
pause. tests/upstream/test_sdk.py fails when a version moves the names.
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
"""The longest `retry`, in milliseconds, that a server may name for reopening a stream; like `Retry-After`."""


class Decoder:
    """Replaces the SDK's decoder, so that all transports accept the same messages."""

    def validate_json(self, data: bytes | str, *, by_name: bool) -> JSONRPCMessage:
        """Implement TypeAdapter.validate_json. Raises ValidationError."""
        SIZE.set(len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode(errors="replace")))
        try:
            return read(data)
        except BadMessage as bad:
            problem = PydanticCustomError("message", "{problem}", {"problem": str(bad), "bad": bad})
            details = InitErrorDetails(type=problem, input=None)
            raise ValidationError.from_exception_data("the message", [details]) from None


def as_read(item: Exception) -> Exception:
    """Return what the decoder raised, unwrapped from the exception that the SDK expects."""
    if not isinstance(item, ValidationError):
        return item
    bad = item.errors()[0].get("ctx", {}).get("bad")
    return bad if isinstance(bad, BadMessage) else item


class Events(httpx2.EventSource):
    """An event source that bounds each event's `retry`."""

    async def __aiter__(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        async for event in super().__aiter__():
            yield event if event.retry is None else replace(event, retry=_retry_ms(event.retry))


def _retry_ms(named: int) -> int | None:
    return bounds.whole(named, high=LONGEST_RETRY_MS)


_opened = streamable_http.sse_within_origin  # pyright: ignore[reportPrivateImportUsage]


@asynccontextmanager
async def events_within_origin(*args: Any, max_event_size: int | None, **options: Any) -> AsyncGenerator[Events]:
    """Replace the SDK's function that opens a stream, so that its pauses are bounded."""
    async with _opened(*args, max_event_size=max_event_size, **options) as source:
        yield Events(source.response, max_event_size)


def replace_parts() -> None:
    """Install the replacements in both transports; the other names of `sse.types` stay."""
    streamable_http.jsonrpc_message_adapter = Decoder()  # pyright: ignore[reportPrivateImportUsage]
    streamable_http.EventSource = Events  # pyright: ignore[reportPrivateImportUsage]
    streamable_http.sse_within_origin = events_within_origin  # pyright: ignore[reportPrivateImportUsage]
    sse.types = SimpleNamespace(**{**vars(mcp_types), "jsonrpc_message_adapter": Decoder()})  # pyright: ignore[reportPrivateImportUsage]
