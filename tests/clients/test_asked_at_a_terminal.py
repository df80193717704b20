"""What a person types into a form at a terminal, and what becomes of it."""

import io
import os
import pty
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import anyio
import pytest
import typer

from hubbub.v1 import call_pb2, catalog_pb2, common_pb2, inbox_pb2
from hubbub_cli.run.session import Settings
from hubbub_cli.terminal import arguments, claimed_answer, live_call
from hubbub_cli.terminal.answer import FormLeft, ask_for_answer, fill_in_form
from hubbub_cli.terminal.prompts import choose_letter
from hubbub_client import connect
from hubbub_client.data.records import PendingRequest
from hubbub_client.errors import FailedPrecondition
from hubbub_frontend.forms import fields

from .coding_agents import Agents
from .conftest import staying

LIMIT_S = 60
TOOL = b'{"name":"order","inputSchema":{"properties":{"count":{"type":"integer"}},"required":["count"]}}'


class Screen(io.StringIO):
    """A terminal, as a command sees it."""

    def isatty(self) -> bool:
        return True


class Person:
    """One who types at the terminal that this process has, and sees what it shows."""

    def __init__(self, keys: int, stdin: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
        self._keys = keys
        self._stdin = stdin
        self._monkeypatch = monkeypatch
        self._screen = Screen()

    def types(self, *lines: str) -> None:
        """Types lines ahead."""
        self._monkeypatch.setattr(sys, "stdin", self._stdin)
        self._monkeypatch.setattr(sys, "stderr", self._screen)
        os.write(self._keys, "".join(f"{line}\n" for line in lines).encode())

    @property
    def sees(self) -> str:
        return self._screen.getvalue()


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    """Somebody at the terminal."""
    keys, own = pty.openpty()
    with os.fdopen(own) as stdin:
        yield Person(keys, stdin, monkeypatch)
    os.close(keys)


def settings(**given: Any) -> Settings:
    nothing = dict.fromkeys(("address", "token", "data_dir", "ca", "cert", "key", "name", "connect_timeout_s"))
    return Settings(**{"json": False, **nothing, **given})


@pytest.mark.parametrize(
    ("shape", "lines", "value"),
    [
        ({"type": "integer"}, ("", "3"), 3),
        ({"type": "number"}, ("", "0.5"), 0.5),
        ({"type": "boolean"}, ("", "y"), True),
        ({"type": "object"}, ("", "{}"), {}),
        ({"type": "array", "items": {"type": "integer"}}, ("", "[1]"), [1]),
        ({"enum": ["a", "b"]}, ("", "2"), "b"),
        ({"type": "string"}, ("",), ""),
        ({"type": "integer", "default": 7}, ("",), 7),
        ({"type": "integer"}, ("NaN", "[" * 900, "1"), 1),
        ({"type": "object"}, ("[NaN]", "[" * 1500, '{"a": 1}'), {"a": 1}),
    ],
)
async def test_what_is_required_is_asked_for_until_there_is_a_value(
    person: Person, shape: dict[str, Any], lines: tuple[str, ...], value: Any
) -> None:
    person.types(*lines)
    with anyio.fail_after(LIMIT_S):
        assert await fill_in_form(fields({"properties": {"it": shape}, "required": ["it"]}), {}, {}) == {"it": value}
    assert person.sees.count("it") >= len(lines)


async def test_an_optional_field_is_left_out_by_enter_and_one_with_a_default_by_a_dash(person: Person) -> None:
    form = fields({"properties": {"a": {"type": "integer"}, "b": {"default": "x"}, "c": {"default": "y"}}})
    person.types("", "", "-")
    with anyio.fail_after(LIMIT_S):
        assert await fill_in_form(form, {}, {}) == {"b": "x"}
    assert "a (integer, optional): b (optional) [x]: c (optional) [y]: " in person.sees


async def test_an_object_is_asked_for_as_json(person: Person) -> None:
    person.types("{}")
    with anyio.fail_after(LIMIT_S):
        assert await fill_in_form(fields({"properties": {"it": {"type": "object"}}, "required": ["it"]}), {}, {}) == {
            "it": {}
        }
    assert person.sees == "it (JSON): "


async def test_numbers_that_may_be_chosen_are_typed_as_they_are(person: Person) -> None:
    person.types("10")
    with anyio.fail_after(LIMIT_S):
        assert await fill_in_form(fields({"properties": {"it": {"type": "integer", "enum": [20, 10]}}}), {}, {}) == {
            "it": 10
        }
    assert person.sees.startswith("  20\n  10\n")


@pytest.mark.parametrize("word", ["!d", "!decline", "!c", "!cancel", "!l", "!later"])
async def test_a_form_is_left_in_any_of_its_fields(person: Person, word: str) -> None:
    person.types(word)
    with anyio.fail_after(LIMIT_S), pytest.raises(FormLeft) as left:
        await fill_in_form(fields({"properties": {"a": {}}}), {}, {})
    assert left.value.letter == word[1]


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        (("",), "s"),
        (("d",), "d"),
        (("Dec",), "d"),
        (("!c",), "c"),
        (("send it",), "s"),
        (("curry", "s"), "s"),
        (("!", "soup", "c"), "c"),
    ],
)
async def test_what_is_no_choice_is_asked_again_and_does_not_count_by_its_first_letter(
    person: Person, lines: tuple[str, ...], chosen: str
) -> None:
    person.types(*lines)
    with anyio.fail_after(LIMIT_S):
        assert await choose_letter({"s": "[s]end it", "d": "[d]ecline", "c": "[c]ancel"}, default="s") == chosen
    assert person.sees.count("type s, d or c\n") == len(lines) - 1


@pytest.mark.parametrize("leaves", ["!c", "\x04"], ids=["word", "end of input"])
async def test_a_call_whose_form_is_left_is_not_made_and_fails(hub: Any, person: Person, leaves: str) -> None:
    tool = catalog_pb2.CatalogEntry(server="s", kind=catalog_pb2.CATALOG_KIND_TOOL, object=TOOL)
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(entries=[tool])
    person.types(leaves)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            with pytest.raises(typer.Exit) as left:
                await arguments.resolve_arguments(client, settings(), "tool", "s", "order", (), form=False)
    assert left.value.exit_code == 1
    ended = "\n" if leaves == "\x04" else ""  # what a person types ends its line itself
    assert person.sees.endswith(f"count (integer): {ended}order was not called: the form was left\n")


async def test_where_an_answered_call_goes_on_it_is_said_how_to_watch_it_at_the_same_hub_under_the_same_name(
    hub: Any, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.streams["WatchCalls"] = staying(call_pb2.WatchCallsResponse(synced=common_pb2.WatchSynced()))
    monkeypatch.setattr(claimed_answer, "CALL_LIMIT_S", 0)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    asked = inbox_pb2.PendingRequest(id="r1", call_id="c1", server="s", kind=1, state=2)
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked)
    person.types()
    given = settings(data_dir="/there", name="ann", token="secret")
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            answered: PendingRequest = await client.inbox.get("r1")
            await claimed_answer.print_given_answer(client, answered, given)
    assert person.sees == "its call goes on: hubbub --data-dir /there --as ann calls watch c1\n"


async def test_only_what_the_hub_refuses_is_asked_for_again(hub: Any, person: Person, refusal: Any) -> None:
    form = b'{"message":"Who?","requestedSchema":{"properties":{"name":{},"age":{"type":"integer"}}}}'
    asked = inbox_pb2.PendingRequest(id="r1", server="s", kind=1, state=1, request=form)
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked)

    def answer(request: Any) -> Any:
        if b"99" in request.accept.content:
            raise refusal("INVALID_ARGUMENT", "INVALID_ARGUMENT", "too old", violations=(("content.age", "too old"),))
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=asked)

    hub.replies["AnswerPendingRequest"] = answer
    person.types("Ada", "99", "", "9", "")
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await ask_for_answer(client, await client.inbox.get("r1"), {})
    assert hub.requests("AnswerPendingRequest")[-1].accept.content == b'{"name":"Ada","age":9}'
    assert person.sees.count("name (optional)") == 1
    assert "  age: too old\n" in person.sees


async def test_an_agents_own_options_are_answered_by_their_numbers_and_enter_alone_takes_none(
    hub: Any, person: Person
) -> None:
    Agents(hub).ask("s1")
    done = inbox_pb2.PendingRequest(id="q1", server="coder", state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED)
    hub.replies["AnswerPendingRequest"] = lambda _: inbox_pb2.AnswerPendingRequestResponse(pending_request=done)
    person.types("", "3")
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await ask_for_answer(client, await client.inbox.get("q1"), {})
    assert hub.requests("AnswerPendingRequest")[-1].accept.content == b'{"decision":"no"}'
    assert "[1] Allow, [2] Always (for what is like it, too), [3] Reject or [l]ater? " in person.sees
    for line in ("Command", "  npm test", "in the folder", "/srv/shop"):
        assert line in person.sees


async def test_after_an_answer_a_person_sees_what_the_call_returned(
    hub: Any, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = b'{"content":[{"type":"text","text":"One soup."}]}'

    async def watched(_: Any) -> Any:
        ended = call_pb2.Call(id="c1", server="s", method="tools/call", state=call_pb2.CALL_STATE_COMPLETED)
        ended.result = result
        yield call_pb2.WatchCallsResponse(upsert=ended)
        await anyio.sleep_forever()

    hub.streams["WatchCalls"] = watched
    asked = inbox_pb2.PendingRequest(id="r1", call_id="c1", server="s", kind=1, state=2)
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked)
    out = io.StringIO()
    person.types()
    monkeypatch.setattr(sys, "stdout", out)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await claimed_answer.print_given_answer(client, await client.inbox.get("r1"), settings())
    assert out.getvalue().splitlines()[1:] == ["tools/call on s: completed", "One soup."]


async def test_a_question_that_somebody_declined_is_not_called_answered(hub: Any) -> None:
    asked = inbox_pb2.PendingRequest(id="r1", server="s", kind=1, state=2, answer=b'{"action":"decline"}')
    asked.answered_by = "ann"
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked)
    async with connect(data_dir=hub.data_dir) as client:
        with pytest.raises(FailedPrecondition, match="r1 is declined by ann"):
            await claimed_answer.answer_and_report(client, await client.inbox.get("r1"), settings())


async def test_a_call_does_not_wait_for_the_end_of_a_question_that_is_perhaps_of_another(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = inbox_pb2.PendingRequest(id="r1", server="s", kind=1, state=1, request=b"{}")
    attended = anyio.Event()

    async def calls(request: Any) -> Any:
        doubtful = call_pb2.Call(id=request.filter.ids[0], perhaps_pending_request_ids=["r1"])
        yield call_pb2.WatchCallsResponse(upsert=doubtful)
        yield call_pb2.WatchCallsResponse(synced=common_pb2.WatchSynced())
        await anyio.sleep_forever()

    async def inbox(_: Any) -> Any:
        attended.set()
        yield inbox_pb2.WatchPendingRequestsResponse(upsert=asked)
        yield inbox_pb2.WatchPendingRequestsResponse(synced=common_pb2.WatchSynced())
        await anyio.sleep_forever()

    async def result(_: Any) -> Any:
        await attended.wait()
        return call_pb2.CallMethodResponse(call=call_pb2.Call(result=b"{}"))

    hub.streams |= {"WatchCalls": calls, "WatchPendingRequests": inbox}
    hub.replies["CallMethod"] = result
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked)
    monkeypatch.setattr(live_call, "LAST_QUESTIONS_LIMIT_S", 100 * LIMIT_S)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            assert await live_call.LiveCall(client, settings(json=True)).run("s", "m", None) == {}
