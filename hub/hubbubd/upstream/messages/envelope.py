"""Reads the envelope of a JSON-RPC message from its two ends, without parsing the message."""

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
    """What the envelope says of a request; of a notification if `request_id` is None."""

    method: str
    request_id: int | str | None


def response_id(head: bytes | bytearray, tail: bytes | bytearray) -> int | str | None:
    """Return the id of the request that a message with these ends answers; None when they do not show it."""
    response = _RESPONSE.match(head)
    return None if response is None else _message_id(response[1], tail)


def request_head(head: bytes | bytearray, tail: bytes | bytearray) -> RequestHead | None:
    """Return the head of a request or notification with these ends; None for a response, or if they do not show it."""
    request = _REQUEST.match(head)
    if request is None or request[2] is None:
        return None
    return RequestHead(request[2].decode(), _message_id(request[1], tail))


def _message_id(encoded: bytes | None, tail: bytes | bytearray) -> int | str | None:
    """Return the id that was found in a message's head, else the one in its tail; None without any."""
    if encoded is None:
        after = _AFTER_ID.search(tail)
        encoded = after[1] if after is not None else None
    return None if encoded is None else loads(encoded)
