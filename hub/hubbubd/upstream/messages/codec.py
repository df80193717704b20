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
from hubbubd.payload import bound_value_count, dumps, loads
from hubbubd.upstream.messages.envelope import EDGE, RequestHead, request_head, response_id
from hubbubd.upstream.protocol.schema_check import describe_problems

_BOM: Final = b"\xef\xbb\xbf"
_NOT_A_NUMBER: Final = re.compile(rb"[:\[,]\s*-?(?:NaN|Infinity)\b")

SHORT: Final = 64 * 1024
"""A document up to so many bytes is parsed without examining its envelope first."""

MAX_REQUEST_BYTES: Final = 1024 * 1024
"""A longer request or notification is not parsed, unless in `_LONG_METHODS`: others have no reason to be so long."""

_LONG_METHODS: Final = frozenset({"sampling/createMessage"})
"""Requests that carry images and audio."""

MAX_VALUES: Final = 50_000
"""The most values of a notification or request. Parsing one takes about a microsecond, validating more."""

MAX_BATCH: Final = 100
"""How many responses in a (forbidden) batch are answered with an error."""


class BadMessage(Exception):
    """An item of a read stream in place of a message that cannot be used.

    `answered_ids` are the ids of the requests that it answers, as far as they could be read.
    """

    def __init__(self, problem: str, *answered_ids: int | str) -> None:
        super().__init__(problem)
        self.answered_ids = answered_ids


class NotJson(BadMessage):
    """The data is no JSON document."""


class NotJsonRpc(NotJson):
    """The data is JSON, and not meant as a message: a line of a structured log, for example."""


class NotParsed(BadMessage):
    """A notification or request too large to be parsed. `request_id` is None for a notification."""

    def __init__(self, problem: str, request_id: int | str | None) -> None:
        super().__init__(problem)
        self.request_id = request_id


class ReceivedError(ErrorData):
    """An error as a server sent it. A plain `ErrorData` is made by the hub: no response came that can be used."""


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """A line that was skipped: its length in bytes, the id of the request it answers, and the head of a request."""

    size: int
    answered_id: int | str | None = None
    head: RequestHead | None = None


class LineSplitter:
    """Splits chunks into lines of at most `limit` bytes.

    Buffers at most `limit` bytes of an incomplete line, besides complete lines not yet taken; of a request that is too
    long to be parsed about MAX_ASKED_BYTES.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned_bytes = 0  # so many at the buffer's beginning have no newline
        self._skipped_bytes = 0  # of the current line, which is too long
        self._head = self._tail = b""  # the two ends of such a line
        self.may_have_line = False
        """Whether `take_line` may return a line; if False, it returns None."""

    def __len__(self) -> int:
        """Return how many bytes are buffered."""
        return len(self._buffer)

    @property
    def is_skipping(self) -> bool:
        """Whether the current line is too long already."""
        return self._skipped_bytes > 0

    def feed(self, chunk: bytes) -> None:
        """Add a chunk."""
        self._buffer += chunk
        self.may_have_line = self.may_have_line or b"\n" in chunk
        if not self.may_have_line:
            self._skip_overlong_line()

    def take_line(self) -> bytes | bytearray | OversizedLine | None:
        """Return the next line without its newline, an Oversized for one too long; None when it is not complete."""
        end = self._buffer.find(b"\n", self._scanned_bytes)
        if end < 0:
            self.may_have_line = False
            self._skip_overlong_line()
            self._scanned_bytes = len(self._buffer)
            return None
        size = self._skipped_bytes + end
        if self._skipped_bytes or size > self._limit:
            head = self._head or self._buffer[: min(EDGE, end)]
            tail = (self._tail + self._buffer[max(end - EDGE, 0) : end])[-EDGE:]
            line = OversizedLine(size, response_id(head, tail), request_head(head, tail))
        elif end > SHORT:  # not copied: the buffer becomes the line, and what follows it is moved
            line, self._buffer = self._buffer, self._buffer[end + 1 :]
            del line[end:]
        else:
            line = bytes(memoryview(self._buffer)[:end])
        if not isinstance(line, bytearray):
            del self._buffer[: end + 1]
        self._scanned_bytes = self._skipped_bytes = 0
        self._head = self._tail = b""
        return line

    def _skip_overlong_line(self) -> None:
        """Drop what is buffered of a line that is too long, but for its two ends."""
        if self._skipped_bytes or len(self._buffer) > self._max_line_bytes():
            self._head = self._head or bytes(self._buffer[:EDGE])
            self._tail = (self._tail + self._buffer[-EDGE:])[-EDGE:]
            self._skipped_bytes += len(self._buffer)
            self._buffer.clear()
            self._scanned_bytes = 0

    def _max_line_bytes(self) -> int:
        """Return how long the current line may become. A request that will not be parsed is not buffered whole."""
        if len(self._buffer) <= MAX_REQUEST_BYTES:
            return self._limit
        head = request_head(self._buffer[:EDGE], b"")
        return self._limit if head is None else min(self._limit, _max_parsed_bytes(head))


def parse_message(data: bytes | bytearray | str) -> JSONRPCMessage:
    """Parse a JSON-RPC message: the one decoder of all transports.

    Raises BadMessage, NotJson, and NotParsed for a notification or request that is too large.
    """
    if len(data) > SHORT:
        _require_parseable(_as_bytes(data))
    try:
        value = loads(data)
    except ValueError as exc:
        raw = _as_bytes(data)
        problem = f"not JSON: {_explain_not_json(raw, exc)}"
        answered_id = response_id(raw[: EDGE + len(_BOM)].removeprefix(_BOM), raw[-EDGE:])
        raise (NotJson(problem) if answered_id is None else NotJson(problem, answered_id)) from None
    return message_from_json(value)


def _as_bytes(data: bytes | bytearray | str) -> bytes | bytearray:
    """Return text as UTF-8, and bytes as they are."""
    return data.encode(errors="replace") if isinstance(data, str) else data


def _require_parseable(data: bytes | bytearray) -> None:
    """Raise NotParsed for a notification or request that is too large. Results may be large: the hub asked for them."""
    head = request_head(data[:EDGE], data[-EDGE:])
    if head is None:
        return
    max_bytes = _max_parsed_bytes(head)
    if len(data) > max_bytes:
        raise _too_large_error(head, len(data), max_bytes)
    if bound_value_count(data, MAX_VALUES) > MAX_VALUES:
        raise NotParsed(f"{head.method!r} with more than {MAX_VALUES} values; so many are not read", head.request_id)


def oversized_error(line: OversizedLine, limit: int) -> BadMessage:
    """Return the error in place of a skipped line; `limit` is how many bytes any message may have."""
    if line.head is not None:
        return _too_large_error(line.head, line.size, min(limit, _max_parsed_bytes(line.head)))
    answered_ids = () if line.answered_id is None else (line.answered_id,)
    return BadMessage(f"a message of {line.size} bytes; max_message_bytes is {limit}", *answered_ids)


def _too_large_error(head: RequestHead, size: int, max_bytes: int) -> NotParsed:
    """Return the error for a request or notification of more than `max_bytes` bytes."""
    return NotParsed(f"{head.method!r} of {size} bytes; at most {max_bytes} are read", head.request_id)


def _max_parsed_bytes(head: RequestHead) -> int:
    """Return how long a request or notification may be to be parsed, by its method."""
    return sys.maxsize if head.method in _LONG_METHODS else MAX_REQUEST_BYTES


def _explain_not_json(raw: bytes | bytearray, exc: ValueError) -> str:
    """Return why the data is no JSON; `exc` is the parser's error."""
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

    Lenient with what is seen in the wild: a null id beside a method makes a notification, a null error is ignored, and
    an empty list as params or as a result is an empty object. Choosing the class here takes a third of the time of
    validating against all four.
    """
    if isinstance(value, list):
        raise BadMessage("an array of messages, which MCP does not have", *_answered_ids(cast("list[Any]", value)))
    if not isinstance(value, dict):
        raise NotJsonRpc("not a JSON object")
    fields = cast("dict[str, Any]", value)
    _normalize_envelope(fields)
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
        is_response = fields.get("id") is not None and not fields.keys().isdisjoint(("result", "error"))
        if "jsonrpc" not in fields and not is_response:
            raise NotJsonRpc("an object that is no JSON-RPC message") from None
        raise BadMessage(f"not a JSON-RPC message: {describe_problems(exc)}", *_answered_ids([fields])) from None


def _normalize_envelope(fields: dict[str, Any]) -> None:
    """Normalize what servers write in other ways, in place.

    An id of 5.0 becomes 5, an empty list of params or as a result an empty object. An error without `id`, `code` or
    `message` gets them; the message is then the error as JSON.
    """
    for name in ("params", "result"):
        if fields.get(name) == []:
            fields[name] = {}
    message_id = fields.get("id")
    if message_id.__class__ is float and cast("float", message_id).is_integer():
        fields["id"] = bounds.clamp_whole(message_id, -bounds.LARGEST_WHOLE)
    error: Any = fields.get("error")
    if error is None or "method" in fields:
        return
    fields.setdefault("id", None)
    details = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": error}
    code, message = bounds.clamp_whole(details.get("code"), -bounds.LARGEST_WHOLE), details.get("message")
    if code is None or not isinstance(message, str):
        text = message if isinstance(message, str) else dumps(cast("object", error)).decode()
        fields["error"] = {**details, "code": INTERNAL_ERROR if code is None else code, "message": text}


def _answered_ids(values: list[Any]) -> Iterator[int | str]:
    """Yield the ids of the responses among the first MAX_BATCH values."""
    for value in values[:MAX_BATCH]:
        if isinstance(value, dict) and "method" not in value:
            message_id = cast("dict[str, Any]", value).get("id")
            if isinstance(message_id, int | str) and not isinstance(message_id, bool):
                yield message_id


def serialize(message: JSONRPCMessage) -> bytes:
    """Serialize a message. Raises TypeError for what JSON cannot express.

    Unset fields are left out, as `params: null` is not JSON-RPC; params and results are JSON already.
    """
    fields = {name: value for name, value in message.__dict__.items() if name in message.model_fields_set}
    if isinstance(message, JSONRPCError):
        fields["error"] = message.error.model_dump(mode="json", exclude_unset=True)
    return dumps(fields)
