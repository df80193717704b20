"""Handles with a real hub and real servers: over its death, beside other calls, and against people."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub_client import FailedPrecondition, HubbubError, PendingRequest

from .conftest import LIMIT_S, RunningHub

ROUNDS = 20


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path, shared_http_peer: Any) -> RunningHub:
    """A hub with the same server twice: over HTTP it is known which call asks, over stdio not always."""
    script = str(peer_scripts / "asking_server.py")
    options = {"protocol": "2025-11-25", "max_in_flight": 8}
    servers = {
        "http": {"url": f"{shared_http_peer([sys.executable, script, 'http']).url}/mcp", **options},
        "stdio": {"command": sys.executable, "args": [script, "stdio"], **options},
    }
    return await start_shared_hub(servers, connected=True)


async def ask(hub: RunningHub, server: str, message: str, **options: Any) -> str:
    return (await hub.client.call_tool(server, "ask", {"message": message}, **options)).text


async def test_of_two_calls_at_once_each_function_is_asked_what_its_own_call_asks(hub: RunningHub) -> None:
    asked: dict[str, list[str]] = {"Ada": [], "Bob": []}
    said: dict[str, str] = {}
    both = anyio.Event()

    async def call(name: str) -> None:
        async def answer(request: PendingRequest) -> Any:
            asked[name].append(request.request["message"])
            if all(asked.values()):
                both.set()
            await both.wait()
            return {"name": name}

        said[name] = await ask(hub, "http", f"for {name}", on_form=answer)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as calls:
            for name in asked:
                calls.start_soon(call, name)
    assert asked == {"Ada": ["for Ada"], "Bob": ["for Bob"]}
    assert said == {"Ada": "accept Ada", "Bob": "accept Bob"}


async def test_a_function_and_a_person_who_are_as_fast_give_one_answer(hub: RunningHub) -> None:
    refused: list[str] = []

    async def person(client: hubbub_client.Hub) -> None:
        async for event in client.inbox.watch(states=["open"]):
            if isinstance(event, hubbub_client.Upsert):
                try:
                    await event.record.accept({"name": "person"})
                except FailedPrecondition as error:
                    refused.append(error.reason)

    with anyio.fail_after(LIMIT_S):
        async with (
            hubbub_client.connect(data_dir=hub.data_dir, name="pia") as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(person, client)
            said = [
                await ask(hub, "http", f"round {round_}", on_form=lambda _: {"name": "function"})
                for round_ in range(ROUNDS)
            ]
            tasks.cancel_scope.cancel()
    assert {*said} <= {"accept person", "accept function"}
    assert {*refused} <= {"ALREADY_CLAIMED", "ALREADY_ANSWERED"}
    rounds = [each for each in await hub.client.inbox.list(server="http") if "round" in each.request["message"]]
    by = [each.answer["content"]["name"] for each in sorted(rounds, key=lambda each: each.created_at)]
    assert [f"accept {name}" for name in by] == said


async def test_while_a_function_thinks_nobody_else_answers_and_what_a_person_has_is_not_asked(hub: RunningHub) -> None:
    thinking, tried = anyio.Event(), anyio.Event()
    said: list[str] = []

    async def answer(_: PendingRequest) -> Any:
        thinking.set()
        await tried.wait()
        return {"name": "Ada"}

    async def call() -> None:
        said.append(await ask(hub, "http", "Thinking?", on_form=answer))

    with anyio.fail_after(LIMIT_S):
        async with hubbub_client.connect(data_dir=hub.data_dir, name="pia") as pia, anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await thinking.wait()
            (request,) = await pia.inbox.list(states=["open"])
            with pytest.raises(FailedPrecondition) as caught:
                await request.decline()
            assert caught.value.reason == "ALREADY_CLAIMED"
            tried.set()
    assert said == ["accept Ada"]


async def test_a_result_is_waited_for_while_the_hub_is_killed_and_comes_back(
    start_hub: Any, peer_scripts: Path
) -> None:
    servers = {
        "mrtr": {"command": sys.executable, "args": [str(peer_scripts / "mrtr_server.py"), "stdio"]},
        "asking": {
            "command": sys.executable,
            "args": [str(peer_scripts / "asking_server.py"), "stdio"],
            "protocol": "2025-11-25",
        },
    }
    first = await start_hub(servers, connected=True)
    thinking, asked = anyio.Event(), list[str]()
    outcome: dict[str, Any] = {}

    async def answer(request: PendingRequest) -> Any:
        asked.append(request.id)
        if len(asked) == 1:
            thinking.set()
            await anyio.sleep_forever()
        return {"name": "Ada"}

    async def wait(name: str, handle: Any) -> None:
        try:
            outcome[name] = (await handle.result()).text
        except HubbubError as error:
            outcome[name] = error.reason

    kept = await first.client.start_tool("mrtr", "greet", on_form=answer)
    lost = await first.client.start_tool("asking", "ask")
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "kept", kept)
            tasks.start_soon(wait, "lost", lost)
            await thinking.wait()
            await first.asked(2)
            await first.kill()
            await start_hub(servers)
    assert outcome == {"kept": "Hello Ada", "lost": "HUB_RESTARTED"}
    assert len(asked) == 2
    assert len({*asked}) == 1
