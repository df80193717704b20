"""What is learned of one process of a host over HTTP counts for no other, in the revision without sessions."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ..runtime.conftest import FORM
from ..runtime.peer import Outcome, Sent
from .conftest import LIMIT_S
from .mcp_host import NEW, Host, Stage, envelope, request, stage, tool

PROFILES = {"default": {"unattended_s": 60, "hold_s": 0, "on_hold_end": "error"}}
"""A program answers faster than people, whatever a busy machine takes; and nobody waits for people."""

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
TERMINAL: dict[str, Any] = {**FORMS, "extensions": {"io.example/a-terminal": {}}}


async def asks(sent: Sent) -> Outcome:
    """A server that asks a question in each call."""
    await sent.ask("elicitation/create", FORM, on_wire=True).answered()
    return {"content": []}


@dataclass
class Process:
    """One process of a program, with connections of its own. It declines by itself whatever it is asked."""

    host: Host
    about: dict[str, Any] = field(default_factory=lambda: FORMS)

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """A request, with what the program says of itself."""
        meta = {
            "io.modelcontextprotocol/clientCapabilities": self.about,
            "io.modelcontextprotocol/clientInfo": {"name": "a-program", "version": "1"},
        }
        return {**message, "params": {**message["params"], "_meta": meta}}

    async def is_asked(self) -> bool:
        """Make a call; return whether the process was asked what the server asks in it."""
        response = (await self.host.new(self.message(tool(1)))).json()
        if "error" in response:
            assert response["error"]["data"]["reason"] == "ANSWER_AWAITED"
            return False
        (key,) = response["result"]["inputRequests"]
        again = self.message(tool(2))
        again["params"]["requestState"] = response["result"]["requestState"]
        again["params"]["inputResponses"] = {key: {"action": "decline"}}
        await self.host.new(again)
        return True


@dataclass
class Program:
    """A program that is run many times, by one principal."""

    stage: Stage
    stack: AsyncExitStack

    async def run(self, about: dict[str, Any] = FORMS) -> Process:
        """Begin another process of it."""
        client = httpx2.AsyncClient(base_url=self.stage.base, trust_env=False, timeout=LIMIT_S)
        return Process(Host(await self.stack.enter_async_context(client)), about)


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    """A program at a hub whose server asks."""
    async with stage(tmp_path, mcp_profiles=PROFILES) as stage_, AsyncExitStack() as stack:
        stage_.peers["one"].behaviour = asks
        yield Program(stage_, stack)


async def test_where_nobody_is_is_known_of_one_process_and_of_no_other(program: Program) -> None:
    first, second = await program.run(), await program.run()
    assert [await first.is_asked(), await first.is_asked(), await second.is_asked()] == [True, False, True]


async def test_a_process_that_declares_something_else_is_another_one(program: Program) -> None:
    process = await program.run()
    assert [await process.is_asked(), await process.is_asked()] == [True, False]
    process.about = TERMINAL
    assert await process.is_asked()


async def test_a_process_that_listens_is_known_on_all_its_connections_as_long_as_it_is_the_only_one(
    program: Program,
) -> None:
    listening, again, other = await program.run(), await program.run(), await program.run()
    message = envelope(listening.message(request(9, "subscriptions/listen", notifications={})))
    headers = {"mcp_protocol_version": NEW, "mcp_method": "subscriptions/listen"}
    async with listening.host.stream("POST", message, **headers) as events:
        assert await events.next() is not None
        assert [await listening.is_asked(), await again.is_asked()] == [True, False]
        async with other.host.stream("POST", message, **headers) as others:
            assert await others.next() is not None
            assert await other.is_asked()
    assert await again.is_asked()
