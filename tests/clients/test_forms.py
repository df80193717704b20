"""A form's schema becomes questions, and what is typed becomes the content."""

import os
import pty
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2, catalog_pb2, common_pb2, inbox_pb2
from hubbub_frontend.forms import Field, fields, parse_value

from .conftest import staying

SCHEMA: dict[str, Any] = {
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As on the card"},
        "age": {"type": "integer", "default": 18},
        "weight": {"type": "number"},
        "member": {"type": "boolean"},
        "old": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "plain": {"type": "string", "enum": ["r", "g"]},
        "many": {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "G"}]}},
        "several": {"type": "array", "items": {"type": "string", "enum": ["r", "g"]}},
    },
    "required": ["name"],
}
FORM = {field.name: field for field in fields(SCHEMA)}


def test_the_questions_come_in_the_order_of_the_form() -> None:
    assert list(FORM) == list(SCHEMA["properties"])
    assert FORM["name"] == Field(
        name="name", title="Your name", kind="string", description="As on the card", required=True
    )
    assert (FORM["age"].title, FORM["age"].default, FORM["age"].required) == ("age", 18, False)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("name", "Ann B.", "Ann B."),
        ("age", "-3", -3),
        ("weight", "2.5", 2.5),
        ("member", "Y", True),
        ("member", "no", False),
        ("old", "2", "g"),
        ("old", "Red", "r"),
        ("colour", "1", "r"),
        ("colour", "g", "g"),
        ("plain", "r", "r"),
        ("many", "1, G", ["r", "g"]),
        ("several", "2", ["g"]),
    ],
)
def test_what_is_typed_becomes_a_value_of_its_type(name: str, text: str, value: object) -> None:
    parsed = parse_value(FORM[name], text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"), [("age", "2.5"), ("weight", "much"), ("member", "perhaps"), ("colour", "3"), ("many", "1,0")]
)
def test_what_cannot_be_meant_is_refused_with_a_hint(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="type "):
        parse_value(FORM[name], text)


BOUNDED: dict[str, Any] = {
    "properties": {
        "portions": {"type": "integer", "minimum": 1, "maximum": 8},
        "code": {"type": "string", "minLength": 2, "maxLength": 4},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "page": {"type": "string", "format": "uri"},
        "two": {"type": "array", "minItems": 2, "items": {"enum": ["a", "b", "c"]}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "colour": {"$ref": "#/$defs/Colour"},
        "place": {"type": "object"},
        "path": {"type": "array", "items": {"type": "number"}},
    },
    "$defs": {"Colour": {"type": "string", "enum": ["red", "green"]}},
}
BOUNDS = {field.name: field for field in fields(BOUNDED)}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("portions", "9", "must be a whole number, 1 to 8"),
        ("code", "x", "give 2 to 4 characters"),
        ("mail", "nobody", "must look like name@example.com"),
        ("day", "24.12.2026", "must look like 2026-12-31"),
        ("at", "2026-12-24T18:00:00", "must look like 2026-12-31T18:30:00Z"),
        ("page", "example.com", "must look like https://example.com"),
        ("two", "a", "give at least 2 of them"),
        ("path", "[1, 2", "type JSON"),
    ],
)
def test_what_the_schema_does_not_allow_is_told_before_it_is_sent(name: str, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_value(BOUNDS[name], text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("portions", "8", 8),
        ("at", "2026-12-24T18:00:00+01:00", "2026-12-24T18:00:00+01:00"),
        ("two", "a, c", ["a", "c"]),
        ("maybe", "3", 3),
        ("colour", "green", "green"),
        ("place", '{"x": 1}', {"x": 1}),
        ("path", "[1, 2.5]", [1, 2.5]),
    ],
)
def test_shapes_that_only_tools_have_can_be_typed_too(name: str, text: str, value: object) -> None:
    assert parse_value(BOUNDS[name], text) == value


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"properties": 1, "required": 2},
        {
            "properties": {
                "a": None,
                "b": {"type": ["string"], "enum": 3, "minimum": "x"},
                "c": {"$ref": "#/$defs/none"},
            }
        },
    ],
)
def test_a_schema_that_is_none_is_no_error(schema: object) -> None:
    assert all(field.kind == "string" for field in fields(schema))


def test_a_form_without_questions_is_no_error() -> None:
    assert fields({}) == []


@pytest.mark.parametrize("kind", ["integer", "number", "string", "array"])
@pytest.mark.parametrize("huge", [10**400, -(10**400), 1e400, float("nan")], ids=lambda each: f"{each}"[:9])
def test_a_bound_that_no_float_can_express_is_left_to_the_hub(kind: str, huge: float) -> None:
    names = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
    spec = {"type": kind, "items": {"enum": ["3"]}, **dict.fromkeys(names, huge)}
    (field,) = fields({"properties": {"a": spec}})
    assert (field.minimum, field.maximum) == (None, None)
    assert "to" not in field.hint
    assert parse_value(field, "3")


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_a_number_that_no_float_can_express_is_refused_as_it_is_typed(kind: str) -> None:
    (field,) = fields({"properties": {"a": {"type": kind}}})
    with pytest.raises(ValueError, match="type a "):
        parse_value(field, f"1{400 * '0'}")


class Compared(str):
    """A name that counts how often one is compared with another."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_required_fields_of_a_long_form_are_found_without_a_search_for_each() -> None:
    names = [Compared(f"field {number}") for number in range(1000)]
    found = fields({"properties": {name: {} for name in names}, "required": [*names, 7, {}]})
    assert all(field.required for field in found)
    assert Compared.times < 10 * len(names)


class Terminal:
    """A person at a terminal: waits for a text on the screen, then types."""

    def __init__(self, screen: int) -> None:
        self._screen = screen
        self.shown = ""

    async def types(self, text: str, after: str) -> None:
        before = len(self.shown)
        while after not in self.shown[before:]:
            await anyio.wait_readable(self._screen)
            self.shown += os.read(self._screen, 4096).decode()
        os.write(self._screen, text.encode() + b"\n")


def _open_form(id_: str) -> Any:
    form = b'{"message":"Who?","requestedSchema":{"properties":{"age":{"type":"integer","default":7}}}}'
    return inbox_pb2.PendingRequest(
        id=id_, server="s", kind=1, state=inbox_pb2.PENDING_REQUEST_STATE_OPEN, request=form
    )


@pytest.mark.usefixtures("processes")
async def test_a_person_at_the_terminal_fills_in_the_form_that_a_call_asks(hub: Any, refusal: Any) -> None:
    step, answered = call_pb2.WatchCallsResponse, anyio.Event()

    async def script(request: Any) -> AsyncIterator[Any]:
        yield step(synced=common_pb2.WatchSynced())
        yield step(upsert=call_pb2.Call(id=request.filter.ids[0], pending_request_ids=["r1"]))
        await anyio.sleep_forever()

    async def result(_: Any) -> Any:
        await answered.wait()
        return call_pb2.CallMethodResponse(call=call_pb2.Call(result=b'{"content":[]}'))

    def answer(request: Any) -> Any:
        if request.accept.content == b'{"age":99}':
            raise refusal("INVALID_ARGUMENT", "INVALID_ARGUMENT", "age: too old", violations=(("age", "too old"),))
        answered.set()
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=inbox_pb2.PendingRequest(id=request.id))

    hub.streams["WatchCalls"] = script
    hub.streams["WatchPendingRequests"] = staying(inbox_pb2.WatchPendingRequestsResponse(upsert=_open_form("r1")))
    hub.replies["CallMethod"] = result
    hub.replies["GetPendingRequest"] = lambda request: inbox_pb2.GetPendingRequestResponse(
        pending_request=_open_form(request.id)
    )
    hub.replies["AnswerPendingRequest"] = answer
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse()

    screen, terminal = pty.openpty()
    try:
        person = Terminal(screen)
        command = [str(Path(sys.executable).with_name("hubbub")), "--data-dir", str(hub.data_dir), "call", "s", "t"]
        with anyio.fail_after(60):
            async with await anyio.open_process(command, stdin=terminal, stdout=None, stderr=terminal) as process:
                await person.types("old", after="age (integer, optional) [7]: ")
                await person.types("99", after="[7]: ")
                await person.types("", after="[s] ")
                await person.types("", after="[99]: ")
                await person.types("s", after="[s] ")
                await person.types("8", after="[99]: ")
                await person.types("", after="[s] ")
                assert await process.wait() == 0
    finally:
        os.close(screen)
        os.close(terminal)
    assert "Who?" in person.shown
    assert "type a whole number" in person.shown
    assert [request.accept.content for request in hub.requests("AnswerPendingRequest")] == [
        b'{"age":99}',
        b'{"age":99}',
        b'{"age":8}',
    ]
