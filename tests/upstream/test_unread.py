"""Messages that are too long to be read: what their ends and a count of them tell."""

import json
import sys
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, JSONRPCNotification

from hubbubd.payload import bound_value_count, dumps, is_nested_deeper
from hubbubd.upstream.messages import envelope
from hubbubd.upstream.messages.codec import (
    MAX_REQUEST_BYTES,
    MAX_VALUES,
    LineSplitter,
    NotParsed,
    OversizedLine,
    oversized_error,
    parse_message,
)
from hubbubd.upstream.messages.dispatcher import Dispatcher
from hubbubd.upstream.messages.envelope import EDGE, RequestHead
from hubbubd.upstream.messages.rate_limit import ServerRateLimit

from .conftest import LIMIT_S, Connect, Recorder, Scripted, event, says

LONG = {"text": "x" * 5000, "id": 1, "method": "inner"}
BIG: Any = {
    "message": "?",
    "requestedSchema": {"type": "object", "properties": {str(n): {} for n in range(MAX_VALUES)}},
}

ASKING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"name": "asking", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message.get("method") == "tools/call":
        call = message["id"]
        params = {"message": "?", "requestedSchema": {"type": "object", "properties": {str(n): {} for n in range(%d)}}}
        print(json.dumps({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}), flush=True)
        continue
    elif message.get("id") == "q":
        message, result = {"id": call}, {"content": [], "structuredContent": message}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def values_of(value: Any) -> int:
    match value:
        case dict():
            return 1 + sum(map(values_of, value.values()))
        case list():
            return 1 + sum(map(values_of, value))
        case _:
            return 1


def depth_of(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case _:
            return 0


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,[{"\\\n\u2028', max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=40,
)


@given(DOCUMENTS, st.booleans())
def test_the_count_of_values_is_never_too_low_and_at_most_twice_too_high(document: Any, ascii_only: bool) -> None:
    exact = values_of(document)
    counted = bound_value_count(json.dumps(document, ensure_ascii=ascii_only).encode(), 1000)
    assert exact <= counted <= 2 * exact


@given(DOCUMENTS, st.integers(1, 20))
def test_a_document_that_has_too_many_values_is_counted_as_one(document: Any, most: int) -> None:
    if (exact := values_of(document)) > most:
        assert bound_value_count(json.dumps(document).encode(), most) > most
    elif 2 * exact <= most:
        assert bound_value_count(json.dumps(document).encode(), most) <= most


@given(DOCUMENTS, st.integers(0, 8), st.booleans())
def test_how_deep_a_document_is_is_told_exactly(document: Any, most: int, ascii_only: bool) -> None:
    written = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert is_nested_deeper(written, most) == (depth_of(document) > most)


@pytest.mark.parametrize(
    ("message", "asks"),
    [
        ({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": LONG}, RequestHead("ping", 3)),
        ({"method": "ping", "params": LONG, "jsonrpc": "2.0", "id": "three"}, RequestHead("ping", "three")),
        ({"id": 3, "method": "ping", "params": LONG, "jsonrpc": "2.0"}, RequestHead("ping", 3)),
        (
            {"jsonrpc": "2.0", "method": "notifications/message", "params": LONG},
            RequestHead("notifications/message", None),
        ),
        ({"method": "notifications/x", "params": {"a": LONG}, "jsonrpc": "2.0"}, RequestHead("notifications/x", None)),
        ({"jsonrpc": "2.0", "id": 3, "result": LONG}, None),
        ({"result": LONG, "jsonrpc": "2.0", "id": 3}, None),
        ({"jsonrpc": "2.0", "id": 3, "error": {"data": LONG}}, None),
        ({"jsonrpc": "2.0", "id": 3, "params": LONG}, None),
        ([LONG], None),
    ],
)
def test_the_ends_of_a_message_tell_what_it_asks(message: Any, asks: RequestHead | None) -> None:
    for text in (json.dumps(message).encode(), dumps(message)):
        assert envelope.request_head(text[:EDGE], text[-EDGE:]) == asks


@pytest.mark.parametrize(
    ("method", "request_id"), [("notifications/message", None), ("elicitation/create", 7), ("roots/list", "x")]
)
def test_what_is_told_or_asked_at_length_is_not_read(method: str, request_id: int | str | None) -> None:
    message = {"jsonrpc": "2.0", "method": method} | ({} if request_id is None else {"id": request_id})
    assert parse_message(dumps({**message, "params": {"data": "x" * (MAX_REQUEST_BYTES // 2)}}))
    with pytest.raises(NotParsed, match=rf"'{method}' of \d+ bytes; at most 1048576 are read") as found:
        parse_message(dumps({**message, "params": {"data": "x" * MAX_REQUEST_BYTES}}))
    assert found.value.request_id == request_id


CHUNK = 64 * 1024
LIMIT = 3 * MAX_REQUEST_BYTES


def held_and_taken(line: bytes) -> tuple[int, Any]:
    """The most bytes that were held of a line that came in chunks, and what it was taken for."""
    lines, held = LineSplitter(LIMIT), 0
    for begin in range(0, len(line) + 1, CHUNK):
        lines.feed((line + b"\n")[begin : begin + CHUNK])
        held = max(held, len(lines))
    return held, lines.take_line()


@pytest.mark.parametrize("before", [True, False])
def test_of_what_will_not_be_read_no_more_is_held_than_what_would_be(before: bool) -> None:
    asked: dict[str, Any] = {"method": "elicitation/create", "params": {"message": "x" * 2 * MAX_REQUEST_BYTES}}
    line = dumps({"id": 7, **asked} if before else {**asked, "id": 7})
    held, taken = held_and_taken(line)
    assert held <= MAX_REQUEST_BYTES + CHUNK
    assert isinstance(taken, OversizedLine)
    refused = oversized_error(taken, LIMIT)
    assert isinstance(refused, NotParsed)
    assert refused.request_id == 7
    assert str(refused) == f"'elicitation/create' of {len(line)} bytes; at most {MAX_REQUEST_BYTES} are read"


def test_what_may_be_long_is_held_to_the_limit_of_any_message_and_refused_beyond() -> None:
    asked: dict[str, Any] = {"id": 7, "method": "sampling/createMessage"}
    assert held_and_taken(line := dumps({**asked, "params": {"a": "x" * 2 * MAX_REQUEST_BYTES}}))[1] == line
    held, taken = held_and_taken(dumps({**asked, "params": {"a": "x" * LIMIT}}))
    assert held <= LIMIT + CHUNK
    assert f"at most {LIMIT} are read" in str(oversized_error(taken, LIMIT))


def test_images_may_be_given_to_a_model() -> None:
    image = {"role": "user", "content": {"type": "image", "data": "x" * 3 * MAX_REQUEST_BYTES, "mimeType": "image/png"}}
    asked = {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage"}
    assert parse_message(dumps({**asked, "params": {"messages": [image], "maxTokens": 5}}))


def test_a_request_of_too_many_values_is_not_read_and_one_of_many_commas_is() -> None:
    asked = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create"}
    with pytest.raises(NotParsed, match="more than 50000 values") as found:
        parse_message(dumps({**asked, "params": BIG}))
    assert found.value.request_id == 7
    assert parse_message(dumps({**asked, "params": {"message": ', "[{\\' * 50_000}}))


def test_a_result_may_have_any_number_of_values() -> None:
    assert parse_message(dumps({"jsonrpc": "2.0", "id": 7, "result": BIG}))


@pytest.mark.usefixtures("processes")
async def test_a_server_over_stdio_is_told_that_its_request_was_not_read(connect: Connect, recorder: Recorder) -> None:
    async with connect(command=sys.executable, args=("-I", "-S", "-c", ASKING % MAX_VALUES)) as link:
        for _ in range(12):  # more of them than of what is no message at all
            result = await link.request("tools/call", {"name": "ask", "arguments": {}})
            assert result["structuredContent"]["error"]["code"] == INVALID_REQUEST
            assert "50000 values" in result["structuredContent"]["error"]["message"]
    assert recorder.requests == []


async def test_a_refusal_that_cannot_be_sent_costs_nothing_else() -> None:
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](2)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](1)
    outgoing.close()
    told = anyio.Event()

    async def serve(*_: object) -> dict[str, Any]:
        raise AssertionError("nothing that can be read is asked")

    wire = Dispatcher(
        read_stream,
        write_stream,
        reports_delivery=False,
        serve=serve,
        on_notification=lambda _method, _params, _call: told.set(),
        on_unusable=lambda _problem, _in_a_row: None,
        note=lambda _kind, _text: None,
        rate_limit=ServerRateLimit(1000.0, 1e9, lambda _rate, _unit: None),
    )
    with anyio.fail_after(LIMIT_S):
        async with incoming, read_stream, write_stream, anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: wire.run(task_status=task_status))
            await incoming.send(NotParsed("it is too long", "q"))
            await incoming.send(
                SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed"))
            )
            await told.wait()
            tasks.cancel_scope.cancel()


async def test_a_server_over_http_is_told_that_its_request_was_not_read(
    connect: Connect, recorder: Recorder, scripted: Scripted
) -> None:
    told: list[dict[str, Any]] = []
    answered = anyio.Event()

    async def take(request: Any) -> Any:
        told.append(json.loads(await request.body()))
        answered.set()
        return await says(202)(request)

    asked = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": BIG}
    scripted.replaced = {"GET": says(200, event(asked), "text/event-stream"), "answer": take}
    async with connect(url=scripted.url):
        await answered.wait()
    assert (told[0]["id"], told[0]["error"]["code"]) == ("q", INVALID_REQUEST)
    assert recorder.requests == []
