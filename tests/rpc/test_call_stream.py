"""Many calls over one stream: each as by CallMethod, whatever becomes of the others or of the stream."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from hubbub.v1 import call_pb2, inbox_pb2, server_pb2
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.rpc import methods
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.rpc.servicers import call_stream
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.records import WatcherLimit

from ..upstream.conftest import Scripted, event, scripted
from .call_stream import CallStream, begin, hang_up, streamed, waiting
from .conftest import LIMIT_S, Caller, explain, gate, refusing, spec_of, until
from .test_bad_input import METHODS

__all__ = ["scripted"]

PARAMS = b'{"name":"any","arguments":{}}'


@pytest.fixture
async def stream(api: Caller) -> AsyncIterator[CallStream]:
    """A stream of a caller that may do anything."""
    async with streamed(api.channel, api.metadata) as opened:
        yield opened


@pytest.fixture
async def good(api: Caller, scripted: Scripted) -> AsyncIterator[str]:
    """The name of a connected server, `scripted`."""
    await api(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec_of(name="good", url=scripted.url)))
    yield "good"
    await api(METHODS["RemoveServer"], server_pb2.RemoveServerRequest(name="good"))


def tool(server: str = "good", **more: str) -> call_pb2.CallSpec:
    return call_pb2.CallSpec(server=server, method="tools/call", params=PARAMS, **more)


def state(hub: Hub, call_id: str) -> CallState:
    return hub.calls.get(call_id).state


async def under_way(hub: Hub, count: int) -> None:
    """Waits until so many calls have begun and not ended."""
    await until(lambda: sum(not call.state.ended for call in hub.calls.select(CallFilter())) == count)


async def test_the_hub_says_first_what_it_takes(stream: CallStream) -> None:
    assert (stream.ready.max_calls, stream.ready.max_request_bytes) == (call_stream.MAX_CALLS, 1024 * 1024)
    assert stream.ready.takes_answers


async def test_many_steps_may_come_in_one_message_and_go_in_one(stream: CallStream, good: str) -> None:
    ids = range(1, 51)
    await stream.say(*(begin(number, tool()) for number in ids), begin(99), hang_up(99))
    ended = [await stream.next() for _ in (*ids, 99)]
    assert {step.id for step in ended if step.HasField("completed")} == set(ids)
    assert {step.id for step in ended if step.HasField("failed")} == {99}
    await stream.say(*(hang_up(number) for number in range(call_stream.MAX_STEPS + 1)))
    assert set((await stream.broken()).violations) == {"steps"}


@pytest.mark.parametrize(
    ("spec", "code", "reason"),
    [
        (call_pb2.CallSpec(), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (tool("nowhere"), "NOT_FOUND", "SERVER_NOT_FOUND"),
        (waiting(params=b"{"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (waiting(timeout=Duration(nanos=1000)), "DEADLINE_EXCEEDED", "CALL_TIMEOUT"),
    ],
)
async def test_a_call_is_refused_as_by_an_rpc_of_its_own_and_the_others_go_on(
    api: Caller, stream: CallStream, spec: call_pb2.CallSpec, code: str, reason: str
) -> None:
    await stream.start(1)
    await stream.start(2, spec)
    refused = await stream.failed(2)
    alone = await api.refused(METHODS["CallMethod"], call_pb2.CallMethodRequest(spec=spec))
    assert (refused.code.name, refused.reason) == (alone.code.name, alone.reason) == (code, reason)
    assert (refused.violations, refused.message) == (alone.violations, alone.message)
    await stream.cancel(1)
    await stream.failed(1)


@pytest.mark.parametrize(
    ("step", "field"),
    [
        ({}, "step"),
        ({"start": call_pb2.StreamCallsRequest.Start()}, "start.id"),
        ({"start": call_pb2.StreamCallsRequest.Start(id=-1)}, "start.id"),
        ({"start": call_pb2.StreamCallsRequest.Start(id=1)}, "start.id"),
        ({"answer": call_pb2.StreamCallsRequest.Answer()}, "answer.id"),
        ({"answer": call_pb2.StreamCallsRequest.Answer(id=1)}, "answer.id"),
        ({"skip": call_pb2.StreamCallsRequest.Skip(id=1)}, "skip.pending_request_id"),
    ],
)
async def test_a_step_that_belongs_to_no_call_ends_the_stream_and_its_calls(
    hub: Hub, stream: CallStream, step: dict[str, Any], field: str
) -> None:
    await stream.start(1, waiting(call_id="beside"), answers=[inbox_pb2.PENDING_REQUEST_KIND_ROOTS])
    await under_way(hub, 1)
    await stream.say(call_pb2.StreamCallsRequest.Step(**step))
    refused = await stream.broken()
    assert (refused.code, set(refused.violations)) == (grpc.StatusCode.INVALID_ARGUMENT, {field})
    await until(lambda: state(hub, "beside") is CallState.CANCELLED)


async def test_a_step_that_is_too_long_or_none_ends_the_stream(api: Caller) -> None:
    for step, reason in [(b"x" * (1024 * 1024 + 1), "MESSAGE_TOO_LARGE"), (b"\xff\xff", "MALFORMED_REQUEST")]:
        raw = api.channel.stream_stream("/hubbub.v1.CallService/StreamCalls")(metadata=api.metadata)
        with anyio.fail_after(LIMIT_S):
            await raw.read()
            await raw.write(step)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw.read()
        assert explain(caught.value).reason == reason


async def test_calls_that_are_too_many_are_refused_until_one_has_ended(
    hub: Hub, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_stream, "MAX_CALLS", 2)
    async with streamed(api.channel, api.metadata) as stream:
        for number in (1, 2, 3):
            await stream.start(number)
        refused = await stream.failed(3)
        assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
        assert refused.metadata["limit"] == "2"
        await stream.cancel(1)
        await stream.failed(1)
        await stream.start(3)
        await under_way(hub, 2)


@pytest.mark.parametrize("detached", [True, False])
async def test_a_stream_that_breaks_ends_its_calls_unless_they_are_detached_and_a_retry_finds_them(
    hub: Hub, api: Caller, stream: CallStream, detached: bool
) -> None:
    await stream.start(1, waiting(call_id="mine"), detached=detached)
    await under_way(hub, 1)
    stream.rpc.cancel()
    async with streamed(api.channel, api.metadata) as again:
        if detached:
            await again.start(1, waiting(call_id="mine"), detached=True)
            await api(METHODS["CancelCall"], call_pb2.CancelCallRequest(id="mine"))
        else:
            await until(lambda: state(hub, "mine") is CallState.CANCELLED)
            await again.start(1, waiting(call_id="mine"))
        refused = await again.failed(1)
        assert (refused.reason, refused.metadata["call_id"]) == ("CALL_CANCELLED", "mine")
        await again.start(1, tool("away", call_id="mine"))
        assert (await again.failed(1)).reason == "CALL_ID_REUSED"
    assert len(hub.calls.select(CallFilter())) == 1


async def test_a_caller_that_waits_no_longer_hangs_up_on_that_call(hub: Hub, stream: CallStream) -> None:
    await stream.start(2, waiting(call_id="on"))
    await until(lambda: hub.calls.has_call("on"))
    await stream.start(1, waiting(call_id="late"), wait=Duration(nanos=1_000_000))
    refused = await stream.failed(1)
    assert (refused.code, refused.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_OVER")
    await until(lambda: state(hub, "late") is CallState.CANCELLED)
    assert not state(hub, "on").ended
    await stream.start(3, wait=Duration(seconds=-1))
    assert set((await stream.failed(3)).violations) == {"start.wait"}
    await stream.start(3, max_response_bytes=-1)
    assert set((await stream.failed(3)).violations) == {"start.max_response_bytes"}


async def test_a_result_that_is_too_long_for_its_caller_fails_its_call_alone(
    api: Caller, stream: CallStream, good: str, scripted: Scripted
) -> None:
    async def long(request: Request) -> Response:
        result = {"content": [{"type": "text", "text": "x" * 1000}]}
        return JSONResponse({"jsonrpc": "2.0", "id": (await request.json())["id"], "result": result})

    scripted.replaced = {"tools/call": long}
    await stream.start(1, tool(call_id="long"), max_response_bytes=1000)
    refused = await stream.failed(1)
    assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    kept = await api(METHODS["GetCall"], call_pb2.GetCallRequest(id="long"))
    assert kept.call.state == call_pb2.CALL_STATE_COMPLETED
    await stream.start(2, tool(), max_response_bytes=2000)
    await stream.completed(2)
    await stream.start(3, tool(), max_response_bytes=1000)
    named = (await stream.failed(3)).metadata["call_id"]
    assert (await api(METHODS["GetCall"], call_pb2.GetCallRequest(id=named))).call.result


async def test_progress_comes_before_the_end_of_the_call_that_is_followed(
    stream: CallStream, good: str, scripted: Scripted
) -> None:
    async def reports(request: Request) -> Response:
        asked = await request.json()
        token = asked["params"].get("_meta", {}).get("progressToken")
        said = [
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1.5}},
            {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}},
        ]
        return StreamingResponse((event(each) for each in said), media_type="text/event-stream")

    scripted.replaced = {"tools/call": reports}
    await stream.start(1, tool(call_id="told"), follow=True)
    steps = [await stream.next()]
    while steps[-1].WhichOneof("step") not in ("completed", "failed"):
        steps.append(await stream.next())
    assert [step.progress.progress for step in steps if step.HasField("progress")] == [1.5]
    assert {step.id for step in steps} == {1}
    await stream.start(2, tool(call_id="untold"))
    await stream.completed(2)
    await stream.start(3, tool(), follow=True)
    assert set((await stream.failed(3)).violations) == {"start.request.spec.call_id"}


async def test_a_caller_that_reads_nothing_loses_its_stream_and_nobody_else_theirs(
    hub: Hub, api: Caller, address: str, good: str, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def long(request: Request) -> Response:
        result = {"content": [{"type": "text", "text": "x" * 500_000}]}
        return JSONResponse({"jsonrpc": "2.0", "id": (await request.json())["id"], "result": result})

    scripted.replaced = {"tools/call": long}
    monkeypatch.setattr(methods, "STALL_S", 0.3)
    dropped: list[bool] = []
    monkeypatch.setattr(WatcherLimit, "note_drop", lambda _: dropped.append(True))
    async with grpc.aio.insecure_channel(address) as own, streamed(own, api.metadata) as stalled:
        for number in range(1, 11):
            await stalled.start(number, tool())
        await stalled.start(11, waiting(call_id="beside"))
        async with streamed(api.channel, api.metadata) as stream:
            await stream.start(1, tool())
            await stream.completed(1)
        await until(lambda: state(hub, "beside") is CallState.CANCELLED)
        assert (await stalled.broken()).reason == "WATCHER_TOO_SLOW"
    assert dropped == [True]


async def test_a_hub_that_stops_refuses_further_calls_while_those_under_way_may_end(
    hub: Hub, good: str, scripted: Scripted
) -> None:
    asked, go_on = anyio.Event(), anyio.Event()

    async def slow(request: Request) -> Response:
        asked.set()
        await go_on.wait()
        return JSONResponse({"jsonrpc": "2.0", "id": (await request.json())["id"], "result": {"content": []}})

    scripted.replaced = {"tools/call": slow}
    serving = serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=LIMIT_S)
    address = await serving.__aenter__()
    async with grpc.aio.insecure_channel(address) as channel, streamed(channel, Caller(channel).metadata) as stream:
        await stream.start(1, tool())
        await asked.wait()
        await stream.start(2, detached=True)
        await under_way(hub, 2)
        async with anyio.create_task_group() as stopping:
            stopping.start_soon(serving.__aexit__, None, None, None)
            await stream.closing()
            assert (await stream.failed(2)).reason == "SHUTTING_DOWN"  # it goes on with the next one
            await stream.start(3)
            assert (await stream.failed(3)).reason == "SHUTTING_DOWN"
            with refusing("SHUTTING_DOWN"):
                async with streamed(channel, Caller(channel).metadata):
                    pass
            go_on.set()
            await stream.completed(1)
            assert (await stream.broken()).reason == "SHUTTING_DOWN"
