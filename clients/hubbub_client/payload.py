"""JSON documents as bytes, the form in which MCP payloads cross the API. Integers keep their value at any size."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast


def loads(data: bytes) -> Any:
    """The value of a JSON document; None for an absent one (no bytes). Raises ValueError when it is not JSON."""
    return json.loads(data) if data else None


def dumps(value: object) -> bytes:
    """The JSON document of a value. Raises TypeError or ValueError for a value that JSON cannot express."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def as_object(value: object) -> Mapping[str, Any]:
    """A JSON object; in place of anything else an empty one, for what servers send need not be what it should."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """A JSON array; in place of anything else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_objects(value: object) -> list[Mapping[str, Any]]:
    """The members of a JSON array, each `as_object`."""
    return [as_object(each) for each in as_list(value)]


def plain(value: object) -> Any:
    """What JSON has for a value of a record: nested records, dates in ISO 8601, and tuples as lists."""
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case tuple():
            return [plain(item) for item in cast("tuple[object, ...]", value)]
        case _ if (to_json := getattr(value, "to_json", None)) is not None:
            return to_json()
        case _:
            return value
