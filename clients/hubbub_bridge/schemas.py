"""Schemas of tools that refer to themselves, on which some hosts fail."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

SCHEMAS: Final = ("inputSchema", "outputSchema")

MAX_STEPS: Final = 20_000
"""Objects and lists of a schema that are looked at."""


def is_recursive(schema: object) -> bool:
    """Return whether a schema refers to itself, by way of others or not (`$ref`: JSON Schema 2020-12, 8.2.3)."""
    known = {ref: set(_references(_at(schema, ref))) for ref in set(_references(schema))}
    if "#" in known:
        return True
    for begin in known:
        seen: set[str] = set()
        ahead = [*known[begin]]
        while ahead:
            ref = ahead.pop()
            if ref == begin:
                return True
            if ref not in seen:
                seen.add(ref)
                ahead += known.get(ref, ())
    return False


def _references(schema: object) -> Iterator[str]:
    ahead, steps = [schema], 0
    while ahead and steps < MAX_STEPS:
        node = ahead.pop()
        steps += 1
        if isinstance(node, Mapping):
            found = cast("Mapping[str, Any]", node)
            ref: object = found.get("$ref")
            if isinstance(ref, str) and ref.startswith("#"):
                yield ref
            ahead += found.values()
        elif isinstance(node, list):
            ahead += cast("list[object]", node)


def _at(schema: object, ref: str) -> object:
    """Return what a reference names within a schema (RFC 6901); None if there is no such thing."""
    found = schema
    for part in ref.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = cast("Mapping[str, object]", found).get(key) if isinstance(found, Mapping) else None
    return found
