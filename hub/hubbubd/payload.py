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
"""Translates brackets to changes of depth: an opening one is +1, a closing one -1 (0xff as a signed byte)."""

_SURROGATE = re.compile(rb"(\\u[dD][89a-fA-F])")

LONG_BYTES = 64 * 1024
"""Characters of a document from which on garbage collection is paused while it is parsed."""


def loads(data: bytes | bytearray | str) -> Any:
    """Parse a JSON document. Raises ValueError for what is none, or is nested too deeply."""
    # Nothing of a document is garbage while it is parsed, and the collections that so many allocations trigger take
    # several times as long as the parsing.
    is_gc_paused = len(data) > LONG_BYTES and gc.isenabled()
    if is_gc_paused:
        gc.disable()
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        # A lone surrogate, escaped, is legal JSON (RFC 8259, section 8.2); JavaScript writes it when it cuts a string.
        encodable = overwrite_matches(data.encode() if isinstance(data, str) else data, _SURROGATE, rb"\uFF")
        if encodable is None:
            raise
        # Apply the same limits (nesting, numbers) to the document with the surrogates replaced.
        from_json(encodable, allow_inf_nan=False)
        return json.loads(data)
    finally:
        if is_gc_paused:
            gc.enable()


def bound_value_count(document: bytes | bytearray, max_values: int) -> int:
    """Return an upper bound of the number of values in a JSON document; any number above `max_values` if it is above.

    A comma or an opening bracket outside of strings starts at most one value. Nothing is parsed, and few objects are
    made: about 3 ns per byte.
    """
    unescaped = _without_escapes(document)
    if (string_count := unescaped.count(b'"') // 2) > 2 * max_values + 1:
        return string_count // 2  # each string is a value or a key
    outside = b"".join(unescaped.split(b'"')[::2])
    return 1 + sum(map(outside.count, (b",", b"[", b"{")))


def is_nested_deeper(document: bytes | bytearray, max_depth: int) -> bool:
    """Return whether more than `max_depth` arrays and objects of a JSON document are inside each other.

    Nothing is parsed: about 40 ns per bracket, and next to nothing where there are no more than `max_depth` of them.
    """
    if document.count(b"[") + document.count(b"{") <= max_depth:
        return False
    outside = b"".join(_without_escapes(document).split(b'"')[::2])
    steps = array("b", outside.translate(_STEPS, _NO_BRACKETS))
    return max(accumulate(steps), default=0) > max_depth


def _without_escapes(document: bytes | bytearray) -> bytes | bytearray:
    """Return a document without escaped backslashes and quotes: each remaining quote begins or ends a string."""
    return document.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in document else document


def overwrite_matches(data: bytes | bytearray, pattern: re.Pattern[bytes], replacement: bytes) -> bytearray | None:
    """Return a copy with `replacement` in place of group 1 of each match, which must be as long; None without a match.

    `re.sub` would take many times the memory of the document.
    """
    copy: bytearray | None = None
    for match in pattern.finditer(data):
        copy = copy or bytearray(data)
        copy[slice(*match.span(1))] = replacement
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
