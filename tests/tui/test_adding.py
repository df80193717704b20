"""A server is added by a dialog, on a scripted hub."""

from typing import Any

import anyio
import pytest

from hubbub.v1 import server_pb2
from hubbub_tui.screens.new_server import parse_spec

from ..clients.conftest import Refusal, ScriptedHub, hub
from .conftest import LIMIT_S, at_terminal
from .test_claims import script

__all__ = ["hub"]


async def test_a_server_is_added_by_its_command_and_a_refusal_can_be_mended(hub: ScriptedHub) -> None:
    script(hub)
    refusals = [
        Refusal("INVALID_ARGUMENT", "COMMAND_NOT_ALLOWED", "no", {}, (("spec.command", "'uvx' is not allowed"),))
    ]

    def add(asked: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return server_pb2.AddServerResponse(server=server_pb2.Server(name=asked.spec.name))

    hub.replies["AddServer"] = add
    async with at_terminal(hub, notices=True) as ann:
        await ann.press("2")
        await ann.sees("a Add")
        await ann.press("a")
        await ann.sees("Command or URL", "hubbub servers add --help")
        await ann.press("ctrl+s")
        await ann.sees("✗ give it a name")
        await ann.types("time")
        await ann.press("enter")
        await ann.types("uvx mcp-server-time --zone 'Europe/Vienna'")
        await ann.press("enter")
        await ann.sees("✗ 'uvx' is not allowed")
        await ann.press("ctrl+s")
        await ann.sees("time is added")
        await ann.no_longer_sees("Command or URL")
    spec = hub.requests("AddServer")[-1].spec
    assert (spec.name, spec.stdio.command, [*spec.stdio.args]) == (
        "time",
        "uvx",
        ["mcp-server-time", "--zone", "Europe/Vienna"],
    )


async def test_a_server_at_a_url_has_headers_and_a_program_has_variables(hub: ScriptedHub) -> None:
    script(hub)
    added, let_go = anyio.Event(), anyio.Event()

    async def add(asked: Any) -> Any:
        added.set()
        await let_go.wait()
        return server_pb2.AddServerResponse(server=server_pb2.Server(name=asked.spec.name))

    hub.replies["AddServer"] = add
    async with at_terminal(hub) as ann:
        await ann.press("2", "a")
        await ann.sees("Environment variables, NAME=VALUE a line")
        await ann.types("search")
        await ann.press("tab")
        await ann.types("https://mcp.example.com/mcp")
        await ann.sees("Headers, NAME: VALUE a line")
        await ann.press("tab")
        await ann.types("Authorization")
        await ann.press("ctrl+s")
        await ann.sees("✗ headers: line 1 is not NAME: VALUE", "Add (ctrl+s)")
        await ann.types("Authorization: Bearer a:b\n\nx-team: one")
        await ann.press("ctrl+s")
        with anyio.fail_after(LIMIT_S):
            await added.wait()
        await ann.press("ctrl+s")
        let_go.set()
        await ann.no_longer_sees("Command or URL")
    (asked,) = hub.requests("AddServer")
    assert dict(asked.spec.http.headers) == {"Authorization": "Bearer a:b", "x-team": "one"}
    spec = parse_spec("a", "npx x", "TOKEN = a=b\n")
    assert (spec.env, spec.headers) == ({"TOKEN": "a=b"}, None)
    with pytest.raises(ValueError, match="environment variables: line 2 is not NAME=VALUE"):
        parse_spec("a", "npx x", "A=\nB")


def test_a_server_is_a_url_or_a_command() -> None:
    assert parse_spec("a", "https://mcp.example.com/mcp").url == "https://mcp.example.com/mcp"
    assert (parse_spec("a", "npx -y 'a b'").command, parse_spec("a", "npx -y 'a b'").args) == ("npx", ["-y", "a b"])
    for name, reached, says in (("", "x", "a name"), ("a", "", "a command, or a URL"), ("a", "x 'y", "cannot be read")):
        with pytest.raises(ValueError, match=says):
            parse_spec(name, reached)
