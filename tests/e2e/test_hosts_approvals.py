"""Approvals at hosts made with the SDK's client, over both families of revisions, with a real server."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as mcp
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from .conftest import LIMIT_S, RunningHub

MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
RULES = [{"name": "echoes", "servers": ["plain"], "tools": ["echo"], "action": "ask"}]
AGAIN = "Do not call it again unless the person asks for it."


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Callable[..., Awaitable[RunningHub]], peer_scripts: Path) -> RunningHub:
    """A hub that asks about a tool, with profiles for hosts that ask their person, wait shortly, or ask people."""
    server = {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}
    profiles: dict[str, Any] = {
        "asked": {"questions": {"approval": "both"}},
        "short": {"hold_s": 1},
        "people": {"people": True},
        "hurried": {"people": True, "hold_s": 1},
    }
    running = await start_shared_hub(
        {"plain": server},
        hub={"mcp_listen": "127.0.0.1:0"},
        mcp={"profiles": profiles},
        approvals={"rules": RULES},
    )
    await running.connected("plain")
    return running


@asynccontextmanager
async def host(hub: RunningHub, mode: Any, profile: str = "", person: Any = None) -> AsyncGenerator[Client]:
    """A host at a profile; without a person it does not declare that it can ask one."""
    token = json.loads((hub.data_dir / "client.json").read_text())["token"]
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=LIMIT_S) as http:
        path = f"/p/{profile}" if profile else ""
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


@MODES
async def test_a_call_is_approved_in_time(hub: RunningHub, mode: str) -> None:
    async with host(hub, mode) as client:
        async with calling(client, "plain__echo", text="one") as results:
            (asked,) = await hub.asked()
            await asked.approve()
        assert text(results[0]) == "one"


@MODES
async def test_a_call_is_made_as_it_was_changed(hub: RunningHub, mode: str) -> None:
    async with host(hub, mode) as client:
        async with calling(client, "plain__echo", text="one") as results:
            (asked,) = await hub.asked()
            await asked.approve({"text": "two"})
        assert text(results[0]) == "two"


@MODES
async def test_the_model_reads_why_a_call_was_denied(hub: RunningHub, mode: str) -> None:
    async with host(hub, mode) as client:
        async with calling(client, "plain__echo", text="one") as results:
            (asked,) = await hub.asked()
            await asked.deny("not now")
        assert results[0].is_error
        assert text(results[0]) == f"A person said no to this call: not now. {AGAIN}"


@MODES
async def test_a_call_is_approved_after_the_ticket(hub: RunningHub, mode: str) -> None:
    async with host(hub, mode, "short") as client:
        with anyio.fail_after(LIMIT_S):
            ticket = await client.call_tool("plain__echo", {"text": "late"})
            (asked,) = await hub.asked()
            assert asked.id in text(ticket)
            await asked.approve()
            await hub.call(asked.call_id)
            fetched = await client.call_tool("hubbub_result", {"call_id": asked.call_id})
        assert text(fetched) == "late"


@MODES
async def test_the_person_at_the_host_approves_and_denies(hub: RunningHub, mode: str) -> None:
    answers = [
        mcp.ElicitResult(action="accept", content={"decision": "approve"}),
        mcp.ElicitResult(action="accept", content={"decision": "deny", "reason": "no"}),
    ]
    shown: list[str] = []

    async def person(_context: Any, params: Any) -> mcp.ElicitResult:
        shown.append(params.message)
        await anyio.sleep(1.5)  # a person reads it: what comes within a second counts as none
        return answers[len(shown) - 1]

    async with host(hub, mode, "asked", person) as client:
        with anyio.fail_after(LIMIT_S):
            assert text(await client.call_tool("plain__echo", {"text": "one"})) == "one"
            denied = await client.call_tool("plain__echo", {"text": "two"})
        assert text(denied) == f"A person said no to this call: no. {AGAIN}"
        assert '"text": "two"' in shown[1]


@MODES
async def test_a_model_asks_people(hub: RunningHub, mode: str) -> None:
    async with host(hub, mode, "people") as client:
        async with calling(client, "hubbub_ask", message="Which?", choices=["red", "blue"]) as results:
            (asked,) = await hub.asked()
            await asked.accept({"answer": "red"})
        assert json.loads(text(results[0])) == {"answer": "red"}


@MODES
async def test_a_host_asks_for_permission_and_takes_the_question_over(hub: RunningHub, mode: str) -> None:
    bash = {"tool_name": "Bash", "input": {"command": f"ls {mode}"}}
    async with host(hub, mode, "hurried") as client:
        with anyio.fail_after(LIMIT_S):
            first = json.loads(text(await client.call_tool("hubbub_permit", bash)))
            assert first["behavior"] == "deny"
            assert "ask again" in first["message"]
            (asked,) = await hub.asked()
            await asked.approve()
            await hub.call(asked.call_id)
            second = json.loads(text(await client.call_tool("hubbub_permit", bash)))
        assert second == {"behavior": "allow", "updatedInput": bash["input"]}


@MODES
async def test_the_command_line_allows_for_the_session_what_a_host_suggests(hub: RunningHub, mode: str) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "git push:*"}]
    push = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
    edits = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    bash = {"tool_name": "Bash", "input": {"command": f"git push {mode}"}}
    async with host(hub, mode, "people") as client:
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
