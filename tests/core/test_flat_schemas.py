"""Recursive schemas, made flat."""

from typing import Any

import pytest

from hubbubd.core.hosts.flat_schemas import MAX_LEVELS, MAX_NODES, MAX_STEPS, flatten_schemas, has_recursive_schema

NODE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
TREE = {"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": NODE}}
SELF = {"type": "object", "properties": {"next": {"$ref": "#"}}}
PLAIN = {"type": "object", "properties": {"definitions": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}
IN_A_CIRCLE = {
    "type": "object",
    "properties": {"a": {"$ref": "#/definitions/a"}},
    "definitions": {
        "a": {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/b"}]},
        "b": {"type": "array", "items": {"$ref": "#/definitions/a"}},
    },
}


def tool(schema: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": schema}


@pytest.mark.parametrize("schema", [TREE, SELF, IN_A_CIRCLE])
def test_a_schema_that_refers_to_itself_becomes_one_without_references(schema: dict[str, Any]) -> None:
    assert has_recursive_schema(tool(schema))
    flat = flatten_schemas(tool(schema))
    assert "$ref" not in str(flat)
    assert "$defs" not in flat["inputSchema"]
    assert flat["inputSchema"]["type"] == "object"
    assert not has_recursive_schema(flat)


def test_as_many_levels_are_written_out_and_below_them_is_anything() -> None:
    flat = flatten_schemas(tool(TREE))["inputSchema"]["properties"]["root"]
    for _ in range(MAX_LEVELS):
        flat = flat["properties"]["children"]["items"]
    assert flat == {}


@pytest.mark.parametrize("schema", [PLAIN, {}, None, [], {"$ref": 1}, {"$ref": "#/$defs/none"}, {"$ref": "http://x"}])
def test_any_other_stays_as_it_is(schema: Any) -> None:
    assert not has_recursive_schema(tool(schema))
    assert flatten_schemas(tool(schema)) == tool(schema)


def test_a_schema_that_would_grow_without_end_is_kept_small() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(60)}}
    assert len(str(flatten_schemas(tool(wide)))) < 50 * MAX_NODES
    every = {"anyOf": [{"$ref": f"#/$defs/d{n}"} for n in range(20)]}
    many = {"$defs": {f"d{n}": every for n in range(20)}, **every}
    assert "$ref" not in str(flatten_schemas(tool(many)))


def test_what_is_looked_at_of_a_schema_has_a_bound_though_all_of_it_refers_to_all() -> None:
    looks = 0

    class Counted(dict[str, Any]):
        def items(self) -> Any:
            nonlocal looks
            looks += 1
            return super().items()

    nested = Counted()
    for _ in range(600):
        nested = Counted(a=nested)
    each = [{"$ref": f"#/$defs/d{level * '/a'}"} for level in range(600)]
    assert not has_recursive_schema(tool({"$defs": {"d": nested}, "anyOf": each}))
    assert looks <= 3 * MAX_STEPS
