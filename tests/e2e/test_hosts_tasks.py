"""Tasks of hosts, asked by hand over HTTP, before and after the hub is killed."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .conftest import LIMIT_S, RunningHub
from .test_mcp_endpoint import NOW, OWN, Endpoint, messages

META: dict[str, Any] = {
    f"{OWN}protocolVersion": NOW,
    f"{OWN}clientCapabilities": {"elicitation": {}, "extensions": {f"{OWN}tasks": {}}},
}
NAME = {"action": "accept", "content": {"name": "Ada"}}
AGE = {"action": "accept", "content": {"age": 36}}
CALLED: dict[str, Any] = {"name": "two_rounds", "arguments": {}}


@dataclass
class Hubs:
    """Hubs that follow each other, with a server that notes each answer it gets."""

    start_hub: Callable[..., Awaitable[RunningHub]]
    http: httpx2.AsyncClient
    script: Path
    journal: Path

    async def next(self) -> tuple[RunningHub, Endpoint]:
        """The next hub, and its endpoint for the server."""
        server = {
            "command": sys.executable,
            "args": [str(self.script), "stdio"],
            "env": {"JOURNAL": str(self.journal)},
        }
        hub = await self.start_hub({"mrtr": server}, hub={"mcp_listen": "127.0.0.1:0"})
        await hub.connected("mrtr")
        return hub, Endpoint(f"{hub.ready['mcp']}/s/mrtr", self.http, {"authorization": f"Bearer {hub.token}"})

    @property
    def got(self) -> list[Any]:
        """What the server has got, in all its processes."""
        return [json.loads(line)["answer"] for line in self.journal.read_text().splitlines()]


@pytest.fixture
async def hubs(start_hub: Any, peer_scripts: Path, tmp_path: Path) -> AsyncIterator[Hubs]:
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        yield Hubs(start_hub, http, peer_scripts / "mrtr_server.py", tmp_path / "journal.jsonl")


async def now(endpoint: Endpoint, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request of a host that declares the extension."""
    return messages(await endpoint.now(method, {**params, "_meta": META}))[-1]["result"]


async def before(endpoint: Endpoint, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request in a session."""
    return messages(await endpoint.before(method, params))[-1]["result"]


async def test_a_task_of_the_extension_is_answered_and_fetched_after_kill_9(hubs: Hubs) -> None:
    first, endpoint = await hubs.next()
    task_id = (await now(endpoint, "tools/call", **CALLED))["taskId"]
    await first.kill()
    second, endpoint = await hubs.next()
    for answer in (NAME, AGE):
        await second.asked()
        task = await now(endpoint, "tasks/get", taskId=task_id)
        (key,) = task["inputRequests"]
        await now(endpoint, "tasks/update", taskId=task_id, inputResponses={key: answer})
        await second.request(key, delivery="delivered")
    await second.call(task_id)
    ended = await now(endpoint, "tasks/get", taskId=task_id)
    assert (ended["status"], json.loads(ended["result"]["content"][0]["text"])) == (
        "completed",
        {"name": NAME, "age": AGE},
    )
    await second.kill()
    _, endpoint = await hubs.next()
    assert await now(endpoint, "tasks/get", taskId=task_id) == ended
    assert hubs.got == [NAME, AGE]


async def test_a_requested_task_is_listed_and_its_result_waited_for_after_kill_9(hubs: Hubs) -> None:
    first, endpoint = await hubs.next()
    task = (await before(await endpoint.session(), "tools/call", **CALLED, task={"ttl": 1}))["task"]
    await first.asked()
    await first.kill()
    second, endpoint = await hubs.next()
    session = await endpoint.session()
    (listed,) = (await before(session, "tasks/list"))["tasks"]
    assert (listed["taskId"], listed["createdAt"]) == (task["taskId"], task["createdAt"])
    waiting = asyncio.create_task(before(session, "tasks/result", taskId=task["taskId"]))
    for answer in (NAME, AGE):
        (asked,) = await second.asked()
        await second.answer(asked, "--accept", json.dumps(answer["content"]))
    ended = await waiting
    assert json.loads(ended["content"][0]["text"]) == {"name": NAME, "age": AGE}
    await second.kill()
    _, endpoint = await hubs.next()
    assert await before(await endpoint.session(), "tasks/result", taskId=task["taskId"]) == ended
    assert hubs.got == [NAME, AGE]
