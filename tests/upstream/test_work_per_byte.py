"""What reads what others wrote costs no more per byte when it is longer, and keeps no more than its bound.

Costs are counted, never timed: lines of Python that ran, calls into C included, and the peak of what was allocated.
"""

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods as tables
from pydantic import TypeAdapter, ValidationError

from hubbubd import payload
from hubbubd.core.inbox import forms, questions
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.errors import InvalidArgument
from hubbubd.rpc.messages import json_codec
from hubbubd.runtime.records.table import AgeIndex
from hubbubd.upstream.http.oauth.replies import require_few_values
from hubbubd.upstream.http.streams.event_parser import EventParser
from hubbubd.upstream.messages.codec import BadMessage, LineSplitter, OversizedLine, parse_message
from hubbubd.upstream.protocol import schema_check
from hubbubd.upstream.stdio.stderr import BURST_LINES, Tail

SIZES = (1000, 2000, 4000)
CHUNK = 64 * 1024
LIMIT = 16 * 1024 * 1024


def steps(work: Callable[[], object]) -> int:
    """How many calls, of Python and of C, a piece of work makes."""
    count = 0

    def on_call(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def peak(work: Callable[[], object]) -> int:
    """How many bytes it has allocated at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_now(validate: Callable[[Any], object], document: Any) -> None:
    for _ in schema_check.check(validate, document):
        pass


def refused(validate: Callable[[Any], object], document: Any) -> None:
    with pytest.raises(schema_check.Mismatch):
        check_now(validate, document)


def result(method: str) -> Callable[[Any], object]:
    shape: Any = tables.SERVER_RESULTS[(method, "2025-11-25")]
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    return lambda piece: adapter.validate_python(piece, by_name=False)


def request(method: str) -> Callable[[Any], object]:
    return lambda piece: tables.parse_server_request(method, "2025-11-25", piece)


def chunks(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def stream(data: bytes) -> Callable[[], object]:
    pieces = chunks(data)

    def run() -> None:
        events = EventParser(LIMIT)
        for piece in pieces:
            for _ in events.feed(piece):
                pass

    return run


def lines(data: bytes) -> Callable[[], object]:
    pieces = chunks(data)

    def run() -> None:
        reader = LineSplitter(LIMIT)
        for piece in pieces:
            reader.feed(piece)
            while (line := reader.take_line()) is not None:
                assert not isinstance(line, OversizedLine)
                with pytest.raises(BadMessage):
                    parse_message(line)

    return run


def stderr(data: bytes) -> Callable[[], object]:
    pieces = chunks(data)

    def run() -> None:
        tail = Tail(lambda _: None, lambda: 0.0)
        for piece in pieces:
            tail.feed(piece)

    return run


def form(n: int, field: dict[str, Any]) -> dict[str, Any]:
    return {"message": "m", "requestedSchema": {"type": "object", "properties": {f"f{at}": field for at in range(n)}}}


def answered(n: int) -> None:
    asked, content = form(n, {"type": "string"}), {f"f{at}": 5 for at in range(n)}
    with pytest.raises(InvalidArgument):
        forms.build_answer(RequestKind.ELICITATION_FORM, asked, forms.Accept(content))


def paged(n: int) -> None:
    class Record:
        created_at = 0.0

    order = AgeIndex()
    for at in range(n):
        record = Record()
        record.created_at = float(at)
        order.put(f"r{at}", record)
    place, seen = None, 0
    while page := [name for name, _ in zip(order.ids_before(place), range(50), strict=False)]:
        seen += len(page)
        place = (float(page[-1][1:]), page[-1])
    assert seen == n


TEXT = {"type": "text", "text": "x"}
WORK: dict[str, Callable[[int], Callable[[], object]]] = {
    "events of empty lines": lambda n: stream(b"\n" * 20 * n),
    "one event of short lines": lambda n: stream(b"data:x\n" * 4 * n),
    "lines that end with CR": lambda n: stream(b"data:x\r" * 4 * n),
    "lines that end with CRLF": lambda n: stream(b"data:x\r\n" * 4 * n),
    "one event of one line": lambda n: stream(b"data:" + b"x" * 400 * n),
    "comments": lambda n: stream(b":x\n" * 4 * n),
    "lines that are no messages": lambda n: lines(b"x\n" * n),
    "answers that are no JSON": lambda n: lines(b'{"jsonrpc":"2.0","id":1,"result":NaN}\n' * n),
    "a long line that is no JSON": lambda n: lines(b'{"id":1,"result":' + b"[1," * 50 + b"1," * 100 * n + b"NaN\n"),
    "a long array of messages": lambda n: lines(json.dumps([{"id": at} for at in range(n)]).encode() + b"\n"),
    "short lines on stderr": lambda n: stderr(b"\n" * 50 * n),
    "one line on stderr": lambda n: stderr(b"x" * 400 * n),
    "wrong fields of an answer": lambda n: lambda: answered(n),
    "pages of a history": lambda n: lambda: paged(n),
}
IN_ORDER: dict[str, tuple[Callable[[Any], object], Callable[[int], Any]]] = {
    "messages of a sampling": (
        request("sampling/createMessage"),
        lambda n: {"messages": [{"role": "user", "content": TEXT}] * n, "maxTokens": 1},
    ),
    "blocks of a message": (
        request("sampling/createMessage"),
        lambda n: {"messages": [{"role": "user", "content": [TEXT] * n}], "maxTokens": 1},
    ),
    "fields of a form": (request("elicitation/create"), lambda n: form(n, {"type": "string"})),
    "choices of a field": (request("elicitation/create"), lambda n: form(1, {"type": "string", "enum": ["a"] * n})),
    "content of a tool": (result("tools/call"), lambda n: {"content": [TEXT] * n}),
    "structure of a result": (
        result("tools/call"),
        lambda n: {"content": [], "structuredContent": {f"k{at}": [at] for at in range(n)}},
    ),
    "icons of one tool": (
        result("tools/list"),
        lambda n: {
            "tools": [{"name": "a", "inputSchema": {"type": "object"}, "icons": [{"src": "https://x.example"}] * n}]
        },
    ),
    "messages of a prompt": (result("prompts/get"), lambda n: {"messages": [{"role": "user", "content": TEXT}] * n}),
    "contents of a resource": (
        result("resources/read"),
        lambda n: {"contents": [{"uri": "file:///a", "text": "x"}] * n},
    ),
}
WRONG: dict[str, tuple[Callable[[Any], object], Callable[[int], Any]]] = {
    "empty blocks of one message": (
        request("sampling/createMessage"),
        lambda n: {"messages": [{"role": "user", "content": [{}] * n}], "maxTokens": 1},
    ),
    "numbers for messages": (request("sampling/createMessage"), lambda n: {"messages": [7] * n, "maxTokens": 1}),
    "empty blocks of a tool": (result("tools/call"), lambda n: {"content": [{}] * n}),
    "numbers for tools": (result("tools/list"), lambda n: {"tools": [7] * n}),
    "numbers for icons": (
        result("tools/list"),
        lambda n: {"tools": [{"name": "a", "inputSchema": {"type": "object"}, "icons": [7] * n}]},
    ),
    "numbers for prompts' messages": (result("prompts/get"), lambda n: {"messages": [7] * n}),
    "empty contents": (result("resources/read"), lambda n: {"contents": [{}] * n}),
}


@pytest.mark.parametrize("name", WORK)
def test_twice_as_much_takes_at_most_about_twice_the_steps(name: str) -> None:
    WORK[name](10)()  # what is made once is made
    small, middle, large = (steps(WORK[name](n)) for n in SIZES)
    assert middle <= 2.5 * small + 500
    assert large <= 2.5 * middle + 500


@pytest.mark.parametrize("name", IN_ORDER)
def test_what_is_in_order_is_checked_in_pieces_in_line_with_its_size(name: str) -> None:
    validate, make = IN_ORDER[name]
    seen: list[int] = []

    def look(piece: Any) -> None:
        seen.append(schema_check.count_values(piece, 10**6))
        validate(piece)

    totals: list[int] = []
    for n in SIZES:
        seen.clear()
        check_now(look, make(n))
        assert max(seen) <= 2 * schema_check.PIECE, "a piece holds nobody up"
        totals.append(sum(seen))
    small, middle, large = totals
    assert middle <= 2.5 * small
    assert large <= 2.5 * middle


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_costs_the_same_however_long_it_is(name: str) -> None:
    validate, make = WRONG[name]
    small, large = (make(n) for n in (2000, 50_000))
    refused(validate, small)  # what is made once is made
    assert steps(lambda: refused(validate, large)) <= 2 * steps(lambda: refused(validate, small)) + 500
    assert peak(lambda: refused(validate, large)) <= 2 * peak(lambda: refused(validate, small)) + 1024 * 1024


@pytest.mark.parametrize("reader", [payload.loads, json_codec.check_json])
def test_halves_of_characters_take_memory_in_line_with_the_document(reader: Callable[[bytes], object]) -> None:
    document = b'"' + rb"\ud83c\udff3" * 10_000 + rb'\ud83c"'
    reader(document)
    assert peak(lambda: reader(document)) <= 6 * len(document)


def methods() -> Iterable[tuple[str, str]]:
    """One for each shape of results; many share one."""
    return {id(shape): which for which, shape in sorted(tables.SERVER_RESULTS.items())}.values()


@pytest.mark.parametrize(("method", "version"), methods())
def test_no_result_of_any_method_holds_others_up(method: str, version: str) -> None:
    """Every member of every result, and every name that a schema has, as the longest and worst list and object."""
    shape: Any = tables.SERVER_RESULTS[(method, version)]
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    seen: list[int] = []

    def look(piece: Any) -> None:
        seen.append(schema_check.count_values(piece, 10**6))
        adapter.validate_python(piece, by_name=False)

    worsts: tuple[Any, ...] = ([{}] * 4000, [7] * 4000, {f"k{at}": {} for at in range(4000)}, [[{}] * 100] * 40)
    for worst in worsts:
        document = dict.fromkeys(sorted(schema_check.required_names()), worst)
        with suppress(schema_check.Mismatch):
            check_now(look, document)
    assert max(seen, default=0) <= 8 * schema_check.PIECE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["a", "b", "type", "text"]), inner),
    max_leaves=30,
)
BLOCKS = st.lists(st.just(TEXT) | st.fixed_dictionaries({"type": st.just("text"), "text": JSON}), max_size=4)


@given(BLOCKS, st.integers(0, 3), st.integers(0, 400))
def test_a_document_fits_in_pieces_exactly_if_it_fits_whole(blocks: list[Any], kind: int, filler: int) -> None:
    content = [*[TEXT] * filler, *blocks, *[TEXT] * filler]
    choices: tuple[tuple[Callable[[Any], object], Any], ...] = (
        (result("tools/call"), {"content": content}),
        (result("prompts/get"), {"messages": [{"role": "user", "content": block} for block in content]}),
        (request("sampling/createMessage"), {"messages": [{"role": "user", "content": content}], "maxTokens": 1}),
        (result("tools/call"), {"content": [], "structuredContent": {str(at): b for at, b in enumerate(content)}}),
    )
    validate, document = choices[kind]
    try:
        validate(document)
        fits = True
    except ValidationError:
        fits = False
    try:
        check_now(validate, document)
        assert fits
    except schema_check.Mismatch:
        assert not fits


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":{"a":NaN}}', "NaN"),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":3,"result":{}}', "byte order mark"),
        (b'{"jsonrpc":"2.0","id":3,"result":{"a":"\xff"}}', "UTF-8"),
        (b'{"jsonrpc":"2.0","id":3,"result":' + b"[" * 250 + b"]" * 250 + b"}", "recursion"),
        (b'[{"jsonrpc":"2.0","id":3,"result":{}}]', "array"),
        (b'{"result":{"a":NaN},"jsonrpc":"2.0","id":3}', "NaN"),
        (b'{"jsonrpc":"2.0","id":3,"error":{"code":Infinity}}', "NaN and Infinity"),
    ],
)
def test_an_answer_that_cannot_be_read_says_whose_it_is_and_what_is_wrong(line: bytes, what: str) -> None:
    with pytest.raises(BadMessage, match=what) as caught:
        parse_message(line)
    assert caught.value.answered_ids == (3,)


@pytest.mark.parametrize("schema", [{"\ud83d": {}}, {"a": {"enum": ["\ud83d"]}}, {"a": {"default": "\udc00"}}])
def test_a_form_that_nobody_could_fill_in_is_refused(schema: dict[str, Any]) -> None:
    params = {"message": "\ud83d", "requestedSchema": {"type": "object", "properties": schema}}
    assert "surrogate" in (questions.find_problem(RequestKind.ELICITATION_FORM, params) or "")


def test_of_many_lines_on_stderr_at_once_each_one_past_the_bounds_costs_no_step() -> None:
    def told(n: int) -> int:
        lines: list[str] = []
        tail, flood = Tail(lines.append, lambda: 0.0), b"x\n" * n
        cost = steps(lambda: tail.feed(flood))
        assert len(lines) == BURST_LINES
        return cost + steps(lambda: tail.feed(flood))

    told(BURST_LINES + 1)  # what is made once is made
    assert told(CHUNK) <= told(BURST_LINES + 1) + 10


async def test_a_reply_of_an_authorization_server_with_too_many_values_is_refused() -> None:
    require_few_values({"scopes_supported": ["a"] * 100})
    with pytest.raises(Exception, match="more than 5000 values"):
        require_few_values({"scopes_supported": [7] * 100_000})


def test_the_check_of_a_short_result_is_a_few_calls_more_than_its_validation() -> None:
    validate, document = result("tools/call"), {"content": [{"type": "text", "text": "x" * 900}], "isError": False}
    check_now(validate, document)  # what is made once is made
    assert steps(lambda: check_now(validate, document)) <= steps(lambda: validate(document)) + 14


def test_what_is_wrong_from_its_beginning_is_refused_by_a_few_values_after_a_turn_of_the_others() -> None:
    looked_at: list[int] = []

    def validate(piece: Any) -> None:
        looked_at.append(schema_check.count_values(piece, sys.maxsize))
        result("tools/call")(piece)

    steps_of_it = schema_check.check(validate, {"content": [{}] * 80_000})
    next(steps_of_it)
    assert looked_at == []
    with pytest.raises(schema_check.Mismatch):
        next(steps_of_it)
    assert sum(looked_at) < 30


@pytest.mark.parametrize("good", [0, 1, 299, 700])
def test_of_very_many_mistakes_the_first_ones_are_told_with_their_places(good: int) -> None:
    content = [{"type": "text", "text": "x"}] * good + [{"type": "text", "text": 7}] * 2000
    with pytest.raises(schema_check.Mismatch, match=rf"(^|\W)content\.{good}\W") as found:
        check_now(result("tools/call"), {"content": content})
    assert len(str(found.value)) < 3000
