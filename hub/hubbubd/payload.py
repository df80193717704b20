"""JSON documents as bytes: the one way the hub reads and writes them.

MCP payloads travel through the hub as UTF-8 JSON. They are parsed once, where they enter, and written once,
where they leave. Integers keep their value at any size; NaN and Infinity, which are not JSON, are refused when read,
and a number past the range of a double leaves as null.
"""

import gc
import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

import orjson
from pydantic_core import from_json

from hubbubd.errors import InvalidArgument

Json = dict[str, Any]

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

LONG = 64 * 1024
"""While a document of more characters is read, nobody looks for garbage."""


def loads(data: bytes | bytearray | str) -> Any:
    """The value of a JSON document. Raises ValueError when it is not one (or nests too deeply)."""
    if len(data) <= LONG or not gc.isenabled():
        return _loads(data)
    # Nothing of it can be garbage yet, and to look through all of it again and again takes several times as long as
    # the reading.
    gc.disable()
    try:
        return _loads(data)
    finally:
        gc.enable()


def _loads(data: bytes | bytearray | str) -> Any:
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        # An escaped half of a surrogate pair is legal JSON, and JavaScript writes it when it cuts a string.
        whole, halves = _SURROGATE.subn(rb"\\uFF", data.encode() if isinstance(data, str) else data)
        if not halves:
            raise
    # Held to the same limits, so that whatever was read can be written, taken apart and read again.
    from_json(whole, allow_inf_nan=False)
    return json.loads(data)


def _without_infinity(value: Any) -> Any:
    """With null for what is past the range of a double, as orjson has it."""
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
    """The JSON document of a value. Raises TypeError for a value that JSON cannot express."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer past 64 bits, or a string with a lone surrogate
        return json.dumps(_without_infinity(value), separators=(",", ":"), allow_nan=False).encode()


def loads_object(data: bytes, field: str) -> Json:
    """A caller's JSON object; empty bytes mean an empty one.

    Raises InvalidArgument with a violation for `field` when it is anything else.
    """
    if not data:
        return {}
    try:
        value = loads(data)
    except ValueError as exc:
        raise InvalidArgument.field(field, f"is not valid JSON: {exc}") from None
    if not isinstance(value, Mapping):
        raise InvalidArgument.field(field, "must be a JSON object")
    return cast("Json", value)


def loads_message(data: bytes, field: str) -> Json:
    """The params or the result of an MCP message; as `loads_object`, and `_meta` in it is an object, too."""
    value = loads_object(data, field)
    if not isinstance(value.get("_meta", {}), Mapping):
        raise InvalidArgument.field(f"{field}._meta", "must be a JSON object")
    return value
