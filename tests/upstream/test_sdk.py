"""The SDK reads messages where its decoder is replaced, and nowhere else. A new version that moves this fails here."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import mcp_types
import pytest
from mcp.client import sse, streamable_http

import hubbubd.upstream.http
from hubbubd.upstream.sdk import Decoder, Events, events_within_origin

from ..syntax import tree

READING = {"validate_json", "model_validate_json", "loads", "json", "from_json", "validate_python", "model_validate"}
"""Ways from text to a message."""


def readers(module: ModuleType) -> Iterator[str]:
    """Upon what a module calls one of them."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READING:
            yield f"{ast.unparse(node.func.value)}.{node.func.attr}"


@pytest.mark.parametrize(
    ("module", "adapter"), [(streamable_http, "jsonrpc_message_adapter"), (sse, "types.jsonrpc_message_adapter")]
)
def test_all_that_comes_over_http_is_read_by_the_decoder_that_is_replaced(module: ModuleType, adapter: str) -> None:
    others = {"InitializeResult.model_validate"}  # of a message that has been read
    assert {each for each in readers(module) if each not in others} == {f"{adapter}.validate_json"}
    value: object = module
    for name in adapter.split("."):
        value = getattr(value, name)
    assert isinstance(value, Decoder)


def test_each_stream_of_events_is_opened_by_what_is_replaced() -> None:
    nodes = ast.walk(ast.parse(inspect.getsource(streamable_http)))
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    opened = {call for call in calls if "EventSource" in call or "sse_" in call}
    ours = {"EventSource", "sse_within_origin", "self._handle_sse_response", "self._handle_sse_event"}
    assert opened <= ours
    assert {"EventSource", "sse_within_origin"} <= opened
    assert streamable_http.EventSource is Events
    assert streamable_http.sse_within_origin is events_within_origin


def test_of_the_names_that_a_transport_uses_only_the_decoder_is_another_one() -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(sse)))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "types"
    }
    assert "jsonrpc_message_adapter" in used
    for name in used - {"jsonrpc_message_adapter"}:
        assert getattr(sse.types, name) is getattr(mcp_types, name)


def test_nothing_else_of_a_library_is_replaced() -> None:
    """An assignment to an attribute of an imported module."""
    found: list[str] = []
    for path in Path(hubbubd.__file__).parent.rglob("*.py"):
        module = tree(path)
        modules = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(module)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if alias.name[0].islower()
        }
        for node in ast.walk(module):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                owner = target.value if isinstance(target, ast.Attribute) else None
                if isinstance(owner, ast.Name) and owner.id in modules:
                    found.append(f"{path.name}: {ast.unparse(target)}")
    of_streams = ("EventSource", "jsonrpc_message_adapter", "sse_within_origin")
    assert sorted(found) == ["sdk.py: sse.types", *(f"sdk.py: streamable_http.{name}" for name in of_streams)]
