"""Server-sent events, from the bytes of a stream (HTML standard, 9.2.6). Pure; each byte is looked at a few times."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hubbubd import bounds

LONGEST_RETRY_MS: Final = 3_600_000
"""The longest `retry`, in milliseconds, that a server may name for reopening a stream; like `Retry-After`."""

LONGEST_ID: Final = 4096
"""The longest id, in bytes, that is remembered: it goes back in a header."""

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event is longer than allowed; the message says so."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event: its type and its data."""

    kind: str
    data: bytes


class EventParser:
    """Splits the pieces of a stream into events of at most `limit` bytes; buffers no more of an incomplete event.

    Comments do not count for the size of an event. `retry_ms` is the pause that the server last asked for (None: none
    yet), `last_id` the id of the last complete event that had one ("": none yet). Both hold for the next stream, too.
    """

    def __init__(self, limit: int, last_id: str = "", retry_ms: int | None = None) -> None:
        self.last_id = last_id
        self.retry_ms = retry_ms
        self._limit = limit
        self._line = bytearray()
        self._has_line = False
        self._is_comment = False
        self._ended_with_cr = False  # the last piece ended with CR: an LF that follows belongs to the same end of line
        self._bom_buffer: bytes | None = b""  # a possible part of a byte order mark; None after the stream's beginning
        self._size = 0
        self._kind = ""
        self._pending_id = last_id
        self._data = bytearray()
        self._has_fields = False

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that a piece completes. Lines end with LF, CR, or both. Raises EventTooLong."""
        if self._bom_buffer is not None:
            piece = self._bom_buffer + piece
            self._bom_buffer = piece if len(piece) < len(_BOM) and _BOM.startswith(piece) else None
            if self._bom_buffer is not None:
                return
            piece = piece.removeprefix(_BOM)
        if self._ended_with_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._ended_with_cr = False
        if not piece:
            return
        self._ended_with_cr = piece.endswith(b"\r")
        for part in piece.splitlines(keepends=True):
            line = part.rstrip(b"\r\n")
            if line:
                self._add_to_line(line)
            if len(line) == len(part):  # the line goes on in the next piece
                continue
            if self._has_line:
                self._end_line()
            elif (event := self._end_event()) is not None:
                yield event

    def _add_to_line(self, part: bytes) -> None:
        """Add a part to the current line; comments are not kept. Raises EventTooLong."""
        if not self._has_line:
            self._has_line = True
            self._is_comment = part.startswith(b":")
        if self._is_comment:
            return
        self._size += len(part)
        if self._size > self._limit:
            raise EventTooLong(f"an event is larger than {self._limit} bytes")
        self._line += part

    def _end_line(self) -> None:
        """Apply the current line, which is complete, to the current event."""
        self._has_line = False
        if self._is_comment:
            return
        line, self._line = self._line, bytearray()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match bytes(name):
            case b"data":
                self._data += value
                self._data += b"\n"
            case b"event":
                self._kind = value.decode(errors="replace")
            case b"id" if b"\0" not in value and len(value) <= LONGEST_ID:
                self._pending_id = value.decode(errors="replace")
            case b"retry" if value.isdigit():
                self.retry_ms = bounds.parse_whole(value.decode(), high=LONGEST_RETRY_MS)
                return
            case _:
                return
        self._has_fields = True

    def _end_event(self) -> ServerSentEvent | None:
        """Return the event that an empty line ends, and begin the next; None for an event without fields."""
        event = (
            ServerSentEvent(self._kind or "message", bytes(memoryview(self._data)[:-1])) if self._has_fields else None
        )
        self.last_id = self._pending_id
        self._size, self._kind, self._data, self._has_fields = 0, "", bytearray(), False
        return event
