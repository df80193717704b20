"""Calls and workers at their ends: nothing ends too early, and nothing goes on too long."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2, common_pb2, inbox_pb2
from hubbub_client import connect
from hubbub_client.services import calls

LIMIT_S = 60
STEP = call_pb2.WatchCallsResponse
SYNCED = STEP(synced=common_pb2.WatchSynced())
ENDED = STEP(upsert=call_pb2.Call(id="c", state=call_pb2.CALL_STATE_COMPLETED, result=b"{}"))


async def test_progress_that_comes_after_the_response_is_reported(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LAST_UPDATE_WAIT_S", LIMIT_S)
    responding, seen = anyio.Event(), list[float]()

    async def call(_: Any) -> Any:
        responding.set()
        return call_pb2.CallMethodResponse(call=ENDED.upsert)

    async def watch(_: Any) -> AsyncIterator[Any]:
        yield SYNCED
        await responding.wait()
        for _ in range(100):  # the response goes first
            await anyio.sleep(0)
        yield STEP(progress=call_pb2.Progress(call_id="c", progress=1))
        yield ENDED
        await anyio.sleep_forever()

    hub.replies["CallMethod"], hub.streams["WatchCalls"] = call, watch
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await client.call("s", "m", call_id="c", on_progress=lambda it: seen.append(it.progress))
    assert seen == [1]


async def test_a_worker_stops_answering_what_it_had_from_a_stream_that_broke(hub: Any) -> None:
    thinking, cancelled = anyio.Event(), anyio.Event()

    async def work(_: Any) -> AsyncIterator[Any]:
        if not thinking.is_set():
            yield inbox_pb2.WorkResponse(assigned=inbox_pb2.PendingRequest(id="r", state=1))
            await thinking.wait()
            return
        await anyio.sleep_forever()

    async def think(_: Any) -> None:
        thinking.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    hub.streams["Work"] = work
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.inbox.work, think)
            await cancelled.wait()
            tasks.cancel_scope.cancel()
