"""Recursive schemas of tools made flat, for hosts that fail on them and then show no tool at all.

A reference to a definition around it (`{"$ref": "#/$defs/node"}` within `node`, or `{"$ref": "#"}`) becomes the schema
that it names, for so many levels; below these stands a schema that takes anything. So what fits the recursive schema
fits the flat one. All references to definitions are written out then. JSON Schema 2020-12, 8.2.3.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

MAX_LEVELS: Final = 3
"""How often a definition is written out within itself."""

MAX_NODES: Final = 5000
"""Objects and lists of a flat schema; one that would have more takes anything in place of each recursion."""

MAX_STEPS: Final = 20_000
"""Values of a schema that are looked at; in a larger one each recursion is left as it is."""

SCHEMAS: Final = ("inputSchema", "outputSchema")

_ANYTHING: Final[Mapping[str, Any]] = {}
"""The schema that everything fits."""

_TARGETS: Final = ("#/$defs/", "#/definitions/")
"""What a reference to a definition begins with."""


def has_recursive_schema(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool has a schema that refers to itself."""
    return any(is_recursive(tool.get(member)) for member in SCHEMAS)


def is_recursive(schema: object) -> bool:
    """Return whether a schema refers to itself, by way of others or not. False if it is too large to be looked at."""
    if not isinstance(schema, Mapping):
        return False
    root = cast("Mapping[str, Any]", schema)
    steps = iter(range(MAX_STEPS))  # for all definitions together: each may be within others
    edges = {"#": set(_iterate_references(root, steps, within_definitions=False))}
    for name in set(_iterate_references(root, iter(range(MAX_STEPS)))) - {"#"}:
        edges[name] = set(_iterate_references(_find_definition(root, name), steps))
    try:
        TopologicalSorter(edges).prepare()
    except CycleError:
        return True
    return False


def flatten_schemas(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool whose recursive schemas are flat; the others are as they were."""
    flat = {name: _flatten_schema(tool[name]) for name in SCHEMAS if is_recursive(tool.get(name))}
    return {**tool, **flat}


def _iterate_references(schema: object, steps: Iterator[int], *, within_definitions: bool = True) -> Iterator[str]:
    """Yield the references in a schema to definitions and to the whole; end early once `steps` are used up.

    Each value takes one of `steps`. Without `within_definitions` the definitions of the schema itself are skipped.
    """
    unvisited = [schema]
    while unvisited and next(steps, None) is not None:
        node = unvisited.pop()
        if isinstance(node, Mapping):
            members = cast("Mapping[str, Any]", node)
            if isinstance(ref := members.get("$ref"), str) and (ref == "#" or ref.startswith(_TARGETS)):
                yield ref
            skipped_keys = () if within_definitions or node is not schema else ("$defs", "definitions")
            unvisited += (value for key, value in members.items() if key not in skipped_keys)
        elif isinstance(node, list):
            unvisited += cast("list[object]", node)


def _find_definition(root: Mapping[str, Any], ref: str) -> object:
    """Return the schema that a reference names; None if nothing is there. `ref` is `#`, or begins with one of _TARGETS.

    Names are as in JSON Pointer (RFC 6901).
    """
    if ref == "#":  # without its definitions: where they are referred to, they are looked up in the root
        return {key: definition for key, definition in root.items() if key not in ("$defs", "definitions")}
    _, member, name, *deeper = ref.split("/")
    definition: object = root.get(member)
    for name_part in (name, *deeper):
        key = name_part.replace("~1", "/").replace("~0", "~")
        definition = cast("Mapping[str, object]", definition).get(key) if isinstance(definition, Mapping) else None
    return definition


class _SchemaFlattener:
    """Writes out the references of one schema, and counts the nodes that it makes."""

    def __init__(self, root: Mapping[str, Any], levels: int) -> None:
        """Begin with a schema, `root`; a definition is written out within itself `levels` times at most."""
        self._root = root
        self._levels = levels
        self.nodes = 0

    def flatten(self, node: object, depths: Mapping[str, int]) -> Any:
        """Return a node with the definition itself in place of each reference. Raises OverflowError beyond MAX_NODES.

        `depths` says how often each reference is written out around the node already. In place of a reference that is
        written out often enough (`levels`) stands a schema that takes anything.
        """
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise OverflowError
        if isinstance(node, list):
            return [self.flatten(each, depths) for each in cast("list[object]", node)]
        if not isinstance(node, Mapping):
            return node
        schema = cast("Mapping[str, Any]", node)
        ref = schema.get("$ref")
        target: object = None
        if isinstance(ref, str) and (ref == "#" or ref.startswith(_TARGETS)):
            depth = depths.get(ref, 0)
            target = _find_definition(self._root, ref) if depth < self._levels else _ANYTHING
            depths = {**depths, ref: depth + 1}
        # A reference to nothing stays. Of members that the schema and its target both have, the schema's own count.
        kept_members = {key: value for key, value in schema.items() if target is None or key != "$ref"}
        dropped_keys = ("$defs", "definitions") if node is self._root else ()
        flat = {key: self.flatten(value, depths) for key, value in kept_members.items() if key not in dropped_keys}
        if target is None:
            return flat
        inner = self.flatten(target, depths)
        return {**cast("dict[str, Any]", inner), **flat} if isinstance(inner, dict) else inner


def _flatten_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recursive schema written out, with MAX_LEVELS levels, or with the most that are not too large.

    If even the schema without any level is too large, return a schema that takes any object.
    """
    for levels in range(MAX_LEVELS, -1, -1):
        try:
            return _SchemaFlattener(schema, levels).flatten(schema, {"#": 1})  # the schema is itself one level of `#`
        except (OverflowError, RecursionError):
            continue
    return {"type": "object"}
