"""What of a JSON-RPC message can be told without reading it: from its two ends, and by counting."""

import re
from dataclasses import dataclass
from typing import Final

from hubbubd.payload import loads

EDGE: Final = 200
"""Bytes of both ends of a message that are looked at."""

# What is the message's own stands before its long member or after it.
_ID: Final = rb'"id"\s*:\s*(0|[1-9]\d{0,15}|"[ !#-\[\]-~]*")\s*'
_METHOD: Final = rb'"method"\s*:\s*"([!#-\[\]-~]*)"\s*'
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_AFTER_ID: Final = re.compile(_ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")
_RESPONSE: Final = re.compile(rb"\s*\{\s*(?:(?:" + _VERSION + rb"|" + _ID + rb')\s*,\s*)*"(?:result|error)"\s*:')
_REQUEST: Final = re.compile(rb"\s*\{\s*(?:(?:" + _VERSION + rb"|" + _ID + rb"|" + _METHOD + rb')\s*,\s*)*"params"\s*:')


@dataclass(frozen=True, slots=True)
class Asks:
    """A request; without a `request_id`, a notification."""

    method: str
    request_id: int | str | None


def answered(head: bytes | bytearray, tail: bytes | bytearray) -> int | str | None:
    """The request that a message with these ends answers; None when the ends do not tell."""
    before = _RESPONSE.match(head)
    named = before and (before[1] or ((after := _AFTER_ID.search(tail)) and after[1]))
    return loads(named) if named else None


def asks(head: bytes | bytearray, tail: bytes | bytearray) -> Asks | None:
    """What a message with these ends asks or tells; None when it answers, or the ends do not tell."""
    before = _REQUEST.match(head)
    if before is None or before[2] is None:
        return None
    named = before[1] or ((after := _AFTER_ID.search(tail)) and after[1])
    return Asks(before[2].decode(), loads(named) if named else None)


def values(document: bytes | bytearray, most: int) -> int:
    """At least as many values as a JSON document has; for one with more than `most`, some number from there on.

    A comma or an opening bracket outside of a string begins at most one value. Nothing is parsed, and few objects are
    made: some 3 ns a byte.
    """
    plain = document.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in document else document
    if (strings := plain.count(b'"') // 2) > 2 * most + 1:
        return strings // 2  # each is a value, or the name of one
    outside = b"".join(plain.split(b'"')[::2])
    return 1 + sum(map(outside.count, (b",", b"[", b"{")))
