"""Agents and people at one inbox: each question is answered once, and what a dead agent had goes to the others."""

import json
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
import pytest
from anyio.abc import Process

import hubbub_client
from hubbub_client import FailedPrecondition, Upsert

from .conftest import BIN, LIMIT_S, POLL_S, RunningHub, child, environment

SERVERS = ("one", "two", "three")
EACH = 100
HELD = 5

# The errors of a person who comes too late, or at the wrong moment.
REFUSALS = {"ALREADY_CLAIMED", "ALREADY_ANSWERED", "CLAIM_LOST"}

STATIC = """
[[rule]]
says = "question [0-9]*7$"
leave = true

[[rule]]
kind = "elicitation_form"
fields = {{ answer = "string" }}
accept = {{ answer = "{name}" }}

[[rule]]
kind = "sampling"
text = "{name}"
"""

# Answers none of the later ones; the program ends when nobody reads it any more.
LEFT = re.compile(r"question \d*7\"")
LATER = re.compile(r"question [1-9]\d")
STUCK = """
[[rule]]
says = "question [1-9][0-9]"
command = ["sh", "-c", "while sleep 0.1; do echo; done"]
timeout_s = 600
"""


@dataclass
class Person:
    """Somebody who answers whatever is free."""

    name: str
    answered: set[str] = field(default_factory=set[str])
    refused: Counter[str] = field(default_factory=Counter[str])

    async def answer_all(self, hub: RunningHub) -> None:
        async with (
            hubbub_client.connect(data_dir=hub.data_dir, name=self.name) as client,
            aclosing(client.inbox.watch(states=["open"])) as events,
        ):
            async for event in events:
                if isinstance(event, Upsert) and event.record.claim is None:
                    await self.answer(client, event.record)

    async def answer(self, client: hubbub_client.Hub, request: hubbub_client.PendingRequest) -> None:
        try:
            claims = len(self.answered) % 2
            mine = await client.inbox.claim(request.id, 30) if claims else request
            if request.kind == "sampling":
                await mine.reply_text(self.name)
            else:
                await mine.accept({"answer": self.name})
            self.answered.add(request.id)
        except FailedPrecondition as refusal:
            self.refused[refusal.reason] += 1


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def agent_command(hub: RunningHub, *words: str) -> list[str]:
    return [str(BIN / "hubbub"), "--data-dir", str(hub.data_dir), *words]


async def start_agent(hub: RunningHub, stack: AsyncExitStack, directory: Path, name: str, rules: str) -> Process:
    (directory / f"{name}.toml").write_text(rules.format(name=name))
    words = ["--as", name, "agent", "--rules", str(directory / f"{name}.toml"), "--capacity", str(HELD)]
    command = agent_command(hub, *words, "--audit", str(directory / f"{name}.audit"))
    return await stack.enter_async_context(child(command, stdin=DEVNULL, stdout=PIPE, env=environment()))


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def is_stuck(request: hubbub_client.PendingRequest) -> bool:
    """Whether the agent that will be killed has it, and cannot answer it."""
    return bool(request.claim and request.claim.by == "doomed" and LATER.search(json.dumps(request.request)))


async def answered_by(hub: RunningHub, name: str) -> set[str]:
    """The ids of the requests that somebody has answered, as the hub says."""
    return {request.id for request in await hub.client.inbox.list() if request.answered_by == name}


def author(response: dict[str, Any]) -> str:
    """Who has written what a server received."""
    content = response["result"]["content"]
    return str(content.get("answer") or content.get("text"))


async def test_three_agents_and_two_people_answer_each_question_once_though_an_agent_is_killed(
    start_hub: Any, peer_scripts: Path, tmp_path: Path, stack: AsyncExitStack
) -> None:
    journal = tmp_path / "journal"
    script = str(peer_scripts / "crowd_server.py")
    hub = await start_hub(
        {
            name: {"command": sys.executable, "args": ["-S", script, name], "env": {"JOURNAL": str(journal)}}
            for name in SERVERS
        }
    )
    await hub.connected(*SERVERS)
    agents = {
        name: await start_agent(hub, stack, tmp_path, name, rules)
        for name, rules in {"ada": STATIC, "bea": STATIC, "doomed": STUCK + STATIC}.items()
    }
    people = [Person("pia"), Person("pio")]
    with anyio.fail_after(LIMIT_S):
        while (await hub.client.admin.status()).watchers < len(agents):
            await anyio.sleep(POLL_S)
        async with anyio.create_task_group() as tasks:
            for person in people:
                tasks.start_soon(person.answer_all, hub)
            many = {"name": "ask", "arguments": {"count": EACH}}
            calls = [await hub.client.start(name, "tools/call", many) for name in SERVERS]
            held = await hub.watched(hub.client.inbox.watch(states=["open"]), is_stuck, HELD)
            agents["doomed"].send_signal(signal.SIGKILL)
            for call in calls:
                await hub.call(call.id, "completed")
            # Whose answer was the last one hears of it after the server has.
            for person in people:
                while person.answered != await answered_by(hub, person.name):
                    await anyio.sleep(POLL_S)
            tasks.cancel_scope.cancel()

    received = lines(journal)
    assert Counter((line["server"], line["answer"]["id"]) for line in received).most_common(1)[0][1] == 1
    assert Counter(line["server"] for line in received) == dict.fromkeys(SERVERS, EACH)
    requests = {request.id: request for request in await hub.client.inbox.list()}
    assert Counter(author(line["answer"]) for line in received) == Counter(r.answered_by for r in requests.values())
    assert all(requests[request.id].answered_by != "doomed" for request in held)
    for name, agent in agents.items():
        if name != "doomed":
            agent.send_signal(signal.SIGTERM)
            with anyio.fail_after(LIMIT_S):
                assert await agent.wait() == 0
        audit = {line["request"] for line in lines(tmp_path / f"{name}.audit") if line["outcome"] == "answered"}
        told = {request.id for request in requests.values() if request.answered_by == name}
        assert audit <= told if name == "doomed" else audit == told, name
    left = [r for r in requests.values() if LEFT.search(json.dumps(r.request))]
    assert len(left) == 30
    assert {request.answered_by for request in left} <= {person.name for person in people}
    for person in people:
        assert person.answered == {request.id for request in requests.values() if request.answered_by == person.name}
        assert set(person.refused) <= REFUSALS
