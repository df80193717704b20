"""JSON-RPC messages, as far as a bridge has to look at them."""

import json
import math
from collections.abc import Mapping
from typing import Any, cast

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
# https://www.jsonrpc.org/specification#error_object

HUB_AWAY = -32000
"""The hub cannot be asked; the message says why, and what to do."""

MAX_ID = 256
"""Characters of the longest id that a hub takes."""

REVISION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# Members of `_meta`, since 2026-07-28.

Key = tuple[bool, object]
"""An id as a key: 1 and "1" are two keys."""

Message = dict[str, Any]


class MalformedMessage(ValueError):
    """These bytes are no JSON-RPC message; `code` is the code of the error to respond with."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def parse(raw: bytes) -> Message:
    """Parse a message. Raises MalformedMessage."""
    try:
        value: object = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise MalformedMessage(PARSE_ERROR, "the message is not valid JSON, or is nested too deeply") from None
    if isinstance(value, list):
        raise MalformedMessage(INVALID_REQUEST, "batches are not part of this protocol: send one message at a time")
    if not isinstance(value, dict):
        raise MalformedMessage(INVALID_REQUEST, "a message is a JSON object")
    return cast("Message", value)


def _refuse_constant(constant: str) -> None:
    """Refuse NaN and Infinity, which JSON does not have. Raises ValueError."""
    raise ValueError(constant)


def is_valid_id(id_: object) -> bool:
    """Return whether a hub takes this as the id of a request."""
    if isinstance(id_, bool) or not isinstance(id_, str | int | float) or len(str(id_)) > MAX_ID:
        return False
    return not isinstance(id_, float) or math.isfinite(id_)


def make_key(id_: object) -> Key:
    """Return an id as a key of a dict: whether the value in the key is a text, and that value.

    A value of a type that no id has (null, a boolean, an array, an object) is replaced by its JSON, which is a text.
    """
    if isinstance(id_, str | int | float) and not isinstance(id_, bool):
        return isinstance(id_, str), id_
    return True, json.dumps(id_)


def find_member(message: Mapping[str, Any], *path: str) -> Any:
    """Return the value at a path of nested objects; None if a step is missing or is no object."""
    found: Any = message
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = cast("Mapping[str, Any]", found).get(name)
    return found


def find_object(message: Mapping[str, Any], *path: str) -> Message:
    """Return the object at a path of nested objects; an empty one if it is missing or something else."""
    found = find_member(message, *path)
    return cast("Message", found) if isinstance(found, dict) else {}


def find_text(message: Mapping[str, Any], *path: str) -> str:
    """Return the text at a path of nested objects; empty if it is missing or something else."""
    found = find_member(message, *path)
    return found if isinstance(found, str) else ""


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON in one line, without the line end."""
    return json.dumps(message, separators=(",", ":")).encode()


def make_result(id_: object, value: Mapping[str, Any]) -> bytes:
    """Return the response with a result, as one line of JSON."""
    return encode_line({"jsonrpc": "2.0", "id": id_, "result": value})


def make_error(id_: object, code: int, message: str) -> bytes:
    """Return the response with an error, as one line of JSON."""
    return encode_line({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})


def make_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Return a notification, as one line of JSON."""
    return encode_line({"jsonrpc": "2.0", "method": method} | ({"params": params} if params else {}))
