"""Hosts made with the SDK's client, of both families of revisions: questions of real servers, tickets, approvals."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as mcp
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from .conftest import LIMIT_S, RunningHub

MODES = ("legacy", "2026-07-28")
TOOLS = {"asking": "ask", "mrtr": "greet"}
CELLS = pytest.mark.parametrize(("mode", "server"), list(product(MODES, TOOLS)))
RULES = [{"name": "echoes", "servers": ["plain"], "tools": ["echo"], "action": "ask"}]


@dataclass
class Person:
    """Sits at a host. `answer` is what it says to a form; None leaves the dialog open."""

    answer: mcp.ElicitResult | None = None
    asked: list[str] = field(default_factory=list[str])
    sees: anyio.Event = field(default_factory=anyio.Event)

    async def elicit(self, context: Any, params: Any) -> mcp.ElicitResult:
        self.asked.append(params.message)
        self.sees.set()
        if self.answer is None:
            await anyio.sleep_forever()
        assert self.answer is not None
        return self.answer


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Callable[..., Awaitable[RunningHub]], peer_scripts: Path) -> RunningHub:
    """A hub with a server that asks of each family, one that a rule is about, and an endpoint for hosts."""
    servers = {
        name: {
            "command": sys.executable,
            "args": [str(peer_scripts / f"{name}_server.py"), "stdio"],
            **({"protocol": revision} if revision else {}),
        }
        for name, revision in (("asking", "2025-11-25"), ("mrtr", "2026-07-28"), ("plain", None))
    }
    profiles: dict[str, Any] = {
        "default": {"unattended_s": LIMIT_S},  # a program counts as one however slow the machine is
        "quick": {"hold_s": 0},
        "asked": {"questions": {"approval": "both"}},
        "people": {"people": True},
    }
    return await start_shared_hub(
        servers,
        hub={"mcp_listen": "127.0.0.1:0"},
        mcp={"profiles": profiles},
        approvals={"rules": RULES},
        connected=True,
    )


@asynccontextmanager
async def host(hub: RunningHub, mode: Any, path: str = "", person: Any = None) -> AsyncGenerator[Client]:
    """A host of a family at an endpoint; without a person it does not declare that it can ask one."""
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {hub.token}"}, timeout=LIMIT_S) as http:
        transport = streamable_http_client(f"{hub.ready['mcp']}{path}", http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=person) as client:
            yield client


@asynccontextmanager
async def calling(client: Client, tool: str, **arguments: Any) -> AsyncGenerator[list[Any]]:
    """A call under way during the block; its result is in the list after it."""
    results: list[Any] = []

    async def call() -> None:
        results.append(await client.call_tool(tool, arguments))

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            yield results


def text(result: Any) -> str:
    """What a tool said."""
    return result.content[0].text


@CELLS
@pytest.mark.parametrize("path", ["/s/{server}", ""])
async def test_the_person_at_the_host_answers_and_a_profile_says_which_server_asks(
    hub: RunningHub, mode: str, server: str, path: str
) -> None:
    person = Person(mcp.ElicitResult(action="accept", content={"name": "Ada"}))
    tool, asks = (TOOLS[server], "") if path else (f"{server}__{TOOLS[server]}", f"{server} asks: ")
    with anyio.fail_after(LIMIT_S):
        async with host(hub, mode, path.format(server=server), person.elicit) as client:
            assert text(await client.call_tool(tool, {})).endswith("Ada")
    assert person.asked == [f"{asks}Who are you?"]


@pytest.mark.parametrize("server", TOOLS)
async def test_the_inbox_answers_while_the_dialog_of_the_host_is_open(hub: RunningHub, server: str) -> None:
    """In a revision without requests of servers, a host that shows a dialog does not wait for the hub meanwhile."""
    person = Person()
    async with (
        host(hub, "legacy", f"/s/{server}", person.elicit) as client,
        calling(client, TOOLS[server]) as results,
    ):
        await person.sees.wait()
        (asked,) = await hub.asked()
        await asked.accept({"name": "Grace"})
    assert text(results[0]).endswith("Grace")


@CELLS
async def test_a_host_gives_up_and_fetches_the_result_once_the_inbox_has_answered(
    hub: RunningHub, mode: str, server: str
) -> None:
    with anyio.fail_after(LIMIT_S):
        async with host(hub, mode, "/p/quick") as client:
            ticket = await client.call_tool(f"{server}__{TOOLS[server]}", {})
            assert ticket.is_error  # the SDK's tools have an output schema, and its client looks at it
            assert ticket.meta is not None
            call_id = ticket.meta["hubbub/callId"]
            again = await client.call_tool("hubbub_result", {"call_id": call_id})
            assert text(again) == text(ticket)
            (asked,) = await hub.asked()
            assert asked.id in text(ticket)
            await asked.accept({"name": "Grace"})
            await hub.client.calls.handle(call_id).wait()
            for _ in range(2):
                result = await client.call_tool("hubbub_result", {"call_id": call_id})
                assert text(result).endswith("Grace")
                assert result.structured_content == {"result": text(result)}


@pytest.mark.parametrize("mode", MODES)
async def test_the_person_at_the_host_approves_and_denies(hub: RunningHub, mode: str) -> None:
    answers: list[dict[str, Any]] = [{"decision": "approve"}, {"decision": "deny", "reason": "no"}]
    shown: list[str] = []

    async def person(_context: Any, params: Any) -> mcp.ElicitResult:
        shown.append(params.message)
        await anyio.sleep(1.5)  # a person reads it: what comes within a second counts as none
        return mcp.ElicitResult(action="accept", content=answers[len(shown) - 1])

    async with host(hub, mode, "/p/asked", person) as client:
        with anyio.fail_after(LIMIT_S):
            assert text(await client.call_tool("plain__echo", {"text": "one"})) == "one"
            denied = await client.call_tool("plain__echo", {"text": "two"})
        assert text(denied).startswith("A person said no to this call: no. ")
        assert '"text": "two"' in shown[1]


@pytest.mark.parametrize("mode", MODES)
async def test_a_model_asks_people(hub: RunningHub, mode: str) -> None:
    async with host(hub, mode, "/p/people") as client:
        async with calling(client, "hubbub_ask", message="Which?", choices=["red", "blue"]) as results:
            (asked,) = await hub.asked()
            await asked.accept({"answer": "red"})
        assert json.loads(text(results[0])) == {"answer": "red"}


@pytest.mark.parametrize("mode", MODES)
async def test_the_command_line_allows_for_the_session_what_a_host_suggests(hub: RunningHub, mode: str) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "git push:*"}]
    push = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
    edits = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    bash = {"tool_name": "Bash", "input": {"command": f"git push {mode}"}}
    async with host(hub, mode, "/p/people") as client:
        async with calling(client, "hubbub_permit", **bash, suggestions=json.dumps([edits, push])) as results:
            (asked,) = await hub.asked()
            assert asked.approval.suggestions[1].words == "allow Bash(git push:*) for this session"
            done = await hub.answer(asked, "--approve", "--suggestion", "1")
            assert done["answer"]["suggestions"] == [1]
        assert json.loads(text(results[0])) == {
            "behavior": "allow",
            "updatedInput": bash["input"],
            "updatedPermissions": [push],
        }
