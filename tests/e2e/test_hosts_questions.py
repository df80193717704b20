"""Questions of real servers, at hosts made with the SDK's client, in all four cells of revisions."""

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

CELLS = list(product(("legacy", "2026-07-28"), ("asking", "mrtr")))
TOOLS = {"asking": "ask", "mrtr": "greet"}


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
    """A hub with a server of each family, and an endpoint for hosts."""
    servers = {
        name: {
            "command": sys.executable,
            "args": [str(peer_scripts / f"{name}_server.py"), "stdio"],
            "protocol": revision,
        }
        for name, revision in (("asking", "2025-11-25"), ("mrtr", "2026-07-28"))
    }
    profiles = {"default": {"unattended_s": LIMIT_S}}  # a program counts as one however slow the machine is
    running = await start_shared_hub(servers, hub={"mcp_listen": "127.0.0.1:0"}, mcp={"profiles": profiles})
    await running.connected("asking", "mrtr")
    return running


@asynccontextmanager
async def host(hub: RunningHub, mode: Any, path: str, person: Person | None) -> AsyncGenerator[Client]:
    """A host of a family at an endpoint; without a person it does not declare that it can ask one."""
    token = json.loads((hub.data_dir / "client.json").read_text())["token"]
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=LIMIT_S) as http:
        transport = streamable_http_client(f"{hub.ready['mcp']}{path}", http_client=http)
        callback = person.elicit if person is not None else None
        async with Client(transport, mode=mode, elicitation_callback=callback) as client:
            yield client


def accepted(name: str) -> mcp.ElicitResult:
    return mcp.ElicitResult(action="accept", content={"name": name})


def text(result: Any) -> str:
    """What a tool said."""
    return result.content[0].text


@pytest.mark.parametrize(("mode", "server"), CELLS)
async def test_the_person_at_the_host_answers(hub: RunningHub, mode: str, server: str) -> None:
    person = Person(accepted("Ada"))
    with anyio.fail_after(LIMIT_S):
        async with host(hub, mode, f"/s/{server}", person) as client:
            assert text(await client.call_tool(TOOLS[server], {})).endswith("Ada")
    assert person.asked == ["Who are you?"]


@pytest.mark.parametrize(("mode", "server"), CELLS)
async def test_a_profile_says_which_server_asks(hub: RunningHub, mode: str, server: str) -> None:
    person = Person(accepted("Ada"))
    with anyio.fail_after(LIMIT_S):
        async with host(hub, mode, "", person) as client:
            assert text(await client.call_tool(f"{server}__{TOOLS[server]}", {})).endswith("Ada")
    assert person.asked == [f"{server} asks: Who are you?"]


@pytest.mark.parametrize("server", TOOLS)
async def test_the_inbox_answers_while_the_dialog_of_the_host_is_open(hub: RunningHub, server: str) -> None:
    """In a revision without requests of servers, a host that shows a dialog does not wait for the hub meanwhile."""
    person = Person()
    said: list[str] = []
    with anyio.fail_after(LIMIT_S):
        async with host(hub, "legacy", f"/s/{server}", person) as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                said.append(text(await client.call_tool(TOOLS[server], {})))

            tasks.start_soon(call)
            await person.sees.wait()
            (asked,) = await hub.asked()
            await asked.accept({"name": "Grace"})
    assert said[0].endswith("Grace")


@pytest.mark.parametrize(("mode", "server"), CELLS)
async def test_the_inbox_answers_where_the_host_has_no_dialog(hub: RunningHub, mode: str, server: str) -> None:
    said: list[str] = []
    with anyio.fail_after(LIMIT_S):
        async with host(hub, mode, f"/s/{server}", None) as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                said.append(text(await client.call_tool(TOOLS[server], {})))

            tasks.start_soon(call)
            (asked,) = await hub.asked()
            await asked.accept({"name": "Grace"})
    assert said[0].endswith("Grace")


@pytest.mark.parametrize(("mode", "server"), CELLS)
async def test_a_host_that_declines_for_its_person_leaves_the_question_to_the_inbox(
    hub: RunningHub, mode: str, server: str
) -> None:
    person = Person(mcp.ElicitResult(action="decline"))
    said: list[str] = []
    with anyio.fail_after(LIMIT_S):
        async with host(hub, mode, f"/s/{server}", person) as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                said.append(text(await client.call_tool(TOOLS[server], {})))

            tasks.start_soon(call)
            await person.sees.wait()
            (asked,) = await hub.watched(
                hub.client.inbox.watch(states=["open"]), lambda r: any(m.what == "not_counted" for m in r.moments)
            )
            await asked.accept({"name": "Grace"})
    assert said[0].endswith("Grace")
