"""Work over the wire."""

from collections.abc import AsyncIterator

import anyio
import grpc
import pytest

from hubbub.v1 import inbox_pb2 as pb
from hubbubd.runtime.hub import Hub

from .conftest import LIMIT_S, Caller, explain, refusing, until

Call = grpc.aio.StreamStreamCall[pb.WorkRequest, pb.WorkResponse]


@pytest.fixture
async def worker(api: Caller) -> AsyncIterator[Call]:
    method = api.channel.stream_stream(
        "/hubbub.v1.InboxService/Work",
        request_serializer=pb.WorkRequest.SerializeToString,
        response_deserializer=pb.WorkResponse.FromString,
    )
    with anyio.fail_after(LIMIT_S):
        call = method(metadata=api.metadata)
        await call.write(pb.WorkRequest(ready=pb.WorkRequest.Ready(capacity=2)))
        assert (await call.read()).HasField("bookmark")
        yield call
    call.cancel()


async def test_a_worker_counts_from_its_first_bookmark_until_it_hangs_up(hub: Hub, worker: Call) -> None:
    assert hub.watcher_count() == 1
    worker.cancel()
    await until(lambda: hub.watcher_count() == 0)


@pytest.mark.usefixtures("lively")
async def test_a_worker_that_has_nothing_more_to_say_goes_on_listening(hub: Hub, worker: Call) -> None:
    await worker.done_writing()
    assert (await worker.read()).HasField("bookmark")
    assert hub.watcher_count() == 1


async def test_a_second_introduction_ends_the_stream_and_says_why(hub: Hub, worker: Call) -> None:
    await worker.write(pb.WorkRequest(ready=pb.WorkRequest.Ready()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.read()
    refusal = explain(caught.value)
    assert (refusal.code, list(refusal.violations)) == (grpc.StatusCode.INVALID_ARGUMENT, ["step"])
    await until(lambda: hub.watcher_count() == 0)


async def test_a_hub_that_ends_says_so_to_its_workers(hub: Hub, worker: Call) -> None:
    hub.end_watches()
    with refusing("SHUTTING_DOWN"):
        await worker.read()
