"""A stream of calls (StreamCalls), step by step."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import anyio
import grpc
from google.rpc.status_pb2 import Status

from hubbub.v1 import call_pb2 as pb
from hubbub.v1 import inbox_pb2
from hubbubd.rpc.methods import Unary
from hubbubd.rpc.servicers.call_stream import CallStreamServer
from hubbubd.runtime.hub import Hub

from .conftest import LIMIT_S, Refusal, explain, refusal

PATH = "/hubbub.v1.CallService/StreamCalls"
CODES = {code.value[0]: code for code in grpc.StatusCode}
Metadata = tuple[tuple[str, str], ...]


@dataclass
class CallStream:
    """One stream. `ready` is what the hub has said first."""

    rpc: Any
    ready: pb.StreamCallsResponse.Ready
    unread: deque[pb.StreamCallsResponse.Step] = field(default_factory=deque)

    async def start(self, id_: int, spec: pb.CallSpec | None = None, **more: Any) -> None:
        """As `begin`, in a message of its own."""
        await self.say(begin(id_, spec, **more))

    async def cancel(self, id_: int) -> None:
        await self.say(hang_up(id_))

    async def say(self, *steps: pb.StreamCallsRequest.Step) -> None:
        """All steps in one message."""
        await self.rpc.write(pb.StreamCallsRequest(steps=steps))

    async def next(self) -> pb.StreamCallsResponse.Step:
        """The next step."""
        with anyio.fail_after(LIMIT_S):
            while not self.unread:
                message = await self.rpc.read()
                assert isinstance(message, pb.StreamCallsResponse), "the stream has ended"
                self.unread += message.steps
        return self.unread.popleft()

    async def completed(self, id_: int) -> pb.Call:
        """The call with this id, which ends next, and well."""
        step = await self.next()
        assert (step.id, step.WhichOneof("step")) == (id_, "completed")
        return step.completed.call

    async def failed(self, id_: int) -> Refusal:
        """Why the call with this id, which ends next, has failed."""
        return failure(await self.next(), id_)

    async def closing(self) -> None:
        """The hub says next that it shuts down."""
        assert (await self.next()).WhichOneof("step") == "closing"

    async def broken(self) -> Refusal:
        """Why the hub ends the stream, after what it may have said before."""
        try:
            with anyio.fail_after(LIMIT_S):
                while await self.rpc.read() is not grpc.aio.EOF:
                    pass
        except grpc.aio.AioRpcError as error:
            return explain(error)
        raise AssertionError("the stream has ended well")


def begin(
    id_: int, spec: pb.CallSpec | None = None, *, detached: bool = False, **more: Any
) -> pb.StreamCallsRequest.Step:
    """Begins a call, by default one that is never sent, since nobody has started its server."""
    request = pb.CallMethodRequest(spec=spec or waiting(), detached=detached)
    return pb.StreamCallsRequest.Step(start=pb.StreamCallsRequest.Start(id=id_, request=request, **more))


def hang_up(id_: int) -> pb.StreamCallsRequest.Step:
    return pb.StreamCallsRequest.Step(cancel=pb.StreamCallsRequest.Cancel(id=id_))


def answering(id_: int, request_id: str, claim_id: str = "", **more: Any) -> pb.StreamCallsRequest.Step:
    """Answers a form with `{"name": "x"}`."""
    accept = inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"name":"x"}')
    request = inbox_pb2.AnswerPendingRequestRequest(id=request_id, claim_id=claim_id, accept=accept)
    return pb.StreamCallsRequest.Step(answer=pb.StreamCallsRequest.Answer(id=id_, request=request, **more))


def skipping(id_: int, request_id: str) -> pb.StreamCallsRequest.Step:
    return pb.StreamCallsRequest.Step(skip=pb.StreamCallsRequest.Skip(id=id_, pending_request_id=request_id))


def failure(step: pb.StreamCallsResponse.Step, id_: int) -> Refusal:
    """Why the call of a step has failed."""
    assert (step.id, step.WhichOneof("step")) == (id_, "failed")
    status = Status.FromString(step.failed)
    return refusal(CODES[status.code], status)


def streams(hub: Hub, serve: Unary, calls: Any = None) -> CallStreamServer:
    """The streams of a hub, where `serve` is all that becomes of a call or an answer."""
    return CallStreamServer(
        calls=calls or hub.calls,
        work=hub.work,
        serve=serve,
        answer=serve,
        hold=lambda _: nullcontext(),
        max_request_bytes=1000,
    )


def waiting(**more: Any) -> pb.CallSpec:
    """A call of a server that nobody has started."""
    return pb.CallSpec(**{"server": "away", "method": "tools/list"} | more)


@asynccontextmanager
async def streamed(channel: grpc.aio.Channel, metadata: Metadata) -> AsyncIterator[CallStream]:
    """A stream that the hub has accepted. Raises AioRpcError for one that it refuses."""
    open_stream = channel.stream_stream(
        PATH,
        request_serializer=pb.StreamCallsRequest.SerializeToString,
        response_deserializer=pb.StreamCallsResponse.FromString,
    )
    rpc = open_stream(metadata=metadata)
    try:
        with anyio.fail_after(LIMIT_S):
            first = await rpc.read()
        assert isinstance(first, pb.StreamCallsResponse)
        yield CallStream(rpc, first.steps[0].ready)
    finally:
        rpc.cancel()
