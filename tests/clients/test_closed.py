"""What becomes of a connection's work when its block ends, and what the errors then say."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.from_thread
import pytest

from hubbub.v1 import common_pb2, inbox_pb2
from hubbub_client import Cancelled, FailedPrecondition, HubbubError, connect, sync

LIMIT_S = 60
STEP = inbox_pb2.WatchPendingRequestsResponse(synced=common_pb2.WatchSynced())


@pytest.fixture
def at_work(hub: Any) -> anyio.Event:
    """Set once the hub has a call, or a watch, that goes on."""
    begun = anyio.Event()

    async def call(_: Any) -> Any:
        begun.set()
        await anyio.sleep_forever()

    async def watch(_: Any) -> AsyncIterator[Any]:
        yield STEP
        begun.set()
        await anyio.sleep_forever()

    hub.replies["CallMethod"], hub.streams["WatchPendingRequests"] = call, watch
    return begun


async def followed(client: Any) -> None:
    async for _ in client.inbox.watch():
        pass


@pytest.mark.parametrize("way", ["call", "list", "watch"])
async def test_after_the_block_everything_says_at_once_that_the_connection_is_closed(hub: Any, way: str) -> None:
    async with connect(data_dir=hub.data_dir, connect_timeout_s=10 * LIMIT_S) as client:
        pass
    ways = {
        "call": lambda: client.call_tool("s", "t"),
        "list": client.servers.list,
        "watch": lambda: followed(client),
    }
    with anyio.fail_after(LIMIT_S):
        with pytest.raises(FailedPrecondition, match="closed") as caught:
            await ways[way]()
    assert caught.value.reason == "CLOSED"
    assert hub.seen == []


@pytest.mark.parametrize("way", ["call", "watch"])
async def test_what_is_under_way_at_the_end_of_the_block_ends_with_an_error_and_is_not_cancelled(
    hub: Any, at_work: anyio.Event, way: str
) -> None:
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            work = client.call_tool("s", "t") if way == "call" else followed(client)
            waiting = asyncio.ensure_future(work)
            await at_work.wait()
        with pytest.raises(HubbubError, match="closed") as caught:
            await waiting
    assert caught.value.reason == "CLOSED"


async def test_a_wait_for_a_hub_ends_with_the_block(hub: Any) -> None:
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir, connect_timeout_s=10 * LIMIT_S) as client:
            await hub.stop()
            waiting = asyncio.ensure_future(client.servers.list())
            while client.connected:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        with pytest.raises(HubbubError) as caught:
            await waiting
    assert caught.value.reason == "CLOSED"


async def test_who_is_cancelled_while_the_connection_closes_stays_cancelled(hub: Any, at_work: anyio.Event) -> None:
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            waiting = asyncio.ensure_future(client.call_tool("s", "t"))
            await at_work.wait()
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_watch_without_async_that_outlives_its_block_ends_quietly(hub: Any, at_work: anyio.Event) -> None:
    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            events = plain.inbox.watch()
            assert next(events).type == "synced"
        events.close()  # as the garbage collector does

    with anyio.fail_after(LIMIT_S):
        await anyio.to_thread.run_sync(script)


async def test_without_async_another_thread_is_told_that_the_connection_was_closed(
    hub: Any, at_work: anyio.Event
) -> None:
    said: list[HubbubError] = []

    def call(plain: sync.SyncHub) -> None:
        with pytest.raises(Cancelled, match="closed") as caught:
            plain.call_tool("s", "t")
        said.append(caught.value)

    def script() -> None:
        with sync.connect(data_dir=hub.data_dir) as plain:
            caller = threading.Thread(target=call, args=[plain])
            caller.start()
            anyio.from_thread.run(at_work.wait)
        caller.join()

    with anyio.fail_after(LIMIT_S):
        await anyio.to_thread.run_sync(script)
    assert [each.reason for each in said] == ["CLOSED"]
