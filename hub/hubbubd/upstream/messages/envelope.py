"""What can be told of a JSON-RPC message from its two ends, without parsing it."""

import re
from dataclasses import dataclass
from typing import Final

from hubbubd.payload import loads

EDGE: Final = 200
"""Bytes at both ends of a message that are examined."""

# The members of the envelope are before or after the long one (`params`, `result`).
_ID: Final = rb'"id"\s*:\s*(0|[1-9]\d{0,15}|"[ !#-\[\]-~]*")\s*'
_METHOD: Final = rb'"method"\s*:\s*"([!#-\[\]-~]*)"\s*'
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_AFTER_ID: Final = re.compile(_ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")
_RESPONSE: Final = re.compile(rb"\s*\{\s*(?:(?:" + _VERSION + rb"|" + _ID + rb')\s*,\s*)*"(?:result|error)"\s*:')
_REQUEST: Final = re.compile(rb"\s*\{\s*(?:(?:" + _VERSION + rb"|" + _ID + rb"|" + _METHOD + rb')\s*,\s*)*"params"\s*:')


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request; without `request_id`, a notification."""

    method: str
    request_id: int | str | None


def response_id(head: bytes | bytearray, tail: bytes | bytearray) -> int | str | None:
    """Return the id of the request that a message with these ends answers; None when they do not tell."""
    before = _RESPONSE.match(head)
    named = before and (before[1] or ((after := _AFTER_ID.search(tail)) and after[1]))
    return loads(named) if named else None


def request_head(head: bytes | bytearray, tail: bytes | bytearray) -> RequestHead | None:
    """Return what a message with these ends asks or notifies of; None for a response, or when they do not tell."""
    before = _REQUEST.match(head)
    if before is None or before[2] is None:
        return None
    named = before[1] or ((after := _AFTER_ID.search(tail)) and after[1])
    return RequestHead(before[2].decode(), loads(named) if named else None)
