"""A hub that is asked to stop: what is under way gets its time, all get an end, and nothing is left behind."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbub_client import HubbubError, Unavailable

from .conftest import LIMIT_S, RunningHub

ADA = '{"name": "Ada"}'


@pytest.fixture
def servers(peer_scripts: Path) -> dict[str, Any]:
    """A server that asks, with room for several calls."""
    command = {"command": sys.executable, "args": [str(peer_scripts / "asking_server.py"), "stdio"]}
    return {"asking": {**command, "protocol": "2025-11-25", "max_in_flight": 4}}


async def refused(hub: RunningHub) -> Unavailable:
    """Why the hub takes no new call, once it does not."""
    with anyio.fail_after(LIMIT_S):
        while True:
            try:
                await hub.client.call_tool("asking", "count", {"steps": 1})
            except Unavailable as error:
                return error


async def ended(hub: RunningHub) -> int:
    with anyio.fail_after(LIMIT_S):
        return await hub.process.wait()


def store_files(hub: RunningHub) -> set[str]:
    """The files of the store; one that was closed has no journal."""
    return {file.name for file in hub.data_dir.glob("hubbub.db*")} - {"hubbub.db.lock"}


async def test_a_call_under_way_may_end_while_new_ones_are_refused_and_its_question_can_still_be_answered(
    start_hub: Any, servers: Any
) -> None:
    hub = await start_hub(servers, hub={"shutdown_grace_s": LIMIT_S})
    await hub.connected("asking")
    said: list[Any] = []

    async def ask(call_id: str) -> None:
        said.append(await hub.client.call_tool("asking", "ask", call_id=call_id))

    async with anyio.create_task_group() as calls:
        calls.start_soon(ask, "waited-for")
        await hub.asked()
        detached = await hub.client.start_tool("asking", "ask")
        asked, other = await hub.asked(2)
        hub.process.terminate()
        error = await refused(hub)
        assert (error.code.name, error.reason) == ("UNAVAILABLE", "SHUTTING_DOWN")
        assert not (await hub.client.calls.get(detached.id)).ended
        await hub.answer(asked, "--accept", ADA)
        await hub.answer(other, "--accept", ADA)
        assert await ended(hub) == 0
    assert said[0].text == "accept Ada"
    assert store_files(hub) == {"hubbub.db"}
    again = await start_hub()
    assert (await again.client.calls.get(detached.id)).result["content"][0]["text"] == "accept Ada"
    assert (await again.client.inbox.get(asked.id)).delivery == "delivered"


async def test_a_second_signal_ends_the_grace_at_once_and_cleanly(start_hub: Any, servers: Any) -> None:
    hub = await start_hub(servers, hub={"shutdown_grace_s": 100 * LIMIT_S})
    await hub.connected("asking")
    errors: list[HubbubError] = []

    async def sleep() -> None:
        try:
            await hub.client.call_tool("asking", "sleep", {"name": "long"}, call_id="waited-for")
        except HubbubError as error:
            errors.append(error)

    async with anyio.create_task_group() as calls:
        calls.start_soon(sleep)
        await hub.client.start_tool("asking", "sleep", {"name": "d"}, call_id="detached")
        await hub.call("waited-for", "in_progress")
        await hub.call("detached", "in_progress")
        hub.process.terminate()
        assert (await refused(hub)).reason == "SHUTTING_DOWN"
        assert hub.process.returncode is None
        hub.process.send_signal(signal.SIGINT)
        assert await ended(hub) == 0
    assert [error.reason for error in errors] == ["SHUTTING_DOWN"]
    assert store_files(hub) == {"hubbub.db"}
    again = await start_hub()
    for call_id in ("waited-for", "detached"):
        assert (await again.client.calls.get(call_id)).error.code == "SHUTTING_DOWN"


async def test_an_idle_client_notices_a_hub_that_stands_still_and_misses_nothing_when_it_goes_on(
    start_hub: Any, servers: Any
) -> None:
    hub = await start_hub(servers)
    await hub.connected("asking")
    # A quiet watch has a bookmark every 5 s. The connection stays open, so that silence is all there is to notice.
    async with hubbub_client.connect(data_dir=hub.data_dir, silence_s=6, connect_timeout_s=0.5) as client:
        watch = client.inbox.watch()
        assert (await anext(watch)).type == "synced"
        hub.process.send_signal(signal.SIGSTOP)
        going_on = asyncio.create_task(until_asked(watch))
        errors: list[Unavailable] = []
        with anyio.fail_after(LIMIT_S):
            while not errors:
                with anyio.move_on_after(1):  # until the silence is noticed, the hub may just be slow
                    try:
                        await client.admin.status()
                    except Unavailable as error:
                        errors.append(error)
            assert errors[0].reason == "HUB_UNREACHABLE"
            hub.process.send_signal(signal.SIGCONT)
            call = await hub.client.start_tool("asking", "ask")
            seen = await going_on
        assert seen[-1] == call.id
        assert "reset" not in seen
        await watch.aclose()


async def until_asked(watch: Any) -> list[str]:
    """What a watch shows up to the first question, whose call comes last."""
    seen: list[str] = []
    async for event in watch:
        seen.append(event.record.call_id if event.type == "upsert" else event.type)
        if event.type == "upsert":
            break
    return seen
