"""What hosts repeat in headers: arguments as headers agree with the arguments, or the request is refused."""

import base64
import json
from typing import Any

import pytest

from hubbubd.core.jsonrpc import HEADER_MISMATCH
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.rpc.mcp.headers import check_arguments, unwrap

PLAIN = b'{"name":"plain","inputSchema":{"type":"object","properties":{"region":{"type":"string"}}}}'
NESTED = {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Tenant"}}}
SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "tenant": NESTED,
        "odd": {"type": "string", "x-mcp-header": "\u00e9"},
        "x-mcp-header": True,
    },
}
MARKED = json.dumps({"name": "marked", "inputSchema": SCHEMA}).encode()


def wrapped(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def check(arguments: Any, sent: dict[str, str], tool: bytes | None = MARKED) -> None:
    encoded = {f"mcp-param-{name}": value for name, value in sent.items()}
    check_arguments(tool, arguments, encoded)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({}, {}),
        (None, {}),
        ("no object", {}),
        ({"region": None}, {}),
        ({"region": "eu"}, {"region": "eu"}),
        ({"region": "eu"}, {"region": " eu "}),
        ({"region": ""}, {"region": ""}),
        ({"region": "z\u00fcrich"}, {"region": wrapped("z\u00fcrich")}),
        ({"region": "SGVsbG8="}, {"region": "SGVsbG8="}),
        ({"region": "=?base64?SGVsbG8="}, {"region": "=?base64?SGVsbG8="}),
        ({"count": 7}, {"count": "7"}),
        ({"count": 7.0}, {"count": "7"}),
        ({"count": 7}, {"count": "7.0"}),
        ({"count": -(2**70)}, {"count": str(-(2**70))}),
        ({"count": 1e300}, {"count": "1" + "0" * 300}),
        ({"count": 0.1}, {"count": "0.1"}),
        ({"count": 10**500}, {}),
        ({"count": [7]}, {}),
        ({"dry": True}, {"dry-run": "true"}),
        ({"dry": False}, {"dry-run": "false"}),
        ({"tenant": {"id": "t1"}}, {"tenant": "t1"}),
        ({"tenant": "t1"}, {}),
        ({"other": "x"}, {"other": "y"}),
    ],
)
def test_headers_that_repeat_their_arguments_are_taken(arguments: Any, sent: dict[str, str]) -> None:
    check(arguments, sent)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"region": "us"}),
        ({"region": "eu"}, {"region": "EU"}),
        ({"region": "Hello"}, {"region": "=?base64?SGVsbG8?="}),
        ({"region": "Hello"}, {"region": "=?base64?SGVs!!!bG8=?="}),
        ({"region": "Hello"}, {"region": "=?base64?/w==?="}),
        ({"region": ["eu"]}, {"region": "eu"}),
        ({}, {"region": "eu"}),
        ({"region": None}, {"region": "eu"}),
        ({"count": 7}, {}),
        ({"count": 7}, {"count": "8"}),
        ({"count": 7}, {"count": "7.01"}),
        ({"count": 7}, {"count": "seven"}),
        ({"count": 7}, {"count": "7e0"}),
        ({"count": 7}, {"count": "9" * 10_000}),
        ({"count": 10**500}, {"count": "1" + "0" * 500}),
        ({"count": True}, {"count": "1"}),
        ({"dry": True}, {"dry-run": "True"}),
        ({"tenant": {"id": "t1"}}, {}),
        ({"tenant": "t1"}, {"tenant": "t1"}),
    ],
)
def test_headers_that_say_something_else_are_refused(arguments: Any, sent: dict[str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        check(arguments, sent)
    assert refused.value.code == HEADER_MISMATCH


@pytest.mark.parametrize("tool", [PLAIN, None])
def test_tools_without_marked_arguments_have_no_headers_to_compare(tool: bytes | None) -> None:
    check({"region": "eu"}, {"region": "us"}, tool)


def test_a_name_that_no_header_can_have_comes_wrapped() -> None:
    assert unwrap(wrapped("gr\u00fc\u00df dich")) == "gr\u00fc\u00df dich"
