"""Lines out of chunks, and messages out of lines."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc

from hubbubd.upstream.messages.codec import (
    MAX_REQUEST_BYTES,
    BadMessage,
    LineSplitter,
    NotParsed,
    OversizedLine,
    message_from_json,
    parse_message,
    serialize,
)

LIMIT = 8


def taken(lines: LineSplitter) -> list[bytes | OversizedLine]:
    found: list[bytes | OversizedLine] = []
    while (line := lines.take_line()) is not None:
        found.append(line)
    return found


@given(st.lists(st.text("ab\n", max_size=30).map(str.encode)), st.booleans())
def test_chunks_of_any_cut_give_the_same_lines_and_never_hold_a_long_one(chunks: list[bytes], eager: bool) -> None:
    lines = LineSplitter(LIMIT)
    found: list[bytes | OversizedLine] = []
    for chunk in chunks:
        lines.feed(chunk)
        if eager:
            found += taken(lines)
            assert len(lines) <= LIMIT
    found += taken(lines)
    expected = b"".join(chunks).split(b"\n")[:-1]
    assert found == [line if len(line) <= LIMIT else OversizedLine(len(line)) for line in expected]


LONG = "x" * 5000
INNER = {"content": [{"type": "text", "text": LONG}], "id": 1}


@pytest.mark.parametrize("cut", [1, 7, 1024, 10_000])
@pytest.mark.parametrize(
    ("message", "answers"),
    [
        ({"jsonrpc": "2.0", "id": 3, "result": INNER}, 3),
        ({"id": "three", "jsonrpc": "2.0", "result": INNER}, "three"),
        ({"result": INNER, "jsonrpc": "2.0", "id": 3}, 3),
        ({"result": INNER, "id": 3, "jsonrpc": "2.0"}, 3),
        ({"result": {"text": LONG, "id": 1}, "jsonrpc": "2.0"}, None),
        ({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": INNER}, None),
        ({"method": "ping", "params": INNER, "jsonrpc": "2.0", "id": 3}, None),
        ({"jsonrpc": "2.0", "method": "notifications/message", "params": {"result": INNER}}, None),
        ({"jsonrpc": "2.0", "id": 10**30, "result": INNER}, None),
        ({"jsonrpc": "2.0", "id": "\0", "result": INNER}, None),
        ([LONG], None),
    ],
)
def test_a_result_that_is_too_long_still_says_which_request_it_answers(
    message: Any, answers: int | str | None, cut: int
) -> None:
    lines = LineSplitter(4000)
    line = json.dumps(message).encode()
    found: list[bytes | OversizedLine] = []
    for start in range(0, len(line) + 1, cut):
        lines.feed((line + b"\n")[start : start + cut])
        found += taken(lines)
    lines.feed(b"short\n")
    skipped, short = [*found, *taken(lines)]
    assert isinstance(skipped, OversizedLine)
    assert (skipped.size, skipped.answered_id, short) == (len(line), answers, b"short")


@given(st.binary(max_size=30).filter(lambda chunk: b"\n" not in chunk))
def test_lines_that_are_not_ready_have_nothing_to_take(chunk: bytes) -> None:
    lines = LineSplitter(LIMIT)
    lines.feed(chunk)
    assert not lines.may_have_line
    assert lines.take_line() is None


IDS: list[Any] = [0, 7, -1, "a", "7", None, True, 1.5, [], {}]
MEMBERS: dict[str, list[Any]] = {
    "jsonrpc": ["2.0", "1.0", 2],
    "id": IDS,
    "method": ["ping", 3, None],
    "params": [{}, {"a": [1]}, [], "x", None],
    "result": [{}, {"a": 1}, [], None],
    "error": [{"code": 1, "message": "m"}, {"code": "no", "message": "m"}, {}, None],
}


@given(st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in MEMBERS.items()}))
def test_a_message_is_read_as_the_sdk_reads_it_or_refused(value: dict[str, Any]) -> None:
    try:
        message = message_from_json(value)
    except BadMessage:
        return
    assert message.model_dump(exclude_unset=True) == type(message).model_validate(value).model_dump(exclude_unset=True)
    if "method" in value:
        assert isinstance(message, jsonrpc.JSONRPCRequest | jsonrpc.JSONRPCNotification)
        assert isinstance(message, jsonrpc.JSONRPCRequest) == (value.get("id") is not None)
    else:
        assert isinstance(message, jsonrpc.JSONRPCError) == (value.get("error") is not None)
        assert not isinstance(message.id, bool)


@given(st.fixed_dictionaries({name: st.sampled_from(values[:1]) for name, values in MEMBERS.items()}))
def test_an_id_may_be_a_number_or_a_string_and_nothing_else(value: dict[str, Any]) -> None:
    for member in ("params", "result", "error"):
        del value[member]
    for good in (0, 7, -1, "a", "7"):
        assert message_from_json({**value, "id": good}).model_dump()["id"] == good
    for bad in (True, 1.5, [], {}):
        with pytest.raises(BadMessage):
            message_from_json({**value, "id": bad})


def test_an_error_that_belongs_to_no_request_is_a_message() -> None:
    message = message_from_json({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}})
    assert isinstance(message, jsonrpc.JSONRPCError)
    assert message.id is None


@pytest.mark.parametrize("answered", [5, "five"])
def test_an_unusable_answer_still_tells_whose_it_is(answered: int | str) -> None:
    with pytest.raises(BadMessage) as caught:
        message_from_json({"jsonrpc": "2.0", "id": answered, "result": [1, 2]})
    assert caught.value.answered_ids == (answered,)


@pytest.mark.parametrize("value", [1, "x", None, [], [{"jsonrpc": "2.0", "method": "ping", "id": 1}]])
def test_what_is_no_object_is_no_message(value: Any) -> None:
    with pytest.raises(BadMessage):
        message_from_json(value)


@pytest.mark.parametrize(
    "message",
    [
        jsonrpc.JSONRPCRequest(jsonrpc="2.0", id=1, method="ping"),
        jsonrpc.JSONRPCRequest(jsonrpc="2.0", id="a", method="tools/call", params={"a": None, "b": "ü\n\u2028"}),
        jsonrpc.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"),
        jsonrpc.JSONRPCResponse(jsonrpc="2.0", id=1, result={"n": 2**70}),
        jsonrpc.JSONRPCError(jsonrpc="2.0", id=None, error=jsonrpc.ErrorData(code=-1, message="no")),
        jsonrpc.JSONRPCError(jsonrpc="2.0", id=1, error=jsonrpc.ErrorData(code=-1, message="no", data=[None])),
    ],
)
def test_a_message_is_written_as_the_sdk_writes_it_on_one_line(message: jsonrpc.JSONRPCMessage) -> None:
    line = serialize(message)
    assert b"\n" not in line
    assert json.loads(line) == message.model_dump(mode="json", by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("cut", [1, 3, 100])
def test_a_line_is_as_long_as_its_bytes_however_few_its_characters(cut: int) -> None:
    fits, long = "é" * (LIMIT // 2), "é" * (LIMIT // 2 + 1)
    said = f"{fits}\n{long}\n".encode()
    lines = LineSplitter(LIMIT)
    for at in range(0, len(said), cut):
        lines.feed(said[at : at + cut])
    assert taken(lines) == [fits.encode(), OversizedLine(len(long.encode()))]


@pytest.mark.parametrize("form", [str, str.encode])
def test_a_request_is_measured_in_bytes_also_where_it_comes_as_text(form: Callable[[str], str | bytes]) -> None:
    def ping(characters: int) -> str:
        params = {"text": "é" * characters}
        return json.dumps({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": params}, ensure_ascii=False)

    around = len(ping(0))
    most = (MAX_REQUEST_BYTES - around) // 2
    parse_message(form(ping(most)))
    with pytest.raises(NotParsed, match=f"of {around + 2 * (most + 1)} bytes"):
        parse_message(form(ping(most + 1)))


def test_what_follows_a_long_line_is_kept() -> None:
    lines = LineSplitter(LIMIT * 100_000)
    long = b"x" * 100_000
    for begun in (b"", b"short\n", long + b"\n"):
        lines.feed(begun + long + b"\nshort\nres")
        expected = [*begun.splitlines(), long, b"short"]
        assert taken(lines) == expected
        lines.feed(b"t\n")
        assert taken(lines) == [b"rest"]
    assert len(lines) == 0
