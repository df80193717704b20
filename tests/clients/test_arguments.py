"""Arguments as people type them, and commands that work when they are pasted."""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import is_valid

from hubbub.v1 import call_pb2, catalog_pb2, common_pb2, inbox_pb2
from hubbub_client.data.records import PendingRequest
from hubbub_frontend import samples
from hubbub_frontend.arguments import MistypedArgument, are_key_values, missing_fields, parse_arguments
from hubbub_frontend.forms import MAX_NESTED, example_value, fields, nested_fields

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "share": {"type": "number"},
        "loud": {"type": "boolean"},
        "size": {"type": "string", "enum": ["2", "1"]},
        "dish": {"oneOf": [{"const": "soup", "title": "Tomato soup"}, {"const": "pie", "title": "A pie"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "sides": {"type": "array", "items": {"type": "string", "enum": ["salad", "bread"]}},
        "extra": {"type": "object", "properties": {"depth": {"type": "integer"}, "in": {"type": "object"}}},
        "perhaps": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "dotted.name": {"type": "integer"},
        "either": {"type": ["integer", "null"]},
    },
    "required": ["name", "count"],
}
FILES = {"there": "what is in it\n", "number": "7"}


def read(path: str) -> str:
    if path not in FILES:
        raise ValueError(f"{path} cannot be read: No such file or directory")
    return FILES[path]


PLACES: dict[str, Any] = {
    "type": "object",
    "required": ["place"],
    "properties": {"place": {"$ref": "#/$defs/Place"}, "note": {"type": "object", "properties": {"by": {}}}},
    "$defs": {
        "Place": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string"}, "near": {"$ref": "#/$defs/Place"}},
        }
    },
}


def test_a_command_to_paste_gives_the_parts_that_an_object_must_have() -> None:
    words = samples.sample_command("tool", "s", {"name": "go", "inputSchema": PLACES})
    assert words == ["call", "s", "go", "place.city=text"]
    assert is_valid(PLACES, parse_arguments(words[3:], PLACES, read))


def test_the_parts_of_objects_are_named_and_no_definition_without_end_is_followed_to_it() -> None:
    found = nested_fields(PLACES)
    assert [each.name for each in found if each.required] == ["place", "place.city"]
    assert [each.name for each in found][-2:] == ["note", "note.by"]
    broad = {f"p{number}": {"$ref": "#/$defs/All"} for number in range(1000)}
    definition = {"type": "object", "properties": broad}
    assert len(nested_fields({**definition, "$defs": {"All": definition}})) == MAX_NESTED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["name=Ada"], {"name": "Ada"}),
        (["name="], {"name": ""}),
        (["name=a=b c"], {"name": "a=b c"}),
        (["name=7"], {"name": "7"}),
        (["name:=7"], {"name": 7}),
        (["count=3", "share=0.5", "loud=yes"], {"count": 3, "share": 0.5, "loud": True}),
        (["loud=false"], {"loud": False}),
        (["size=1"], {"size": "1"}),
        (["dish=soup"], {"dish": "soup"}),
        (["dish=A pie"], {"dish": "pie"}),
        (["tags=a"], {"tags": ["a"]}),
        (["tags=a", "tags=b,c"], {"tags": ["a", "b,c"]}),
        (['tags=["a", "b"]'], {"tags": ["a", "b"]}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (["sides=salad,bread"], {"sides": ["salad", "bread"]}),
        (["sides=salad", "sides=bread"], {"sides": ["salad", "bread"]}),
        (["extra.depth=2", "extra.in:={}"], {"extra": {"depth": 2, "in": {}}}),
        (["perhaps=null"], {"perhaps": None}),
        (["perhaps=4"], {"perhaps": 4}),
        (["either=4"], {"either": 4}),
        (["either=null"], {"either": None}),
        (["dotted.name=4"], {"dotted.name": 4}),
        (["name=@there"], {"name": "what is in it\n"}),
        (["count=@number"], {"count": 7}),
        (["other:=[1]"], {"other": [1]}),
    ],
)
def test_what_is_typed_is_read_as_the_schema_says(words: list[str], said: dict[str, Any]) -> None:
    assert parse_arguments(words, SCHEMA, read) == said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["count=x"], "count: type a whole number"),
        (["count=0"], "count: must be a whole number, at least 1"),
        (["loud=perhaps"], "loud: type y or n"),
        (["dish=steak"], "dish: 'steak' is none of soup, pie"),
        (["size=3"], "size: '3' is none of 2, 1"),
        (["sides=salad,soup"], "sides: 'soup' is none of salad, bread"),
        (["numbers=1", "numbers=b"], "numbers: type a whole number"),
        (["nome=Ada"], "there is no argument 'nome'; did you mean name?"),
        (["zzz=1"], "there is no argument 'zzz'; there are name, count, share"),
        (["extra.dept=1"], "there is no argument 'dept'; did you mean depth?"),
        (["count=1", "count=2"], "count is given twice; only a list may be"),
        (["extra:={}", "name=x", "extra:=1"], "extra is given twice; only a list may be"),
        (["extra:=1", "extra.depth=1"], "extra is given as a whole, and in parts"),
        (["name=x", "loud"], "'loud' is not KEY=VALUE; all arguments are, or one JSON object is"),
        (["name:={"], "name: what follows := is not JSON"),
        (["name=@nowhere"], "name: nowhere cannot be read: No such file or directory"),
        (["extra..depth=1"], "'extra..depth' is no name of an argument"),
        (["name:="], "name: what follows := is not JSON (there is nothing)"),
        (["name:=NaN"], "name: what follows := is not JSON (Out of range"),
        (["tags=[a"], "tags: what begins with [ is read as a JSON list (Expecting value"),
        (["tags=[NaN]"], "tags: what begins with [ is read as a JSON list (Out of range"),
        (["extra="], "extra: type JSON (there is nothing)"),
        (["size=@there"], "size: 'what is in it' is none of 2, 1"),
        ([f"name:={'[' * 100_000}"], "name: "),
    ],
)
def test_what_cannot_be_read_is_named_with_what_would_do(words: list[str], problem: str) -> None:
    with pytest.raises(MistypedArgument) as refused:
        parse_arguments(words, SCHEMA, read)
    assert str(refused.value).startswith(problem)


def test_what_is_within_an_object_is_read_as_its_definition_says() -> None:
    """As pydantic writes the schema of a model in a model."""
    schema = {
        "properties": {"place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]}},
        "$defs": {
            "Place": {"properties": {"depth": {"type": "integer"}, "colour": {"$ref": "#/$defs/Colour"}}},
            "Colour": {"enum": ["red", "green"]},
        },
    }
    assert parse_arguments(["place.depth=2", "place.colour=red"], schema, read) == {
        "place": {"depth": 2, "colour": "red"}
    }
    with pytest.raises(MistypedArgument, match="'blue' is none of red, green"):
        parse_arguments(["place.colour=blue"], schema, read)
    with pytest.raises(MistypedArgument, match="did you mean depth"):
        parse_arguments(["place.dept=2"], schema, read)


def test_a_schema_that_does_not_name_its_arguments_takes_any() -> None:
    assert parse_arguments(["a=1"], {}, read) == {"a": "1"}
    assert parse_arguments(["a=1"], {"properties": {"b": {}}, "additionalProperties": True}, read) == {"a": "1"}


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ([], False),
        (['{"a": 1}'], False),
        (['{"a": "b=c"}'], False),
        (['\n {"a": "b=c"}'], False),
        (["word"], False),
        (["=x"], False),
        (["a=1"], True),
        (["a:=1", "b=2"], True),
    ],
)
def test_one_json_object_stays_json(words: list[str], typed: bool) -> None:
    assert are_key_values(words) is typed


def test_what_is_required_and_not_given_is_known() -> None:
    assert [field.name for field in missing_fields({"count": 1}, SCHEMA)] == ["name"]


@given(st.dictionaries(st.sampled_from(["name", "count", "share", "loud"]), st.booleans()), st.data())
def test_every_value_that_is_typed_comes_back(names: Mapping[str, bool], data: st.DataObject) -> None:
    values = {
        "name": st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(lambda text: text[:1] != "@"),
        "count": st.integers(1, 10**9),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "loud": st.booleans(),
    }
    wanted = {name: data.draw(values[name]) for name in names}
    words = [
        f"{name}={value}" if isinstance(value, str) else f"{name}={json.dumps(value)}" for name, value in wanted.items()
    ]
    assert parse_arguments(words, SCHEMA, read) == wanted


@pytest.mark.parametrize(
    "shape",
    [
        *SCHEMA["properties"].values(),
        {"type": "string", "minLength": 10},
        {"type": "string", "maxLength": 2},
        {"type": "string", "format": "email"},
        {"type": "string", "format": "date-time"},
        {"type": "integer", "minimum": -5, "maximum": -2},
        {"type": "number", "maximum": -0.5},
        {"type": "integer", "enum": [20, 10]},
        {"type": ["string", "null"], "enum": [None, "a"]},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 2},
        {"type": "boolean", "default": False},
    ],
)
def test_a_sample_is_one_that_its_schema_takes_and_that_can_be_typed(shape: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"it": shape}, "required": ["it"]}
    (field,) = fields(schema)
    assert is_valid(shape, example_value(field))
    assert parse_arguments([samples.sample_argument(field)], schema, read) == {"it": example_value(field)}


@pytest.mark.parametrize("least", [10**15, 1e300])
def test_a_sample_is_short_whatever_a_schema_wants(least: float) -> None:
    for shape in (
        {"type": "string", "minLength": least},
        {"type": "array", "items": {"enum": ["a"]}, "minItems": least},
    ):
        (field,) = fields({"properties": {"it": shape}})
        assert len(samples.sample_argument(field)) < 2000


def test_each_kind_of_pending_request_has_an_answer_to_paste() -> None:
    def asked(kind: str, request: dict[str, Any] | None = None) -> PendingRequest:
        nothing: dict[str, Any] = dict.fromkeys(
            field.name for field in dataclasses.fields(PendingRequest) if field.init
        )
        return PendingRequest(**{**nothing, "id": "r1", "kind": kind, "request": request or {}})

    form = asked("elicitation_form", {"requestedSchema": SCHEMA})
    assert samples.sample_answer(form) == ["name=text", "count=1"]
    assert samples.answer_options(form) == "name=text count=1 (or --accept, --decline, --cancel)"
    assert samples.sample_answer(asked("elicitation_form")) == ["--accept"]
    assert samples.sample_answer(asked("elicitation_url")) == ["--accept"]
    assert samples.sample_answer(asked("sampling")) == ["--text", "..."]
    assert samples.answer_options(asked("roots")) == "--result " + shlex.quote('{"roots": []}')


TOOL = {
    "name": "order",
    "title": "Order lunch",
    "description": "Orders from the kitchen.\x1b[2J",
    "inputSchema": SCHEMA,
    "annotations": {"readOnlyHint": False, "destructiveHint": False},
}


def offers(hub: Any, *shapes: dict[str, Any]) -> None:
    """What the hub's only server lists."""
    entries = [
        catalog_pb2.CatalogEntry(server="s", kind=catalog_pb2.CATALOG_KIND_TOOL, object=json.dumps(shape).encode())
        for shape in shapes
    ]
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(entries=entries)


async def test_a_tool_is_called_with_what_is_typed(hub: Any, hubbub: Any) -> None:
    offers(hub, TOOL)
    hub.replies["CallMethod"] = lambda request: call_pb2.CallMethodResponse(call=call_pb2.Call(result=b"{}"))

    async def watched(request: Any) -> Any:
        yield call_pb2.WatchCallsResponse(synced=common_pb2.WatchSynced())

    hub.streams["WatchCalls"] = watched
    ran = await hubbub("call", "s", "order", "name=Ada", "count=2")
    assert ran.status == 0, ran.err
    (request,) = hub.requests("CallMethod")
    assert json.loads(request.spec.params) == {"name": "order", "arguments": {"name": "Ada", "count": 2}}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("name=Ada",), "order also needs count; `hubbub --data-dir {data_dir} catalog show s order` shows them all"),
        (("nam=Ada", "count=1"), "there is no argument 'nam'; did you mean name?"),
        (("-i",), "a form needs a terminal; give KEY=VALUE, or one JSON object"),
        (("word",), "word is neither KEY=VALUE nor a JSON object"),
    ],
)
async def test_a_call_that_cannot_be_made_is_wrong_usage(
    hub: Any, hubbub: Any, words: tuple[str, ...], problem: str
) -> None:
    offers(hub, TOOL)
    ran = await hubbub("call", "s", "order", *words, json=False)
    assert ran.status == 2
    assert problem.format(data_dir=hub.data_dir) in ran.err
    assert hub.requests("CallMethod") == []


async def test_a_tool_that_is_not_there_is_said(hub: Any, hubbub: Any) -> None:
    offers(hub)
    ran = await hubbub("call", "s", "order", "name=Ada")
    assert (ran.status, ran.error["reason"]) == (1, "TOOL_NOT_FOUND")
    assert "catalog tools --server s" in ran.error["message"]


async def test_a_tool_is_shown_with_its_arguments_and_a_command(hub: Any, hubbub: Any) -> None:
    offers(hub, TOOL)
    ran = await hubbub("catalog", "show", "s", "order", json=False)
    assert ran.status == 0, ran.err
    for words in ("Order lunch", "• name*  text", "• size  2 | 1", "• numbers  list of integers", "destroys nothing"):
        assert words in ran.out
    assert ran.out.endswith("call s order name=text count=1\n")
    assert "\x1b" not in ran.out
    (shown,) = (await hubbub("catalog", "show", "s", "order")).lines
    assert shown == {"server": "s", "tool": TOOL}


async def test_words_find_what_servers_offer(hub: Any, hubbub: Any) -> None:
    offers(hub, TOOL, {"name": "other", "description": "Nothing of the kind."})
    found = (await hubbub("catalog", "search", "KITCHEN", "lunch")).lines
    assert [each["tool"]["name"] for each in found] == ["order"]
    assert (await hubbub("catalog", "search", "kitchen", "nothing")).lines == []


async def test_a_form_is_answered_by_what_is_typed(hub: Any, hubbub: Any) -> None:
    request = json.dumps({"requestedSchema": SCHEMA}).encode()
    pending = inbox_pb2.PendingRequest(
        id="r1", kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM, state=1, request=request
    )
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=pending)
    hub.replies["AnswerPendingRequest"] = lambda _: inbox_pb2.AnswerPendingRequestResponse(pending_request=pending)
    ran = await hubbub("inbox", "answer", "r1", "name=Ada", "count=2")
    assert ran.status == 0, ran.err
    (given_,) = hub.requests("AnswerPendingRequest")
    assert json.loads(given_.accept.content) == {"name": "Ada", "count": 2}
    assert (await hubbub("inbox", "answer", "r1", "name=Ada", "--decline")).status == 2
    assert (await hubbub("inbox", "answer", "name=Ada")).status == 2
