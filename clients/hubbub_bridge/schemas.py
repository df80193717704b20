"""Schemas of tools that refer to themselves, on which some hosts fail."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

SCHEMAS: Final = ("inputSchema", "outputSchema")

MAX_STEPS: Final = 20_000
"""Values of a schema that are looked at, and of all that it refers to."""


def is_recursive(schema: object) -> bool:
    """Return whether a schema refers to itself, directly or through other schemas (`$ref`: JSON Schema 2020-12, 8.2.3).

    Of a very large schema only the first MAX_STEPS values are read.
    """
    # One budget for all referred schemas. Each may contain others, so together they may be far larger than the schema.
    budget = iter(range(MAX_STEPS))
    references_by_ref = {
        ref: set(_find_references(_resolve_reference(schema, ref), budget))
        for ref in set(_find_references(schema, iter(range(MAX_STEPS))))
    }
    try:
        TopologicalSorter(references_by_ref).prepare()
    except CycleError:
        return True
    return "#" in references_by_ref  # "#" is the whole schema, and this reference stands in it


def _find_references(schema: object, budget: Iterator[int]) -> Iterator[str]:
    """Yield the references in a schema to parts of itself, until the common budget of steps is used up."""
    unvisited = [schema]
    while unvisited and next(budget, None) is not None:
        node = unvisited.pop()
        if isinstance(node, Mapping):
            members = cast("Mapping[str, Any]", node)
            ref: object = members.get("$ref")
            if isinstance(ref, str) and ref.startswith("#"):
                yield ref
            unvisited += members.values()
        elif isinstance(node, list):
            unvisited += cast("list[object]", node)


def _resolve_reference(schema: object, ref: str) -> object:
    """Return the part of a schema that a reference names (RFC 6901); None if there is no such part."""
    node = schema
    for part in ref.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = cast("Mapping[str, object]", node).get(key) if isinstance(node, Mapping) else None
    return node
