"""Framing: bytes to lines to JSON-RPC messages, and back. Pure; nothing here waits."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_types import INTERNAL_ERROR
from mcp_types.jsonrpc import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError

from hubbubd import bounds
from hubbubd.payload import dumps, loads, values
from hubbubd.upstream.messages.envelope import EDGE, RequestHead, request_head, response_id
from hubbubd.upstream.protocol.schema_check import problems

_BOM: Final = b"\xef\xbb\xbf"
_NOT_A_NUMBER: Final = re.compile(rb"[:\[,]\s*-?(?:NaN|Infinity)\b")

SHORT: Final = 64 * 1024
"""A document up to so many bytes is parsed without examining its envelope first."""

MAX_ASKED_BYTES: Final = 1024 * 1024
"""A longer notification or request is not parsed, except those in `_LONG`: none has a reason to be so long."""

_LONG: Final = frozenset({"sampling/createMessage"})
"""Requests that carry images and audio."""

MAX_VALUES: Final = 50_000
"""The most values of a notification or request. Parsing one takes about a microsecond, validating more."""

MAX_BATCH: Final = 100
"""How many responses in a (forbidden) batch are answered with an error."""


class BadMessage(Exception):
    """An item of a read stream in place of a message that cannot be used.

    `answers` are the ids of the requests that it answers, as far as they could be read.
    """

    def __init__(self, problem: str, *answers: int | str) -> None:
        super().__init__(problem)
        self.answers = answers


class NotJson(BadMessage):
    """The data is no JSON document."""


class NotJsonRpc(NotJson):
    """The data is JSON, and not meant as a message: a line of a structured log, for example."""


class NotParsed(BadMessage):
    """A notification or request too large to be parsed. `asked` is the id, if it is a request."""

    def __init__(self, problem: str, asked: int | str | None) -> None:
        super().__init__(problem)
        self.asked = asked


class ReceivedError(ErrorData):
    """An error as a server sent it. Plain `ErrorData` is the hub's own: the response is not there."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line that was skipped: its length in bytes, the id of the request it answers, and the head of a request."""

    size: int
    answers: int | str | None = None
    head: RequestHead | None = None


class LineSplitter:
    """Splits chunks into lines of at most `limit` bytes.

    Buffers at most `limit` bytes of an incomplete line, besides complete lines not yet taken; of a request that is too
    long to be parsed about MAX_ASKED_BYTES.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._skipped = 0
        self._head = self._tail = b""
        self.ready = False
        """Whether `take` may return a line; False is certain."""

    def __len__(self) -> int:
        return len(self._buffer)

    @property
    def skipping(self) -> bool:
        """Whether the current line is too long already."""
        return self._skipped > 0

    def feed(self, chunk: bytes) -> None:
        """Add a chunk."""
        self._buffer += chunk
        self.ready = self.ready or b"\n" in chunk
        if not self.ready:
            self._skip_what_is_too_long()

    def take(self) -> bytes | bytearray | Oversized | None:
        """Return the next line without its newline; None when it is not complete."""
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self.ready = False
            self._skip_what_is_too_long()
            self._scanned = len(self._buffer)
            return None
        size = self._skipped + end
        if self._skipped or size > self._limit:
            head = self._head or self._buffer[: min(EDGE, end)]
            tail = (self._tail + self._buffer[max(end - EDGE, 0) : end])[-EDGE:]
            line = Oversized(size, response_id(head, tail), request_head(head, tail))
        elif end > SHORT:  # not copied: the buffer becomes the line, and what follows it is moved
            line, self._buffer = self._buffer, self._buffer[end + 1 :]
            del line[end:]
        else:
            line = bytes(memoryview(self._buffer)[:end])
        if not isinstance(line, bytearray):
            del self._buffer[: end + 1]
        self._scanned = self._skipped = 0
        self._head = self._tail = b""
        return line

    def _skip_what_is_too_long(self) -> None:
        if self._skipped or len(self._buffer) > self._most():
            self._head = self._head or bytes(self._buffer[:EDGE])
            self._tail = (self._tail + self._buffer[-EDGE:])[-EDGE:]
            self._skipped += len(self._buffer)
            self._buffer.clear()
            self._scanned = 0

    def _most(self) -> int:
        """Return how long the current line may become: what will not be parsed need not be buffered."""
        if len(self._buffer) <= MAX_ASKED_BYTES:
            return self._limit
        asked = request_head(self._buffer[:EDGE], b"")
        return self._limit if asked is None else min(self._limit, _most_read(asked))


def parse_message(data: bytes | bytearray | str) -> JSONRPCMessage:
    """Parse a JSON-RPC message: the one decoder of all transports.

    Raises BadMessage, NotJson, and NotParsed for a notification or request that is too large.
    """
    if len(data) > SHORT:
        _refuse_unread(_encoded(data))
    try:
        value = loads(data)
    except ValueError as exc:
        raw = _encoded(data)
        answers = response_id(raw[: EDGE + len(_BOM)].removeprefix(_BOM), raw[-EDGE:])
        raise NotJson(f"not JSON: {_why(raw, exc)}", *(() if answers is None else (answers,))) from None
    return message_from_json(value)


def _encoded(data: bytes | bytearray | str) -> bytes | bytearray:
    return data.encode(errors="replace") if isinstance(data, str) else data


def _refuse_unread(data: bytes | bytearray) -> None:
    """Raise NotParsed for what is too large. Results may have any length, as the hub has asked for them."""
    asked = request_head(data[:EDGE], data[-EDGE:])
    if asked is None:
        return
    if len(data) > (most := _most_read(asked)):
        raise _unread(asked, len(data), most)
    if values(data, MAX_VALUES) > MAX_VALUES:
        raise NotParsed(f"{asked.method!r} with more than {MAX_VALUES} values; so many are not read", asked.request_id)


def oversized_error(line: Oversized, limit: int) -> BadMessage:
    """Return the error in place of a skipped line; `limit` is that of any message, in bytes."""
    if line.head is not None:
        return _unread(line.head, line.size, min(limit, _most_read(line.head)))
    answers = () if line.answers is None else (line.answers,)
    return BadMessage(f"a message of {line.size} bytes; max_message_bytes is {limit}", *answers)


def _unread(asked: RequestHead, size: int, most: int) -> NotParsed:
    return NotParsed(f"{asked.method!r} of {size} bytes; at most {most} are read", asked.request_id)


def _most_read(asked: RequestHead) -> int:
    return sys.maxsize if asked.method in _LONG else MAX_ASKED_BYTES


def _why(raw: bytes | bytearray, exc: ValueError) -> str:
    if raw.startswith(_BOM):
        return "it begins with a byte order mark"
    try:
        raw.decode()
    except UnicodeDecodeError as problem:
        return f"it is not UTF-8 at byte {problem.start}"
    if _NOT_A_NUMBER.search(raw):
        return f"NaN and Infinity are no values ({exc})"
    return str(exc)


def message_from_json(value: Any) -> JSONRPCMessage:
    """Return a JSON value as a JSON-RPC message. Raises BadMessage.

    Lenient, as all are seen in the wild: a null id beside a method makes a notification, a null error beside a result
    a result, and an empty list of params or as a result is an empty object. Choosing the class here takes a third of
    the time of validating against all four.
    """
    if isinstance(value, list):
        raise BadMessage("an array of messages, which MCP does not have", *_all_answered(cast("list[Any]", value)))
    if not isinstance(value, dict):
        raise NotJsonRpc("not a JSON object")
    fields = cast("dict[str, Any]", value)
    _straighten(fields)
    try:
        if "method" in fields:
            if fields.get("id") is None:
                return JSONRPCNotification.model_validate(fields)
            return JSONRPCRequest.model_validate(fields)
        if fields.get("error") is not None:
            message = JSONRPCError.model_validate(fields)
            message.error = ReceivedError.model_construct(message.error.model_fields_set, **dict(message.error))
            return message
        return JSONRPCResponse.model_validate(fields)
    except ValidationError as exc:
        # A result or an error alone is no response: structured logs have members of these names.
        responds = fields.get("id") is not None and not fields.keys().isdisjoint(("result", "error"))
        if "jsonrpc" not in fields and not responds:
            raise NotJsonRpc("an object that is no JSON-RPC message") from None
        raise BadMessage(f"not a JSON-RPC message: {problems(exc)}", *_all_answered([fields])) from None


def _straighten(fields: dict[str, Any]) -> None:
    """Read an id of 5.0 as 5, an empty list as an empty object, and an error in any form as one in its own words."""
    for name in ("params", "result"):
        if fields.get(name) == []:
            fields[name] = {}
    named = fields.get("id")
    if named.__class__ is float and cast("float", named).is_integer():
        fields["id"] = bounds.whole(named, -bounds.LARGEST_WHOLE)
    error: Any = fields.get("error")
    if error is None or "method" in fields:
        return
    fields.setdefault("id", None)
    said = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": error}
    code, message = bounds.whole(said.get("code"), -bounds.LARGEST_WHOLE), said.get("message")
    if code is None or not isinstance(message, str):
        text = message if isinstance(message, str) else dumps(cast("object", error)).decode()
        fields["error"] = {**said, "code": INTERNAL_ERROR if code is None else code, "message": text}


def _all_answered(values: list[Any]) -> Iterator[int | str]:
    for value in values[:MAX_BATCH]:
        if isinstance(value, dict) and "method" not in value:
            named = cast("dict[str, Any]", value).get("id")
            if isinstance(named, int | str) and not isinstance(named, bool):
                yield named


def serialize(message: JSONRPCMessage) -> bytes:
    """Serialize a message. Raises TypeError for what JSON cannot express.

    Unset fields are left out, as `params: null` is not JSON-RPC; params and results are JSON already.
    """
    fields = {name: value for name, value in message.__dict__.items() if name in message.model_fields_set}
    if isinstance(message, JSONRPCError):
        fields["error"] = message.error.model_dump(mode="json", exclude_unset=True)
    return dumps(fields)


def serialize_line(message: JSONRPCMessage) -> bytes:
    """Serialize a message as one line. Raises TypeError as `serialize`."""
    return serialize(message) + b"\n"
