"""JSON documents as bytes, the form of MCP payloads in the API. Integers of any size keep their value."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast


def loads(data: bytes) -> Any:
    """Return the value of a JSON document, None for no bytes. Raises ValueError if it is not JSON."""
    return json.loads(data) if data else None


def dumps(value: object) -> bytes:
    """Return the JSON document of a value. Raises TypeError or ValueError if JSON cannot express it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def as_object(value: object) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for any other value, since servers may send the wrong type."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON array, or an empty one for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def labels_of(kind: str, entry: object) -> Mapping[str, Any]:
    """Return the object with the name, title and description of an entry: a skill's frontmatter, or the entry."""
    return as_object(as_object(entry).get("frontmatter")) if kind == "skill" else as_object(entry)


def as_objects(value: object) -> list[Mapping[str, Any]]:
    """Return the members of a JSON array, each `as_object`."""
    return [as_object(each) for each in as_list(value)]


def to_plain(value: object) -> Any:
    """Return the value of a record's field as JSON: records as objects, times in RFC 3339, tuples as lists."""
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case tuple():
            return [to_plain(item) for item in cast("tuple[object, ...]", value)]
        case _ if (to_json := getattr(value, "to_json", None)) is not None:
            return to_json()
        case _:
            return value
