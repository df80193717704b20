"""The form of an elicitation: each keyword of the specification, with what it lets through and what it stops."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.core.inbox.forms import Accept, build_answer, fill_in_defaults
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.errors import InvalidArgument

TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]


def form(required: tuple[str, ...] = (), /, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required)}


def violations(schema: Any, content: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidArgument) as refusal:
        fill_in_defaults(schema, content)
    return dict(refusal.value.violations)


ACCEPTED = [
    ({"type": "string"}, ["", "x", "ünïcode"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc", "äöü", "😀😀"]),
    ({"type": "string", "format": "email"}, ["ann@example.org"]),
    ({"type": "string", "format": "uri"}, ["https://example.org/a?b=c", "urn:x:y"]),
    ({"type": "string", "format": "date"}, ["2024-02-29"]),
    ({"type": "string", "format": "date-time"}, ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.5+02:00"]),
    ({"type": "string", "format": "hostname"}, ["not a host name"]),
    ({"type": "string", "pattern": "^a$"}, ["a", "tolerated, as it is no keyword of the specification"]),
    ({"type": "number"}, [1, 1.5, -3, 1e300, 2**70]),
    ({"type": "number", "minimum": 0.5, "maximum": 2}, [0.5, 1, 2]),
    ({"type": "integer"}, [0, -1, 2**70, 1.0]),
    ({"type": "integer", "minimum": 2**70, "maximum": 2**70 + 1}, [2**70, 2**70 + 1]),
    ({"type": "boolean"}, [True, False]),
    ({"type": "string", "enum": ["r", "g"]}, ["r", "g"]),
    ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, ["r"]),
    ({"type": "string", "oneOf": TITLED}, ["r", "g"]),
    ({"type": "array", "items": {"type": "string", "enum": ["r", "g"]}}, [[], ["r"], ["g", "r"], ["r", "r"]]),
    ({"type": "array", "items": {"anyOf": TITLED}}, [[], ["r"], ["r", "g"]]),
    ({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}}, [["a"], ["a", "b"]]),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["x"]),
    ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None}, [1]),
    ({"type": ["string", "null"]}, ["x"]),
    ({"$ref": "#/$defs/Color"}, ["r", 1, True, ["r"]]),
]
REFUSED = [
    ({"type": "string"}, [1, 1.5, True, None, ["a"], {"a": "b"}]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["a", "abcd", "😀"]),
    ({"type": "string", "maxLength": 0}, ["a"]),
    ({"type": "array", "maxItems": 0}, [["a"]]),
    ({"type": "string", "format": "email"}, ["ann", "@", "ann@"]),
    ({"type": "string", "format": "uri"}, ["example", "/path", "http://[bad"]),
    ({"type": "string", "format": "date"}, ["2023-02-29", "29.02.2024", "2024-02-29T12:00:00Z"]),
    ({"type": "string", "format": "date-time"}, ["2024-02-29", "2024-02-29T25:00:00Z", "noon"]),
    ({"type": "number"}, ["1", True, None, [1], float("nan"), float("inf")]),
    ({"type": "number", "minimum": 0.5, "maximum": 2}, [0.49, 2.01, -1]),
    ({"type": "integer"}, [1.5, "1", True, None]),
    ({"type": "integer", "minimum": 2**70, "maximum": 2**70 + 1}, [2**70 - 1, 2**70 + 2]),
    ({"type": "boolean"}, ["true", 0, 1, None]),
    ({"type": "string", "enum": ["r", "g"]}, ["Red", "", 1]),
    ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, ["Red"]),
    ({"type": "string", "oneOf": TITLED}, ["Red", "b"]),
    ({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}}, [[], ["a", "b", "c"], "a", None]),
    ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, ["x", 0, None]),
    ({"$ref": "#/$defs/Color"}, [None, {"a": 1}]),
]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ACCEPTED for value in values])
def test_a_value_that_fits_its_field_is_taken_as_it_is(field: dict[str, Any], value: Any) -> None:
    taken = fill_in_defaults(form(("a",), a=field), {"a": value})
    assert taken == {"a": value}
    assert type(taken["a"]) is type(value)


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED for value in values])
def test_a_value_that_does_not_fit_is_refused_by_the_name_of_its_field(field: dict[str, Any], value: Any) -> None:
    assert list(violations(form(a=field, b={"type": "string"}), {"a": value, "b": "fine"})) == ["content.a"]


@pytest.mark.parametrize("items", [{"type": "string", "enum": ["r", "g"]}, {"anyOf": TITLED}])
def test_a_wrong_choice_in_a_list_is_named_with_its_place(items: dict[str, Any]) -> None:
    assert list(violations(form(a={"type": "array", "items": items}), {"a": ["r", "b", "x"]})) == [
        "content.a.1",
        "content.a.2",
    ]


def test_every_wrong_field_is_named_at_once() -> None:
    schema = form(("c",), a={"type": "string"}, b={"type": "integer"}, c={"type": "boolean"})
    assert violations(schema, {"a": 1, "b": "x", "d": 0}) == {
        "content.a": 'is not of type "string"',
        "content.b": 'is not of type "integer"',
        "content.c": "is required",
        "content.d": "is not a field of this form",
    }


def test_a_refusal_does_not_repeat_what_a_person_wrote() -> None:
    found = violations(form(a={"type": "string", "maxLength": 3, "enum": ["x"]}), {"a": "my secret"})
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "default": "r"},
        {"type": "string", "default": ""},
        {"type": "string", "enum": ["r"], "default": "r"},
        {"type": "string", "oneOf": TITLED, "default": "g"},
        {"type": "number", "default": 1.5},
        {"type": "integer", "default": 0},
        {"type": "integer", "default": 2**70},
        {"type": "boolean", "default": False},
        {"type": "array", "items": {"anyOf": TITLED}, "default": ["r", "g"]},
        {"type": "array", "items": {"type": "string"}, "default": []},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 7},
    ],
)
def test_an_omitted_field_takes_its_default_even_when_required(field: dict[str, Any]) -> None:
    assert fill_in_defaults(form(("a",), a=field), {}) == {"a": field["default"]}


def test_a_given_value_wins_over_the_default() -> None:
    assert fill_in_defaults(form(a={"type": "boolean", "default": True}), {"a": False}) == {"a": False}


def test_a_default_of_null_is_no_default() -> None:
    optional = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert fill_in_defaults(form(a=optional), {}) == {}
    assert violations(form(("a",), a=optional), {}) == {"content.a": "is required"}


@pytest.mark.parametrize("default", [5, ["x"], {"x": 1}, "too long"])
def test_a_default_that_breaks_its_own_form_is_named_and_can_be_replaced(default: Any) -> None:
    schema = form(a={"type": "string", "maxLength": 3, "default": default})
    assert violations(schema, {})["content.a"].startswith("the form's own default is ")
    assert fill_in_defaults(schema, {"a": "abc"}) == {"a": "abc"}


def test_what_is_not_required_may_be_left_out() -> None:
    assert fill_in_defaults(form(a={"type": "string", "minLength": 5}), {}) == {}


def test_a_required_name_that_is_no_field_cannot_block_the_form() -> None:
    assert fill_in_defaults(form(("ghost",), a={"type": "string"}), {"a": "x"}) == {"a": "x"}


def test_the_schema_and_the_content_are_left_as_they_were() -> None:
    schema, content = form(a={"type": "string", "default": "x"}, b={"type": "string"}), {"b": "y"}
    assert fill_in_defaults(schema, content) == {"a": "x", "b": "y"}
    assert schema == form(a={"type": "string", "default": "x"}, b={"type": "string"})
    assert content == {"b": "y"}


words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@st.composite
def fields_that_fit(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A field of any allowed shape, and a value that fits it."""
    choices = st.lists(words, min_size=1, max_size=4, unique=True)
    match draw(st.sampled_from(["string", "enum", "titled", "number", "integer", "boolean", "multi", "titled multi"])):
        case "string":
            value = draw(words)
            return {"type": "string", "minLength": max(len(value) - 1, 0), "maxLength": len(value) + 1}, value
        case "enum":
            values = draw(choices)
            return {"type": "string", "enum": values, "enumNames": values}, draw(st.sampled_from(values))
        case "titled":
            values = draw(choices)
            options = [{"const": value, "title": "T"} for value in values]
            return {"type": "string", "oneOf": options}, draw(st.sampled_from(values))
        case "number":
            value = draw(st.floats(-1e300, 1e300))
            return {"type": "number", "minimum": value, "maximum": value}, value
        case "integer":
            value = draw(st.integers())
            return {"type": "integer", "minimum": value - 1, "maximum": value}, value
        case "boolean":
            return {"type": "boolean"}, draw(st.booleans())
        case kind:
            values = draw(choices)
            chosen = draw(st.lists(st.sampled_from(values), max_size=4))
            titled = {"anyOf": [{"const": value, "title": "T"} for value in values]}
            items = titled if kind == "titled multi" else {"type": "string", "enum": values}
            return {"type": "array", "items": items, "maxItems": len(chosen)}, chosen


@given(
    st.dictionaries(words, st.tuples(fields_that_fit(), st.sampled_from(["given", "default", "omitted"])), max_size=6)
)
def test_content_that_fits_any_flat_form_reaches_the_server_unchanged(
    made: dict[str, tuple[tuple[dict[str, Any], Any], str]],
) -> None:
    fields = {
        name: {**field, "default": value} if how == "default" else field for name, ((field, value), how) in made.items()
    }
    schema = form(tuple(name for name, (_, how) in made.items() if how != "omitted"), **fields)
    content = {name: value for name, ((_, value), how) in made.items() if how == "given"}
    answer = build_answer(RequestKind.ELICITATION_FORM, {"requestedSchema": schema}, Accept(content))
    expected = {name: value for name, ((_, value), how) in made.items() if how != "omitted"}
    assert payload.loads(answer.payload) == {"action": "accept", "content": expected}
