"""When a stream of calls reads and writes, against a caller that is as slow or as fast as the test wants."""

from collections.abc import AsyncIterator

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from hubbub.v1 import call_pb2
from hubbubd.errors import InvalidArgument, Unavailable
from hubbubd.rpc.servicers import call_stream
from hubbubd.runtime.hub import Hub

from .call_stream import begin, failure, streams, waiting
from .conftest import LIMIT_S


async def test_an_id_is_free_once_its_caller_can_have_read_the_end(hub: Hub) -> None:
    """The caller may be faster than the hub, which has yet to hear that it has written."""
    sent, free = anyio.create_memory_object_stream[call_pb2.StreamCallsRequest](10)
    ended: list[int] = []

    async def serve_one(_: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        return call_pb2.CallMethodResponse()

    async def write(message: bytes) -> None:
        for step in call_pb2.StreamCallsResponse.FromString(message).steps:
            if len(ended) == 3:
                sent.close()
            else:
                sent.send_nowait(call_pb2.StreamCallsRequest(steps=[begin(1)]))
            ended.append(step.id)
        await anyio.wait_all_tasks_blocked()

    with anyio.fail_after(LIMIT_S):
        await streams(hub, serve_one).run(aiter(free), write)
    assert ended == [0, 1, 1, 1]


async def test_a_hub_that_stops_waits_for_a_stream_that_is_just_being_accepted(hub: Hub) -> None:
    accepting, go_on, drained = anyio.Event(), anyio.Event(), anyio.Event()

    async def serve_one(_: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        return call_pb2.CallMethodResponse()

    async def steps() -> AsyncIterator[call_pb2.StreamCallsRequest]:
        yield call_pb2.StreamCallsRequest(steps=[begin(1)])

    async def write(_: bytes) -> None:
        accepting.set()
        await go_on.wait()

    async def run() -> None:
        with pytest.raises(Unavailable):
            await streams(hub, serve_one).run(steps(), write)

    async def drain() -> None:
        await hub.drain(10 * LIMIT_S)
        drained.set()

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await accepting.wait()
            group.start_soon(drain)
            await anyio.wait_all_tasks_blocked()
            assert not drained.is_set()
            go_on.set()


async def test_an_error_that_nobody_expected_is_an_incident_whatever_its_kind(hub: Hub) -> None:
    said: list[call_pb2.StreamCallsResponse.Step] = []

    async def serve_one(_: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        raise TimeoutError("of something else")

    async def steps() -> AsyncIterator[call_pb2.StreamCallsRequest]:
        yield call_pb2.StreamCallsRequest(steps=[begin(1), begin(2, wait=Duration(seconds=60))])

    async def write(message: bytes) -> None:
        said.extend(call_pb2.StreamCallsResponse.FromString(message).steps)

    await streams(hub, serve_one).run(steps(), write)
    assert [failure(step, step.id).code for step in said[1:]] == [grpc.StatusCode.INTERNAL] * 2


async def test_results_go_together_only_as_far_as_any_caller_takes_them(hub: Hub) -> None:
    written: list[int] = []
    ended = anyio.Event()

    async def serve_one(request: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        if request.spec.call_id == "last":
            ended.set()
        return call_pb2.CallMethodResponse(call=call_pb2.Call(result=b" " * 30_000))

    async def steps() -> AsyncIterator[call_pb2.StreamCallsRequest]:
        names = [*"abcd", "last"]
        starts = [begin(number, waiting(call_id=name)) for number, name in enumerate(names, 1)]
        yield call_pb2.StreamCallsRequest(steps=starts)

    async def write(message: bytes) -> None:
        if written:  # until the first one is written, which is `ready`, there is no call
            await ended.wait()
        written.append(len(message))

    with anyio.fail_after(LIMIT_S):
        await streams(hub, serve_one).run(steps(), write)
    assert len(written) < 6, "some go together"
    assert max(written) <= call_stream.MAX_BATCH_BYTES
    assert sum(written) > 5 * 30_000


async def test_the_hub_reads_no_further_while_too_much_waits_to_be_written(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_stream, "MAX_UNWRITTEN", 5)
    read: list[int] = []
    written: list[call_pb2.StreamCallsResponse.Step] = []
    reads = anyio.Event()

    async def refuse(_: call_pb2.CallMethodRequest) -> call_pb2.CallMethodResponse:
        raise InvalidArgument.field("any", "is wrong")

    async def steps() -> AsyncIterator[call_pb2.StreamCallsRequest]:
        for number in range(1, 101):
            read.append(number)
            yield call_pb2.StreamCallsRequest(steps=[begin(number)])
            await anyio.sleep(0)

    async def write(message: bytes) -> None:
        if written:
            await reads.wait()
        written.extend(call_pb2.StreamCallsResponse.FromString(message).steps)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streams(hub, refuse).run, steps(), write)
            await anyio.wait_all_tasks_blocked()
            assert len(read) < 20
            reads.set()
    assert [step.id for step in written] == [0, *range(1, 101)]
