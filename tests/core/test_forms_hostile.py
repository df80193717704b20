"""Forms made to hurt: they are answered or refused like any other, and nothing else happens."""

import sys
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.core.inbox.forms import (
    MAX_PATH_CHARS,
    MAX_PROBLEM_CHARS,
    MAX_VIOLATIONS,
    Accept,
    build_answer,
    flat_schema,
)
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.errors import InvalidArgument


def accept(schema: Any, content: dict[str, Any] | None) -> dict[str, Any]:
    answer = build_answer(RequestKind.ELICITATION_FORM, {"requestedSchema": schema}, Accept(content))
    return payload.loads(answer.payload)["content"]


def one(field: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": field}}


def nested(depth: int, keyword: str) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        shape = {keyword: [shape]} if keyword in ("anyOf", "oneOf") else {keyword: shape}
    return shape


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "maxLength": -1},
        {"type": "string", "maxLength": float("inf")},
        {"type": "string", "maxLength": "1"},
        {"type": "string", "maxLength": True},
        {"type": "string", "maxLength": 2**70},
        {"type": "string", "minLength": -(2**70)},
        {"type": "string", "minLength": 1e400},
        {"type": "string", "minLength": [9]},
        {"type": "string", "format": ["email"]},
        {"type": "string", "format": {"email": 1}},
        {"type": "string", "format": "regex"},
        {"type": "string", "enum": []},
        {"type": "string", "enum": "xyz"},
        {"type": "string", "enum": [1, None, {}]},
        {"type": "string", "oneOf": {}},
        {"type": "string", "oneOf": [None, "x", {"title": "no const"}, {"const": [1]}]},
        {"type": "string", "pattern": "(a+)+$"},
        {"type": "string", "pattern": "((((("},
        {"type": "string", "$ref": "http://127.0.0.1:1/schema"},
        {"type": "string", "$schema": "http://127.0.0.1:1/meta", "$id": "file:///etc/passwd"},
        {"type": "string", "allOf": [{"$ref": "#"}], "not": {}, "if": True, "then": False},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#"},
        {"$dynamicRef": "#a"},
        {"type": "object", "properties": {"b": {"type": "string"}}},
        {"type": "null"},
        {"type": "nonsense"},
        {"type": ["string", 5]},
        {"type": {}},
        {},
        None,
        False,
        "string",
        ["string"],
        7,
        partial(nested, 100_000, "anyOf"),
        partial(nested, 100_000, "items"),
        partial(nested, 100_000, "not"),
        {"type": "string", "enumNames": nested(1000, "x")},
    ],
)
def test_a_field_with_nonsense_in_it_can_still_be_answered(field: Any) -> None:
    words = "a" * 40 + "b"
    field = field() if callable(field) else field  # those of much are made for their test alone
    assert accept(one(field), {"a": words}) == {"a": words}


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("bound", ["0", None, True, [], {}, float("inf"), float("-inf"), float("nan")])
def test_a_bound_that_is_no_number_bounds_nothing(kind: str, bound: Any) -> None:
    assert accept(one({"type": kind, "minimum": bound, "maximum": bound}), {"a": 5}) == {"a": 5}


@pytest.mark.parametrize("bounds", [{"minItems": "1"}, {"maxItems": -1}, {"uniqueItems": "no"}, {"items": 5}])
def test_a_list_with_nonsense_in_it_can_still_be_answered(bounds: dict[str, Any]) -> None:
    assert accept(one({"type": "array", **bounds}), {"a": ["x"]}) == {"a": ["x"]}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "a string",
        5,
        True,
        [],
        {},
        {"type": "array"},
        {"properties": None},
        {"properties": []},
        {"properties": "x"},
        {"required": ["a"]},
        {"required": "a"},
        {"required": {"a": 1}},
        {"$ref": "http://127.0.0.1:1/"},
        {"properties": {}, "required": [None, 1, [], {}]},
        {"additionalProperties": True, "patternProperties": {"(a+)+$": {"type": "string"}}},
    ],
)
def test_a_form_without_fields_takes_an_empty_answer_and_no_other(schema: Any) -> None:
    assert accept(schema, None) == {}
    with pytest.raises(InvalidArgument, match=r"content\.a: is not a field of this form"):
        accept(schema, {"a": "x"})


def test_a_required_list_with_nonsense_in_it_still_requires_what_it_names() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "required": [None, {}, ["a"], "a"]}
    with pytest.raises(InvalidArgument, match=r"content\.a: is required"):
        accept(schema, {})


def test_no_reference_pattern_or_foreign_keyword_is_left_to_be_followed() -> None:
    hostile = {"$ref": "http://127.0.0.1:1/", "pattern": "(a+)+$", "allOf": [], "$id": "x", "const": 1}
    schema = {
        **hostile,
        "$defs": {"x": hostile},
        "properties": {
            kind: {"type": kind, "items": hostile, **hostile} for kind in ("string", "number", "array", "object")
        },
    }
    assert not {"$ref", "pattern", "allOf", "$id", "$defs", "const"} & keywords_of(flat_schema(schema))


def keywords_of(schema: Any) -> set[str]:
    match schema:
        case dict():
            return set(schema).union(*map(keywords_of, schema.values()))
        case list():
            return set().union(*map(keywords_of, schema))
        case _:
            return set()


def test_a_very_long_list_of_choices_is_searched_and_not_repeated_in_the_refusal() -> None:
    schema = one({"type": "string", "enum": [f"choice {n}" for n in range(100_000)]})
    assert accept(schema, {"a": "choice 99999"}) == {"a": "choice 99999"}
    with pytest.raises(InvalidArgument) as refusal:
        accept(schema, {"a": "none of them"})
    assert len(str(refusal.value)) < 300


def test_thousands_of_mistakes_make_a_short_refusal() -> None:
    schema = {"properties": {f"{n}": {"type": "string"} for n in range(5000)}}
    wrong = {f"{n}": n for n in range(5000)} | {"x" * 10_000 + f"{n}": 1 for n in range(50)}
    with pytest.raises(InvalidArgument) as refusal:
        accept(schema, wrong)
    assert len(refusal.value.violations) == MAX_VIOLATIONS
    assert all(len(path) <= MAX_PATH_CHARS for path, _ in refusal.value.violations)
    assert all(len(problem) <= MAX_PROBLEM_CHARS for _, problem in refusal.value.violations)


@pytest.mark.parametrize("name", ["", ".", "a.b", "__proto__", "$ref", "0", "\x00", "ü", "x" * 10_000])
def test_a_field_may_have_any_name(name: str) -> None:
    schema = {"properties": {name: {"type": "integer"}}, "required": [name]}
    assert accept(schema, {name: 1}) == {name: 1}
    with pytest.raises(InvalidArgument):
        accept(schema, {name: "x"})
    with pytest.raises(InvalidArgument):
        accept(schema, {})


@pytest.mark.parametrize("depth", [300, sys.getrecursionlimit() * 10])
@pytest.mark.parametrize("field", [{"type": "string"}, {"type": "array"}, {}])
def test_content_nested_as_deep_as_it_can_be_is_refused(depth: int, field: dict[str, Any]) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    with pytest.raises(InvalidArgument):
        accept(one(field), {"a": value})


@pytest.mark.parametrize("text", ["\ud800", "\udfff x"])
def test_half_a_character_is_refused_or_written_as_json(text: str) -> None:
    for schema in (one({"type": "string", "enum": [text]}), {"properties": {text: {"type": "string"}}}):
        with pytest.raises(InvalidArgument):
            accept(schema, {"a": "x"})


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=12,
)
KEYWORDS = (
    *("type", "minLength", "maxLength", "format", "pattern", "minimum", "maximum", "enum", "enumNames", "oneOf"),
    *("anyOf", "items", "minItems", "maxItems", "uniqueItems", "default", "const", "$ref", "title"),
)
types = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null"])
broken_fields = st.one_of(
    anything,
    st.builds(
        lambda kind, rest: {**rest, "type": kind},
        types,
        st.dictionaries(st.sampled_from(KEYWORDS), anything, max_size=6),
    ),
)
broken_forms = st.one_of(
    anything,
    st.fixed_dictionaries(
        {"properties": st.one_of(anything, st.dictionaries(st.sampled_from("abc"), broken_fields, max_size=3))},
        optional={"required": anything, "type": anything, "$ref": st.text()},
    ),
)


@given(broken_forms, st.one_of(st.none(), st.dictionaries(st.sampled_from("abcd"), anything, max_size=4)))
def test_whatever_a_form_and_an_answer_are_made_of_the_answer_is_taken_or_refused(
    schema: Any, content: dict[str, Any] | None
) -> None:
    try:
        taken = accept(schema, content)
    except InvalidArgument:
        return
    for value in taken.values():
        assert isinstance(value, str | int | float) or all(isinstance(item, str) for item in value)
