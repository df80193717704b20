"""What happens to a call, told on the stream that carries it."""

from collections.abc import AsyncIterator
from typing import Any

import anyio

from hubbub.v1 import call_pb2
from hubbub_client import connect

from .call_stream import LIMIT_S, LIMITS, carried, done, said


def telling(came: list[Any], *news: dict[str, Any]) -> Any:
    """A stream that tells this of each call before it completes it."""

    async def stream(steps: Any) -> AsyncIterator[Any]:
        yield said(ready=LIMITS)
        async for step in (step async for message in steps for step in message.steps):
            came.append(step)
            if step.HasField("start"):
                for each in news if step.start.follow else ():
                    yield said(id=step.start.id, **each)
                yield said(id=step.start.id, completed=done(step.start.request))

    return stream


HALF = call_pb2.Progress(progress=1, total=2, message="half")
ASKS = call_pb2.Call(id="mine", pending_request_ids=["r1"])


async def test_the_news_of_a_call_come_over_its_stream(hub: Any, came: list[Any]) -> None:
    hub.streams["StreamCalls"] = telling(came, {"progress": HALF}, {"changed": ASKS}, {"log": call_pb2.CallLog()})
    progress: list[Any] = []
    asked: list[str] = []
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, came)
            result = await client.call("s", "m", on_progress=progress.append, on_pending=asked.append)
    assert result == {"ok": True}
    assert [(it.progress, it.total, it.message) for it in progress] == [(1, 2, "half")]
    assert asked == ["r1"]
    assert not hub.requests("WatchCalls")
    assert came[-1].start.request.spec.call_id


async def test_what_a_call_had_asked_when_it_ended_is_told_too(hub: Any, came: list[Any]) -> None:
    def reply(request: Any) -> Any:
        answered = done(request)
        answered.call.pending_request_ids.append("r1")
        return answered

    asked: list[str] = []
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, came)
            hub.replies["CallMethod"] = reply
            await client.call("s", "m", on_pending=asked.append)
    assert asked == ["r1"]


async def test_a_callback_that_is_slow_gets_the_newest_progress(hub: Any, came: list[Any]) -> None:
    steps = [{"progress": call_pb2.Progress(progress=number)} for number in range(100)]
    hub.streams["StreamCalls"] = telling(came, *steps)
    seen: list[float] = []

    async def slow(progress: Any) -> None:
        seen.append(progress.progress)
        await anyio.wait_all_tasks_blocked()

    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, came)
            await client.call("s", "m", on_progress=slow)
    assert seen == sorted(seen)
    assert seen[-1] == 99
