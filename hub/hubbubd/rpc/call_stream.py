"""Many calls over one stream (StreamCalls): each is served as a CallMethod of its own, by the same code.

    caller ──> reader ──> a task per call: CallMethod ──> outbox ──> writer ──> caller

A call counts as under way until the writer takes its end, so a caller that reads slowly holds up its own calls only.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, cast

import anyio

from hubbub.v1 import call_pb2 as pb
from hubbubd.core.call_faults import cancelled
from hubbubd.core.calls import Call
from hubbubd.errors import Category, Fault, InvalidArgument, NotFound, ResourceExhausted, Unavailable, UpstreamError
from hubbubd.rpc import access, convert, requests, status
from hubbubd.rpc.methods import Unary, Write
from hubbubd.runtime.calls import Calls, LogEvent, ProgressEvent
from hubbubd.telemetry.trace import CURRENT_TRACE, parsed

MAX_CALLS = 1000
"""The most calls under way on one stream."""

MAX_STEPS = 1000
"""The most steps in one message of a caller."""

MAX_UNWRITTEN = 2 * MAX_CALLS
"""The most steps that wait to be written before the hub reads no further; refusals of calls too many are among them."""

LOG_ROOM = 256
"""While as many steps wait to be written, log lines are dropped; a watch drops them, too."""

TOGETHER_BYTES = 64 * 1024
"""Steps that wait to be written go together up to this size: gRPC takes its price per message."""

DEFAULT_RESPONSE_BYTES = 4 * 1024 * 1024
"""The longest response that gRPC's clients take unless told otherwise."""


@dataclass(frozen=True, slots=True)
class CallStreams:
    """What all streams of calls have in common. `serve` is CallMethod, with all that is around it."""

    calls: Calls
    serve: Unary
    max_request_bytes: int

    async def run(self, steps: AsyncIterator[pb.StreamCallsRequest], write: Write) -> None:
        """Serve one stream until its caller has no more calls.

        Raises InvalidArgument for a step that belongs to no call, and Unavailable (SHUTTING_DOWN).
        """
        ready = pb.StreamCallsResponse.Ready(max_calls=MAX_CALLS, max_request_bytes=self.max_request_bytes)
        await write(_step(ready=ready))
        stream = _CallStream(self, write)
        async with asyncio.TaskGroup() as tasks:  # not anyio's, whose tasks cost five times as much
            reading = tasks.create_task(stream.read(steps, tasks))
            closing = tasks.create_task(stream.close_after(self.calls.stopped))
            await stream.write()
            reading.cancel()
            closing.cancel()
        if self.calls.stopped.is_set():
            raise Unavailable("the hub is shutting down", reason="SHUTTING_DOWN")


class _CallStream:
    """One stream."""

    def __init__(self, streams: CallStreams, write: Write) -> None:
        self._streams = streams
        self._write = write
        self._under_way: dict[int, asyncio.Task[None] | None] = {}
        self._outbox: OrderedDict[object, tuple[int, bytes]] = OrderedDict()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    async def read(self, steps: AsyncIterator[pb.StreamCallsRequest], tasks: asyncio.TaskGroup) -> None:
        """Begin and cancel calls as the caller says. Raises InvalidArgument."""
        async for message in steps:
            if len(message.steps) > MAX_STEPS:
                wrong = f"has {len(message.steps)} entries; at most {MAX_STEPS} are taken"
                raise InvalidArgument.field("steps", wrong)
            for step in message.steps:
                self._take(step, tasks)
                while len(self._outbox) >= MAX_UNWRITTEN:
                    self._room.clear()
                    await self._room.wait()
        self._close()

    def _take(self, step: pb.StreamCallsRequest.Step, tasks: asyncio.TaskGroup) -> None:
        match step.WhichOneof("step"):
            case "start":
                self._begin(step.start, tasks)
            case "cancel":
                if (call := self._under_way.get(step.cancel.id)) is not None:
                    call.cancel()
            case _:
                raise InvalidArgument.field("step", "must be one of start, cancel")

    async def close_after(self, stopped: anyio.Event) -> None:
        """Take no further calls once the hub has stopped."""
        await stopped.wait()
        self._close()

    async def write(self) -> None:
        """Write what the calls say, until the stream is closed and the last of them has ended."""
        while not self._closed or self._under_way:
            await self._news.wait()
            self._news.clear()
            while self._outbox:
                await self._write(self._next())
                self._room.set()

    def _next(self) -> bytes:
        """Take the next steps out of the outbox, as one message."""
        message = b""
        while self._outbox:
            key = next(iter(self._outbox))
            call_id, step = self._outbox[key]
            if message and len(message) + len(step) > TOGETHER_BYTES:
                break
            del self._outbox[key]
            self._under_way.pop(call_id, None)  # before it is written: a caller that has read it may use the id again
            message += step  # repeated fields of messages one after the other are one list
        return message

    def _close(self) -> None:
        self._closed = True
        self._news.set()

    def _begin(self, start: pb.StreamCallsRequest.Start, tasks: asyncio.TaskGroup) -> None:
        if start.id <= 0:
            raise InvalidArgument.field("start.id", "must be above 0")
        if start.id in self._under_way:
            raise InvalidArgument.field("start.id", f"{start.id} is the id of a call that is under way on this stream")
        if len(self._under_way) >= MAX_CALLS:
            self._under_way[start.id] = None
            self._say(start.id, _failed(start.id, _too_many()))
            return
        call = self._under_way[start.id] = tasks.create_task(self._call(start))
        call.add_done_callback(lambda done: self._cancelled(start.id) if done.cancelled() else None)

    async def _call(self, start: pb.StreamCallsRequest.Start) -> None:
        CURRENT_TRACE.set(parsed({"traceparent": start.traceparent, "tracestate": start.tracestate}))
        try:
            limit = requests.max_response_bytes(start) or DEFAULT_RESPONSE_BYTES
            with self._followed(start, limit) if start.follow else nullcontext():
                completed = await self._served(start)
            said = _step(id=start.id, completed=completed)
            _check_size(said, limit, completed.call.id)
        except Exception as exc:  # noqa: BLE001 - every error gets a status; cancellation is not an Exception
            said = _failed(start.id, exc)
        self._say(start.id, said)

    async def _served(self, start: pb.StreamCallsRequest.Start) -> pb.CallMethodResponse:
        """Make a call, for as long as its caller waits."""
        if not start.HasField("wait"):
            return cast("pb.CallMethodResponse", await self._streams.serve(start.request))
        wait = asyncio.timeout(requests.wait_s(start))
        try:
            async with wait:
                return cast("pb.CallMethodResponse", await self._streams.serve(start.request))
        except TimeoutError:
            if wait.expired():
                raise _wait_over() from None
            raise

    @contextmanager
    def _followed(self, start: pb.StreamCallsRequest.Start, limit: int) -> Generator[None]:
        """Tell the caller of what happens to a call meanwhile, as far as it may see the call."""
        call_id, seen, calls = requests.followed(start), access.reading(), self._streams.calls

        def tell(call: Call, live: object) -> None:
            if not seen.has_call(call) or call.state.ended:
                return
            match live:
                case None:
                    self._tell(start.id, "changed", _step(id=start.id, changed=convert.call(call, seen)), limit)
                case ProgressEvent():
                    self._tell(start.id, "progress", _step(id=start.id, progress=convert.progress(live)), limit)
                case LogEvent() if len(self._outbox) < LOG_ROOM:
                    self._tell(start.id, object(), _step(id=start.id, log=convert.call_log(live)), limit)
                case _:
                    pass

        with suppress(NotFound):  # it is most often new
            tell(calls.get(call_id), None)
        with calls.listen(call_id, tell):
            yield

    def _tell(self, call_id: int, kind: object, step: bytes, limit: int) -> None:
        """Put a step of a call into the outbox, if its caller takes it; it replaces an unwritten one of its kind."""
        if len(step) <= limit:
            self._outbox.pop((call_id, kind), None)
            self._outbox[call_id, kind] = 0, step
            self._news.set()

    def _cancelled(self, call_id: int) -> None:
        """Tell the caller that it has hung up. A call that was cancelled before it began says nothing by itself."""
        self._say(call_id, _failed(call_id, UpstreamError(cancelled("its caller hung up"))))

    def _say(self, call_id: int, step: bytes) -> None:
        """Put the end of a call into the outbox."""
        self._outbox[call_id, "end"] = call_id, step
        self._news.set()


def _step(**step: Any) -> bytes:
    message = pb.StreamCallsResponse()
    message.steps.add(**step)  # copied once: a result may be long
    return message.SerializeToString()


def _failed(call_id: int, exc: Exception) -> bytes:
    return _step(id=call_id, failed=status.status_of(exc).SerializeToString())


def _check_size(response: bytes, limit: int, call_id: str) -> None:
    """Raise ResourceExhausted for a response that is too long for its caller."""
    if len(response) > limit:
        raise ResourceExhausted(
            f"the response is {len(response)} bytes long, its caller takes {limit}; GetCall has it",
            reason="MESSAGE_TOO_LARGE",
            metadata={"limit": str(limit), "call_id": call_id},
        )


def _too_many() -> ResourceExhausted:
    return ResourceExhausted(
        f"{MAX_CALLS} calls are under way on this stream; that is as many as one may have",
        reason="TOO_MANY_CALLS",
        metadata={"limit": str(MAX_CALLS)},
    )


def _wait_over() -> UpstreamError:
    message = "the call took longer than its caller wanted to wait"
    return UpstreamError(Fault(code="WAIT_OVER", category=Category.TIMEOUT, message=message))
