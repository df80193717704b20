"""The client library as programs use it: workers, handlers, and the form without async."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub_client import sync

from .conftest import LIMIT_S, RunningHub


@pytest.fixture
def servers(peer_scripts: Path) -> dict[str, Any]:
    """A server that asks for a name."""
    script = str(peer_scripts / "questions_server.py")
    return {"asking": {"command": sys.executable, "args": ["-I", "-S", script], "max_in_flight": 8}}


@pytest.fixture
async def hub(start_hub: Any, servers: dict[str, Any]) -> RunningHub:
    """A hub that is connected to it."""
    hub = await start_hub(servers)
    await hub.connected("asking")
    return hub


@pytest.fixture
async def tasks() -> AsyncIterator[Any]:
    async with anyio.create_task_group() as group:
        with anyio.fail_after(LIMIT_S):
            yield group
        group.cancel_scope.cancel()


async def start(hub: RunningHub, tool: str = "two") -> str:
    return (await hub.client.start_tool("asking", tool)).id


async def answers(hub: RunningHub, call_id: str) -> Any:
    call = await hub.call(call_id, "completed")
    return json.loads(call.result["content"][0]["text"])


async def test_handlers_answer_what_is_theirs_and_leave_the_rest_to_people(hub: RunningHub, tasks: Any) -> None:
    passed = anyio.Event()

    @hub.client.on_form(server="asking")
    async def name(request: hubbub_client.PendingRequest) -> dict[str, str] | None:
        if request.request["message"] == "question a":
            return {"name": "Ada"}
        passed.set()
        return None

    tasks.start_soon(hub.client.serve)
    call_id = await start(hub)
    # Before that, the request has no claim either: the handler has not come to it.
    await passed.wait()
    (left,) = await hub.watched(
        hub.client.inbox.watch(states=["open"]), lambda r: r.request["message"] == "question b" and r.claim is None
    )
    await left.decline()
    got = await answers(hub, call_id)
    assert got["a"]["result"] == {"action": "accept", "content": {"name": "Ada"}}
    assert got["b"]["result"] == {"action": "decline"}


async def test_a_handler_that_fails_leaves_its_request_to_others_and_goes_on(hub: RunningHub, tasks: Any) -> None:
    failures: list[tuple[str, str]] = []

    @hub.client.on_form()
    async def name(request: hubbub_client.PendingRequest) -> dict[str, Any]:
        if request.request["message"] == "question a":
            raise RuntimeError("no idea")
        return {"name": 7}

    async def serve() -> None:
        await hub.client.serve(on_error=lambda request, error: failures.append((request.id, str(error))))

    tasks.start_soon(serve)
    call_id = await start(hub)
    asked = await hub.asked(2)
    with anyio.fail_after(LIMIT_S):
        while len(failures) < 2:
            await anyio.sleep(0.02)
    assert {request_id for request_id, _ in failures} == {request.id for request in asked}
    assert any("no idea" in why for _, why in failures)
    free = await hub.watched(hub.client.inbox.watch(states=["open"]), lambda r: r.claim is None, 2)
    for request in free:
        await request.accept({"name": "by a person"})
    await answers(hub, call_id)


async def test_a_worker_stops_what_it_does_for_a_request_that_is_withdrawn(hub: RunningHub, tasks: Any) -> None:
    begun, stopped = anyio.Event(), anyio.Event()

    async def think(_: hubbub_client.PendingRequest) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    tasks.start_soon(hub.client.inbox.work, think)
    await start(hub, "take_back")
    await begun.wait()
    await start(hub, "cancel")
    await stopped.wait()


async def test_a_worker_goes_on_over_a_restart_of_the_hub(
    hub: RunningHub, start_hub: Any, servers: dict[str, Any], tasks: Any
) -> None:
    send, done = anyio.create_memory_object_stream[str](8)

    async def accept(request: hubbub_client.PendingRequest) -> None:
        await request.accept({"name": "Ada"})
        send.send_nowait(request.id)

    async def two_done() -> set[str]:
        # The call may end before the worker hears that its answer was taken.
        return {await done.receive(), await done.receive()}

    tasks.start_soon(lambda: hub.client.inbox.work(accept, capacity=4))
    await answers(hub, await start(hub))
    before = await two_done()
    await hub.kill()
    hub = await start_hub(servers)
    await hub.connected("asking")
    await answers(hub, await start(hub))
    assert len(before | await two_done()) == 4


async def test_a_script_without_async_calls_watches_and_answers(hub: RunningHub) -> None:
    def script() -> list[Any]:
        with sync.connect(data_dir=hub.data_dir, name="script") as plain:
            assert [server.name for server in plain.servers.list()] == ["asking"]
            call = plain.start_tool("asking", "two")
            asked: dict[str, Any] = {}
            for event in plain.inbox.watch(states=["open"]):
                if isinstance(event, hubbub_client.Upsert):
                    asked[event.record.id] = event.record
                if len(asked) == 2:
                    break
            answered = [plain.inbox.answer(each, accept={"name": "Ada"}) for each in asked]
            assert {request.answered_by for request in answered} == {"script"}
            with pytest.raises(hubbub_client.FailedPrecondition):
                plain.inbox.answer(answered[0].id, decline=True)
            for event in plain.calls.watch(ids=[call.id]):
                if isinstance(event, hubbub_client.Upsert) and event.record.ended:
                    return [event.record.state, plain.admin.status().watchers >= 1]
            raise AssertionError("a watch does not end")

    with anyio.fail_after(LIMIT_S):
        assert await anyio.to_thread.run_sync(script) == ["completed", True]


LIBRARY = str(Path(__file__).parents[2] / "docs" / "library.md")
EXAMPLES = """
import doctest, importlib, sys

(source,) = sys.argv[1:]
if source.endswith(".md"):
    outcome = doctest.testfile(source, module_relative=False)
else:
    outcome = doctest.testmod(importlib.import_module(source), optionflags=doctest.NORMALIZE_WHITESPACE)
if outcome.failed:
    sys.exit(1)
print(outcome.attempted)
"""
"""Runs the examples of a module or a document; what differs is printed."""


@pytest.mark.parametrize(
    "source", ["hubbub_client.sync", "hubbub_client.hub", LIBRARY], ids=["sync", "hub", "document"]
)
async def test_the_examples_in_the_documentation_run(source: str, start_hub: Any, mcp1_python: str) -> None:
    time = {"command": mcp1_python, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}
    hub = await start_hub({"time": time}, connected=True)
    # In a process of their own, as a reader runs them: gRPC hands what comes late to another loop of its process.
    program = [sys.executable, "-c", EXAMPLES, source]
    ran = await anyio.run_process(program, env={**os.environ, "HUBBUB_DATA_DIR": str(hub.data_dir)}, check=False)
    assert ran.returncode == 0, ran.stdout.decode() + ran.stderr.decode()
    assert int(ran.stdout) > 0
