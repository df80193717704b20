"""JSON documents as bytes: the only place where the hub parses and serializes them.

MCP payloads travel through the hub as UTF-8 JSON, parsed once on entry and serialized once on exit. Integers of any
size keep their value; NaN and Infinity, which are not JSON, are refused on input, and a number beyond a double becomes
null.
"""

import gc
import json
import math
import re
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, cast

import orjson
from pydantic_core import from_json

from hubbubd.errors import InvalidArgument

Json = dict[str, Any]

_BRACKETS = b"[{]}"
_NO_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = bytes.maketrans(_BRACKETS, b"\x01\x01\xff\xff")
"""What follows an opening bracket is one deeper; 0xff is -1 in an array of signed bytes."""

_SURROGATE = re.compile(rb"(\\u[dD][89a-fA-F])")

LONG = 64 * 1024
"""Characters of a document from which on garbage collection is paused while it is parsed."""


def loads(data: bytes | bytearray | str) -> Any:
    """Parse a JSON document. Raises ValueError for what is none, or is nested too deeply."""
    # Nothing of a document is garbage while it is parsed, and the collections that so many allocations trigger take
    # several times as long as the parsing.
    pause = len(data) > LONG and gc.isenabled()
    if pause:
        gc.disable()
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        # A lone surrogate, escaped, is legal JSON (RFC 8259, section 8.2); JavaScript writes it when it cuts a string.
        whole = overwrite_matches(data.encode() if isinstance(data, str) else data, _SURROGATE, rb"\uFF")
        if whole is None:
            raise
        # Apply the same limits (nesting, numbers) to the document with the surrogates replaced.
        from_json(whole, allow_inf_nan=False)
        return json.loads(data)
    finally:
        if pause:
            gc.enable()


def bound_value_count(document: bytes | bytearray, most: int) -> int:
    """Return an upper bound of the number of values in a JSON document; if beyond `most`, any number above `most`.

    A comma or an opening bracket outside of strings starts at most one value. Nothing is parsed, and few objects are
    made: about 3 ns per byte.
    """
    plain = _without_escapes(document)
    if (strings := plain.count(b'"') // 2) > 2 * most + 1:
        return strings // 2  # each string is a value or a key
    outside = b"".join(plain.split(b'"')[::2])
    return 1 + sum(map(outside.count, (b",", b"[", b"{")))


def is_nested_deeper(document: bytes | bytearray, most: int) -> bool:
    """Return whether more than `most` arrays and objects of a JSON document are inside each other.

    Nothing is parsed: about 40 ns per bracket, and next to nothing where there are no more than `most` of them.
    """
    if document.count(b"[") + document.count(b"{") <= most:
        return False
    outside = b"".join(_without_escapes(document).split(b'"')[::2])
    steps = array("b", outside.translate(_STEPS, _NO_BRACKETS))
    return max(accumulate(steps), default=0) > most


def _without_escapes(document: bytes | bytearray) -> bytes | bytearray:
    """Return the document without escaped backslashes and quotes: each quote that is left begins or ends a string."""
    return document.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in document else document


def overwrite_matches(data: bytes | bytearray, pattern: re.Pattern[bytes], instead: bytes) -> bytearray | None:
    """Return a copy with `instead`, which is as long, in place of group 1 of each match; None without a match.

    `re.sub` would take many times the memory of the document.
    """
    copy: bytearray | None = None
    for match in pattern.finditer(data):
        copy = copy or bytearray(data)
        copy[slice(*match.span(1))] = instead
    return copy


def _without_infinity(value: Any) -> Any:
    """Return the value with null in place of infinities, as orjson writes them."""
    match value:
        case Mapping():
            return {key: _without_infinity(inner) for key, inner in cast("Json", value).items()}
        case list() | tuple():
            return [_without_infinity(inner) for inner in cast("list[Any]", value)]
        case float() if math.isinf(value):
            return None
        case _:
            return value


def dumps(value: object) -> bytes:
    """Serialize a value. Raises TypeError for a value that JSON cannot express.

    What orjson 3.13 returns keeps its whole buffer: 4 KiB for a short document, and 8 to 26 times the length of others.
    `join` copies it into as many bytes as it is long.
    """
    try:
        return b"".join((orjson.dumps(value), b""))
    except TypeError:  # an integer beyond 64 bits, or a string with a lone surrogate
        return json.dumps(_without_infinity(value), separators=(",", ":"), allow_nan=False).encode()


def dumps_canonical(value: object) -> bytes:
    """Serialize a value with the members of its objects in order, so that equal values give equal bytes.

    Raises TypeError for a value that JSON cannot express.
    """
    try:
        return b"".join((orjson.dumps(value, option=orjson.OPT_SORT_KEYS), b""))
    except TypeError:
        return json.dumps(_without_infinity(value), separators=(",", ":"), allow_nan=False, sort_keys=True).encode()


def loads_object(data: bytes, field: str) -> Json:
    """Parse a caller's JSON object; empty bytes mean an empty one.

    Raises InvalidArgument with a violation for `field` for anything else.
    """
    if not data:
        return {}
    try:
        value = loads(data)
    except ValueError as exc:
        raise InvalidArgument.field(field, f"is not valid JSON: {exc}") from None
    if not isinstance(value, dict):
        raise InvalidArgument.field(field, "must be a JSON object")
    return cast("Json", value)


def loads_message(data: bytes, field: str) -> Json:
    """Parse the params or result of an MCP message: an object whose `_meta`, if any, is one. Raises InvalidArgument."""
    value = loads_object(data, field)
    if not isinstance(value.get("_meta", {}), dict):
        raise InvalidArgument.field(f"{field}._meta", "must be a JSON object")
    return value
