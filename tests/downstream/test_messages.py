"""What a response says is found without reading all of it, and messages are spliced so that they stay JSON."""

import json

import pytest

from hubbubd.downstream.protocol import messages
from hubbubd.downstream.protocol.messages import Id, Refusal

LONG = "x" * 5000
IDS: list[Id] = [1, "a", "\u0000" * 256, "\U0001f600" * 256, "\ud800" * 256, '","error":{"code":-32601},"']


@pytest.mark.parametrize("id_", IDS)
@pytest.mark.parametrize("data", [None, {"why": LONG}, {"result": {"error": LONG}}])
def test_the_code_of_an_error_is_found_however_long_it_and_its_id_are(id_: Id, data: object) -> None:
    assert messages.read_error_code(messages.make_error_response(id_, Refusal(-32602, "wrong", data))) == -32602


@pytest.mark.parametrize("id_", IDS)
@pytest.mark.parametrize("end", ["", LONG])
def test_a_result_is_no_error_whatever_is_in_it(id_: Id, end: str) -> None:
    result = {"structuredContent": {"error": {"code": 1}}, "error": {"code": 1}, "more": end}
    response = messages.make_result_response(id_, json.dumps(result, separators=(",", ":")).encode())
    assert messages.read_error_code(response) is None
    assert json.loads(response) == {"jsonrpc": "2.0", "id": id_, "result": result}


@pytest.mark.parametrize("own", [{}, {"content": []}])
def test_members_come_before_those_of_an_object(own: dict[str, object]) -> None:
    raw = json.dumps(own).encode()
    assert json.loads(messages.with_members(raw, a=1, b="x")) == {"a": 1, "b": "x", **own}
    assert messages.with_members(raw) == raw
