"""The stream that carries the calls of a connection."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from grpc import StatusCode

from hubbub.v1 import call_pb2, server_pb2
from hubbub_client import Cancelled, HubbubError, NotFound, Unavailable, connect, sync
from hubbub_client.transport import call_stream
from hubbub_client.transport.call_stream import CallStream, NotSent

from .call_stream import LIMIT_S, LIMITS, carried, done, said
from .conftest import staying


async def test_a_hub_that_refuses_a_stream_is_asked_again_later(
    hub: Any, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Any) -> AsyncIterator[Any]:
        raise refusal("RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
        yield

    monkeypatch.setattr(call_stream, "FIRST_PAUSE_S", 0.0)
    hub.replies["CallMethod"], hub.streams["StreamCalls"] = done, refuse
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            while not hub.requests("StreamCalls"):
                assert await client.call("s", "m") == {"ok": True}
            await carried(client, hub.carry())


@pytest.mark.parametrize("code", ["NOT_FOUND", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "UNKNOWN", "DATA_LOSS"])
async def test_a_call_fails_as_by_an_rpc_of_its_own(hub: Any, came: list[Any], refusal: Any, code: str) -> None:
    def refuse(_: Any) -> Any:
        raise refusal(code, "SOME_REASON", "because", {"who": "ann"}, (("a.b", "wrong"),), retry_after_s=1.5)

    errors: list[HubbubError] = []
    async with connect(data_dir=hub.data_dir) as client:
        hub.replies["CallMethod"] = refuse
        with pytest.raises(HubbubError) as alone:
            await client.call("s", "m")
        hub.replies["CallMethod"] = done
        await carried(client, came)
        hub.replies["CallMethod"] = refuse
        with pytest.raises(HubbubError) as caught:
            await client.call("s", "m")
        errors = [alone.value, caught.value]
    assert len(came) == 1
    one, other = ({**vars(error), "type": type(error)} for error in errors)
    assert one == other
    assert (errors[1].code.name, errors[1].reason, errors[1].retry_after_s) == (code, "SOME_REASON", 1.5)


async def test_a_status_that_cannot_be_read_is_an_error_without_details(hub: Any, came: list[Any]) -> None:
    async def garble(steps: Any) -> AsyncIterator[Any]:
        yield said(ready=LIMITS)
        async for step in (step async for message in steps for step in message.steps):
            came.append(step)
            yield said(id=step.start.id, failed=b"\xff\xff")

    hub.streams["StreamCalls"] = garble
    async with connect(data_dir=hub.data_dir) as client:
        with anyio.fail_after(LIMIT_S), pytest.raises(HubbubError) as caught:
            await carried(client, came)
    assert caught.value.code is StatusCode.UNKNOWN


async def test_a_stream_with_a_token_that_has_changed_is_not_used_again(hub: Any, came: list[Any]) -> None:
    hub.replies["GetServer"] = lambda request: server_pb2.GetServerResponse(server=server_pb2.Server(name=request.name))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, came)
            hub.token = "rotated"
            (hub.data_dir / "client.json").write_text(f'{{"address": "{hub.address}", "token": "rotated"}}')
            await client.servers.get("a")  # refused, and so the token is read again
            while len(hub.requests("StreamCalls")) < 2:
                await client.call("s", "m")
            assert not came
            await carried(client, came)
    tokens = [metadata["authorization"] for name, _, metadata in hub.seen if name == "StreamCalls"]
    assert tokens == ["Bearer secret", "Bearer rotated"]


async def test_a_connection_that_is_closed_ends_the_calls_on_its_stream(hub: Any, came: list[Any]) -> None:
    asked = anyio.Event()
    ended: list[HubbubError] = []

    async def reply(_: Any) -> Any:
        asked.set()
        await anyio.sleep_forever()

    async def call(client: Any) -> None:
        with pytest.raises(Cancelled) as caught:
            await client.call("s", "m")
        ended.append(caught.value)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group, connect(data_dir=hub.data_dir) as client:
            await carried(client, came)
            hub.replies["CallMethod"] = reply
            group.start_soon(call, client)
            await asked.wait()
    assert [error.reason for error in ended] == ["CLOSED"]


async def test_calls_that_were_not_sent_when_the_connection_is_closed_are_told_that_it_is(hub: Any) -> None:
    deaf = staying(said(ready=call_pb2.StreamCallsResponse.Ready(max_calls=200, max_request_bytes=1024 * 1024)))
    ended: list[str] = []

    async def call(client: Any) -> None:
        with pytest.raises(HubbubError) as caught:
            await client.call("s", "m", {"long": "x" * 60_000})
        ended.append(caught.value.reason)

    hub.replies["CallMethod"], hub.streams["StreamCalls"] = done, deaf
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group, connect(data_dir=hub.data_dir) as client:
            while client._connection._call_streams._stream is None:
                await client.call("s", "m")
            for _ in range(200):
                group.start_soon(call, client)
            await anyio.wait_all_tasks_blocked()
    assert ended == ["CLOSED"] * 200


async def test_a_call_that_the_stream_does_not_take_is_an_rpc_of_its_own(hub: Any) -> None:
    hub.replies["CallMethod"] = done
    came = hub.carry(max_calls=1)
    asked, go_on = anyio.Event(), anyio.Event()

    async def reply(request: Any) -> Any:
        asked.set()
        await go_on.wait()
        return done(request)

    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, came)
            hub.seen.clear()
            await client.call("s", "m", {"long": "x" * call_stream.MAX_REQUEST_BYTES})
            assert len(hub.requests("CallMethod")) == 1
            hub.replies["CallMethod"] = reply
            async with anyio.create_task_group() as group:
                group.start_soon(client.call, "s", "m")
                await asked.wait()
                hub.replies["CallMethod"] = done
                await client.call("s", "m")
                go_on.set()
    assert len(came) == 1
    assert len(hub.requests("CallMethod")) == 2


async def test_a_stream_without_calls_is_closed_and_opened_again(
    hub: Any, came: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_stream, "IDLE_S", 0.01)
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            for count in (1, 2):
                await carried(client, came)
                assert len(hub.requests("StreamCalls")) >= count
                while client._connection._call_streams._stream.alive:
                    await anyio.sleep(0)


async def test_threads_without_a_loop_use_the_stream_too(hub: Any, came: list[Any], refusal: Any) -> None:
    def work() -> None:
        with sync.connect(data_dir=hub.data_dir) as client:
            while not came:
                assert client.call("s", "m") == {"ok": True}
            with pytest.raises(NotFound):
                client.call("s", "missing")

    def reply(request: Any) -> Any:
        if request.spec.method == "missing":
            raise refusal("NOT_FOUND", "SERVER_NOT_FOUND")
        return done(request)

    hub.replies["CallMethod"] = reply
    await anyio.to_thread.run_sync(work)
    assert len(came) == 2


class Stuck:
    """An RPC on which nothing can be written any more."""

    def __init__(self) -> None:
        self.writing, self.over = anyio.Event(), anyio.Event()

    def done(self) -> bool:
        return False

    def cancel(self) -> None:
        pass

    async def write(self, _: Any) -> None:
        self.writing.set()
        await anyio.sleep_forever()

    async def read(self) -> Any:
        await self.over.wait()


async def test_a_call_that_was_not_sent_when_the_stream_broke_may_be_sent_in_another_way() -> None:
    rpc: Any = Stuck()
    stream = CallStream(rpc, LIMITS, 1000)
    ended: dict[str, type[Exception]] = {}

    async def call(name: str) -> None:
        request = call_pb2.CallMethodRequest(spec=call_pb2.CallSpec(server="s", method="m", call_id=name))
        try:
            await stream.call(request)
        except (HubbubError, NotSent) as error:
            ended[name] = type(error)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(call, "sent")
            await rpc.writing.wait()
            group.start_soon(call, "unsent")
            await anyio.wait_all_tasks_blocked()
            rpc.over.set()
    assert ended == {"sent": Unavailable, "unsent": NotSent}


class Closing(Stuck):
    """An RPC on which the hub says that it shuts down while a call is being written, and then stands still."""

    async def read(self) -> Any:
        if self.over.is_set():
            await anyio.sleep_forever()
        await self.over.wait()
        return said(closing=call_pb2.StreamCallsResponse.Closing())


async def test_a_call_that_was_not_sent_when_the_hub_shuts_down_is_not_sent_to_it() -> None:
    rpc: Any = Closing()
    stream = CallStream(rpc, LIMITS, 1000)
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(stream.call, call_pb2.CallMethodRequest())
            await rpc.writing.wait()
            rpc.over.set()
            with pytest.raises(NotSent):
                await stream.call(call_pb2.CallMethodRequest())
            assert stream.busy
            group.cancel_scope.cancel()
        stream.end(HubbubError("the test is over"))


class Answering(Stuck):
    """An RPC on which the first call is completed when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = anyio.Event()

    def cancel(self) -> None:
        self.cancelled.set()

    async def write(self, _: Any) -> None:
        self.writing.set()

    async def read(self) -> Any:
        await self.over.wait()
        return said(id=1, completed=call_pb2.CallMethodResponse())


async def test_a_stream_that_takes_no_more_calls_is_closed_when_its_last_one_has_ended() -> None:
    rpc: Any = Answering()
    stream = CallStream(rpc, LIMITS, 1000)
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(stream.call, call_pb2.CallMethodRequest())
            await rpc.writing.wait()
            stream.retire()
            assert not rpc.cancelled.is_set()
            rpc.over.set()
        await rpc.cancelled.wait()
