"""JSON-RPC messages of hosts: parsed from bytes, and made as bytes around results that are bytes already."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.bounds import LONGEST_URI
from hubbubd.core.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR

MAX_VALUES: Final = 100_000
"""The most values of one message: parsing one takes up to a microsecond."""

MAX_ID: Final = 256
"""Characters of a request's id, which the response repeats."""

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""The member of a request's `_meta` that says its revision (2026-07-28, basic)."""

_HEAD_BYTES: Final = 64 + 12 * MAX_ID  # the most before a result or error: each character of the id may be escaped

Id = str | int | float
"""The id of a request. JSON-RPC 2.0, section 4; MCP has no null."""


class Refusal(Exception):
    """A JSON-RPC error for the host."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class MessageTooLarge(Refusal):
    """A message with more bytes or values than it may have; `limit` is the highest number."""

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(INVALID_REQUEST, message, {"reason": "MESSAGE_TOO_LARGE", "limit": str(limit)})


@dataclass(frozen=True, slots=True)
class RequestMessage:
    """A request of a host."""

    id: Id
    method: str
    params: dict[str, Any]

    @property
    def is_stateless(self) -> bool:
        """Whether the request itself shows that it is of a revision without a handshake."""
        if self.method == "initialize":
            return False
        meta: dict[str, Any] = self.params.get("_meta") or {}
        return PROTOCOL_VERSION in meta or self.method == "server/discover"


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    """A notification of a host."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseMessage:
    """A host's response to a request of the hub: a result, or the error instead."""

    id: Id
    result: dict[str, Any] | None
    error: Mapping[str, Any] | None = None


Message = RequestMessage | NotificationMessage | ResponseMessage


def parse(body: bytes) -> Message:
    """Parse one message.

    Raises Refusal: PARSE_ERROR for what is no JSON, INVALID_REQUEST for what is no message, and INVALID_PARAMS for a
    `_meta` that is no object.
    """
    if payload.bound_value_count(body, MAX_VALUES) > MAX_VALUES:
        raise MessageTooLarge(f"a message may have {MAX_VALUES} values", MAX_VALUES)
    try:
        value = payload.loads(body)
    except ValueError:
        raise Refusal(PARSE_ERROR, "the message is not valid JSON, or is nested too deeply") from None
    if isinstance(value, list):
        raise Refusal(INVALID_REQUEST, "batches are not part of this protocol: send one message at a time")
    if not isinstance(value, dict):
        raise Refusal(INVALID_REQUEST, "a message is a JSON object")
    message = cast("dict[str, Any]", value)
    if message.get("jsonrpc") != "2.0":
        raise Refusal(INVALID_REQUEST, 'a message has "jsonrpc": "2.0"')
    if "method" not in message:
        return _parse_response(message)
    method, params_value = message["method"], message.get("params", {})
    if not isinstance(method, str):
        raise Refusal(INVALID_REQUEST, "method must be a string")
    if not isinstance(params_value, dict):
        raise Refusal(INVALID_REQUEST, "params must be an object")
    params = cast("dict[str, Any]", params_value)
    if not isinstance(params.get("_meta", {}), dict):
        raise Refusal(INVALID_PARAMS, "params._meta must be an object")
    if "id" not in message:
        return NotificationMessage(method, params)
    return RequestMessage(_parse_id(message), method, params)


def _parse_response(message: dict[str, Any]) -> ResponseMessage:
    """Return a message without a method as a response. Raises Refusal."""
    result, error = message.get("result"), message.get("error")
    if isinstance(error, dict):
        return ResponseMessage(_parse_id(message), None, cast("dict[str, Any]", error))
    if isinstance(result, dict):
        return ResponseMessage(_parse_id(message), cast("dict[str, Any]", result))
    raise Refusal(INVALID_REQUEST, "a message has a method, a result or an error")


def _parse_id(message: Mapping[str, Any]) -> Id:
    """Return the id of a message. Raises Refusal for one that is invalid."""
    id_ = message.get("id")
    is_infinite = isinstance(id_, float) and not math.isfinite(id_)
    if is_infinite or isinstance(id_, bool) or not isinstance(id_, str | int | float) or len(str(id_)) > MAX_ID:
        raise Refusal(INVALID_REQUEST, f"id must be a string or a number of at most {MAX_ID} characters")
    return id_


def find_refused_id(body: bytes) -> Id | None:
    """Return the id of a request that `parse` has refused; None if it has no valid id. Never raises.

    A request may have a valid id though it is nested too deeply, or has NaN as a number.
    """
    try:
        message: object = json.loads(body.decode())
        return _parse_id(cast("dict[str, Any]", message)) if isinstance(message, dict) and "method" in message else None
    except (ValueError, RecursionError, Refusal):
        return None


def make_result_response(id_: Id, raw: bytes) -> bytes:
    """Return the response with a result; `raw` is the result as a JSON object."""
    return b'{"jsonrpc":"2.0","id":' + payload.dumps(id_) + b',"result":' + raw + b"}"


def make_error_response(id_: Id | None, refusal: Refusal) -> bytes:
    """Return the response with an error; `id_` is None where the id of the request is not known."""
    members: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        members["data"] = refusal.data
    return payload.dumps({"jsonrpc": "2.0", "id": id_, "error": members})


def read_error_code(response: bytes) -> int | None:
    """Return the code of a response that `make_error_response` has made; None for a result, which is not parsed."""
    # The quotes in an id are escaped, so no id looks like the beginning of a result or error.
    head, _, _ = response[:_HEAD_BYTES].partition(b',"result":')
    return payload.loads(response)["error"]["code"] if b',"error":' in head else None


def read_response_id(message: bytes) -> Id | None:
    """Return the id of a response that `make_result_response` has made; None for any other message.

    Only the head is parsed, as the result may be large: it is the last member.
    """
    head, separator, _ = message[:_HEAD_BYTES].partition(b',"result":')
    try:
        members: object = payload.loads(head + b"}") if separator else None  # an object of what is before the result
    except ValueError:
        return None
    return (
        cast("dict[str, Any]", members)["id"]
        if isinstance(members, dict) and members.keys() == {"jsonrpc", "id"}
        else None
    )


def make_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Return a notification of the hub, as bytes."""
    members: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return payload.dumps(members if params is None else {**members, "params": params})


def make_request(id_: Id, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request of the hub, as bytes."""
    return payload.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def with_members(raw: bytes, **members: Any) -> bytes:
    """Return a JSON object with further members, without parsing it. It must not have any of these members before."""
    if not members:
        return raw
    added = payload.dumps(members)
    return added if raw == b"{}" else added[:-1] + b"," + raw[1:]


def check_length(text: str, where: str) -> None:
    """Raise Refusal for a name or URI longer than LONGEST_URI; `where` is what the error calls it."""
    if len(text) > LONGEST_URI:
        raise Refusal(INVALID_PARAMS, f"{where} may have {LONGEST_URI} characters")


def refusal_for_method(method: str) -> Refusal:
    """Return the error for a method that this endpoint does not have."""
    return Refusal(METHOD_NOT_FOUND, f"there is no method {method[:100]!r} here")


def refusal_for_internal_error(exception_name: str) -> Refusal:
    """Return the error for an internal error of the hub; `exception_name` is the name of its exception."""
    return Refusal(INTERNAL_ERROR, f"the hub failed: {exception_name}")
