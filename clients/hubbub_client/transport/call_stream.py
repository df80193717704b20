"""Carries the calls of a connection over one stream (StreamCalls), which costs less than an RPC for each.

The stream also carries the pending requests of a call that its caller answers, and the answers.

The stream is opened beside the second call, and used once the hub has accepted it; until then, and with a hub that does
not have it, a call is an RPC of its own. So nothing is sent on a stream that is about to be refused.
"""

import asyncio
import math
from collections.abc import Callable, Collection
from contextvars import Context
from itertools import count
from typing import TYPE_CHECKING, TypedDict

from grpc import StatusCode, aio

from hubbub.v1 import call_pb2 as pb
from hubbub.v1 import inbox_pb2
from hubbub_client.errors import (
    HubbubError,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    from_rpc,
    from_status,
)
from hubbub_client.transport import trace_context

if TYPE_CHECKING:
    Rpc = aio.StreamStreamCall[pb.StreamCallsRequest, pb.StreamCallsResponse]

Step = pb.StreamCallsResponse.Step
Kinds = Collection["inbox_pb2.PendingRequestKind.ValueType"]
OnStep = Callable[["CallStream", Step], None]
"""Gets each step of a call before its end, with the stream that carries it."""

ENDS = frozenset(("completed", "failed", "answered"))
SHUTTING_DOWN = "SHUTTING_DOWN"

# A longer request would delay the calls behind it, and takes so long that an RPC costs little more.
MAX_REQUEST_BYTES = 64 * 1024
# The most steps in one message; the hub takes 1000.
MAX_STEPS_PER_MESSAGE = 100
# A stream without calls is closed after this time, at the latest after twice as much.
IDLE_S = 60.0
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0


class TracePosition(TypedDict):
    """A place in a trace (W3C Trace Context)."""

    traceparent: str
    tracestate: str


class NotSent(Exception):
    """A call or an answer was not sent, for want of a stream, or the hub has not begun it; an RPC may be tried."""


class CallStream:
    """One stream that the hub has accepted."""

    def __init__(
        self,
        rpc: "Rpc",
        ready: pb.StreamCallsResponse.Ready,
        max_response_bytes: int,
        on_revision: Callable[[str], None] = lambda _: None,
        on_closing: Callable[[], None] = lambda: None,
    ) -> None:
        """`ready` is the hub's first response, with its limits; `on_revision` gets each revision that the hub reports.

        `on_closing` is called when the hub shuts down.
        """
        self._rpc = rpc
        self._on_revision = on_revision
        self._on_closing = on_closing
        self._max_calls = ready.max_calls
        self._takes_answers = ready.takes_answers
        # Half of what the hub reads: a step is longer than its request.
        self._max_request_bytes = min(MAX_REQUEST_BYTES, ready.max_request_bytes // 2)
        self._max_response_bytes = max_response_bytes
        self._ids = count(1)
        # Calls and answers under way, by id: a future for the last step, and the callback for the steps before it.
        self._pending: dict[int, tuple[asyncio.Future[Step], OnStep | None]] = {}
        self._answer_count = 0  # how many of `_pending` are answers
        self._unwritten: dict[object, pb.StreamCallsRequest.Step] = {}
        """Steps to write, by id; a skip by the ids of its call and of its pending request."""
        self._step_enqueued = asyncio.Event()
        self._is_retired = False  # whether this stream takes no more calls
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]
        # Whether anything was sent since the last check of the timer.
        self._is_used = False
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._retire_if_idle)

    @property
    def alive(self) -> bool:
        """Return whether calls can be sent on this stream."""
        return not (self._is_retired or self._rpc.done())

    @property
    def busy(self) -> bool:
        """Return whether calls or answers are under way on this stream."""
        return bool(self._pending)

    def can_take(self, request: pb.CallMethodRequest, *, with_answers: bool = False) -> bool:
        """Return whether this stream has room for one more call, and the request is not too long for it.

        `with_answers`: the hub must also take answers on this stream.
        """
        if not self.alive or len(self._pending) - self._answer_count >= self._max_calls:
            return False
        return request.ByteSize() <= self._max_request_bytes and (self._takes_answers or not with_answers)

    async def call(
        self,
        request: pb.CallMethodRequest,
        on_step: OnStep | None = None,
        *,
        follow: bool = False,
        answers: Kinds = (),
    ) -> pb.CallMethodResponse:
        """Make a call and wait for its end; cancelling the wait aborts the call. Raises HubbubError, and NotSent.

        `on_step` gets the progress and the changes of the call with `follow`, and the pending requests of the kinds
        that its caller `answers`. Both need a `call_id` in the request.
        """
        start = pb.StreamCallsRequest.Start(
            id=next(self._ids),
            request=request,
            max_response_bytes=self._max_response_bytes,
            follow=follow,
            answers=answers,
            **_trace_position(),
        )
        try:
            end = await self._send_and_wait(start.id, pb.StreamCallsRequest.Step(start=start), on_step)
        except HubbubError as error:
            raise _with_call_id(error, request.spec.call_id) from None
        return _require_success(end).completed

    async def answer(self, request: inbox_pb2.AnswerPendingRequestRequest) -> inbox_pb2.AnswerPendingRequestResponse:
        """Answer a pending request. Raises HubbubError, and NotSent if this stream has ended or has no room for it."""
        if not self.alive or self._answer_count >= self._max_calls or request.ByteSize() > self._max_request_bytes:
            raise NotSent
        answer = pb.StreamCallsRequest.Answer(
            id=next(self._ids), request=request, max_response_bytes=self._max_response_bytes, **_trace_position()
        )
        self._answer_count += 1
        try:
            return _require_success(
                await self._send_and_wait(answer.id, pb.StreamCallsRequest.Step(answer=answer))
            ).answered
        finally:
            self._answer_count -= 1

    def skip(self, call: int, pending_request_id: str) -> None:
        """Leave a pending request of a call to other clients, if the call is still under way on this stream."""
        if call in self._pending:
            skip = pb.StreamCallsRequest.Skip(id=call, pending_request_id=pending_request_id)
            self._enqueue((call, pending_request_id), pb.StreamCallsRequest.Step(skip=skip))

    async def _send_and_wait(self, id_: int, step: pb.StreamCallsRequest.Step, on_step: OnStep | None = None) -> Step:
        """Send a step, and return the hub's last step about it: its result, or its failure.

        Raises NotSent, and HubbubError for a broken stream.
        """
        self._is_used = True
        end: asyncio.Future[Step] = asyncio.get_running_loop().create_future()
        self._pending[id_] = end, on_step
        self._enqueue(id_, step)
        try:
            return await end
        except asyncio.CancelledError:
            self._cancel_step(id_)
            raise

    def _handle_shutdown(self) -> None:
        """Retire the stream, since its hub shuts down, and call `on_closing`. Unwritten steps fail with NotSent."""
        self._is_retired = True
        for id_ in [id_ for id_ in self._pending if id_ in self._unwritten]:
            del self._unwritten[id_]
            end, _ = self._pending.pop(id_)
            if not end.done():
                end.set_exception(NotSent())
        self._on_closing()

    def retire(self) -> None:
        """Take no further calls; those under way may finish."""
        self._is_retired = True
        if not self._pending:
            self.end(HubbubError("no call is left to fail"))  # the error reaches nobody

    def end(self, error: HubbubError | NotSent, unsent: HubbubError | None = None) -> None:
        """End the stream. Each call under way fails with the error, one that was not sent with `unsent` or NotSent."""
        self._is_retired = True
        self._timer.cancel()
        self._rpc.cancel()
        for task in self._tasks:
            task.cancel()
        pending, self._pending = self._pending, {}
        for id_, (end, _) in pending.items():
            if not end.done():
                end.set_exception((unsent or NotSent()) if id_ in self._unwritten else error)

    def _enqueue(self, key: object, step: pb.StreamCallsRequest.Step) -> None:
        """Queue a step to be written, in place of an unwritten step with this key, if there is one."""
        self._unwritten[key] = step
        self._step_enqueued.set()

    def _cancel_step(self, id_: int) -> None:
        """Drop a step that is not written yet, else tell the hub to cancel it."""
        if self._pending.pop(id_, None) is None:
            return  # it has ended
        if self._unwritten.pop(id_, None) is None:
            self._enqueue(id_, pb.StreamCallsRequest.Step(cancel=pb.StreamCallsRequest.Cancel(id=id_)))

    async def _write(self) -> None:
        """Write steps as they come, several in a message; end the RPC when that fails or this task is cancelled."""
        # Callers do not write by themselves: a write that is cancelled would end the stream.
        try:
            while True:
                await self._step_enqueued.wait()
                self._step_enqueued.clear()
                while self._unwritten:
                    await self._rpc.write(pb.StreamCallsRequest(steps=self._take_steps()))
        except (aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader says why it broke
        finally:
            self._rpc.cancel()

    def _take_steps(self) -> list[pb.StreamCallsRequest.Step]:
        """Remove the next steps from the queue for one message: at least one, up to the limits of bytes and of steps.

        They go together since gRPC costs per message.
        """
        steps: list[pb.StreamCallsRequest.Step] = []
        bytes_left = self._max_request_bytes
        for key, step in list(self._unwritten.items()):
            bytes_left -= step.ByteSize()
            if steps and (bytes_left < 0 or len(steps) == MAX_STEPS_PER_MESSAGE):
                break
            steps.append(self._unwritten.pop(key))
        return steps

    async def _read(self) -> None:
        """Handle the responses of the hub until the stream ends; then calls and answers under way fail."""
        error = HubbubError("it has ended")
        try:
            while isinstance(response := await self._rpc.read(), pb.StreamCallsResponse):
                if response.revision:
                    self._on_revision(response.revision)
                for step in response.steps:
                    self._handle_step(step)
        except aio.AioRpcError as failure:
            error = from_rpc(failure)
        except aio.BaseError as failure:
            error = HubbubError(str(failure))
        finally:
            self.end(_stream_error(error))

    def _handle_step(self, step: Step) -> None:
        """Pass a step to the call or the answer that it is about; retire the stream if the hub shuts down."""
        end, on_step = self._pending.get(step.id, (None, None))
        if end is not None and step.WhichOneof("step") in ENDS:
            del self._pending[step.id]
            if not end.done():
                end.set_result(step)
        elif step.HasField("closing"):
            self._handle_shutdown()
        elif on_step is not None:
            on_step(self, step)
        if self._is_retired and not self._pending:
            self.retire()  # which ends the stream after its last call

    def _retire_if_idle(self) -> None:
        """End the stream if no call was made since the last check."""
        if not (self._is_used or self._pending):
            self.retire()
            return
        self._is_used = False
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._retire_if_idle)


class ClientCallStreams:
    """The streams of one connection, one at a time: another hub, or another token, takes another stream."""

    def __init__(self, max_response_bytes: int, on_revision: Callable[[str], None] = lambda _: None) -> None:
        """`on_revision` gets each revision that the hub reports, if the metadata of the stream request that."""
        self._max_response_bytes = max_response_bytes
        self._on_revision = on_revision
        # The channel and the credentials of the stream.
        self._key: object = None
        # How many calls found no stream; for the first call none is opened.
        self._call_count = 0
        self._stream: CallStream | None = None
        # Streams that take no more calls, but have some under way.
        self._retired: list[CallStream] = []
        self._opening: asyncio.Task[None] | None = None
        # After a failure no stream is opened before this time of the loop's clock.
        self._open_after = -math.inf
        self._pause_s = FIRST_PAUSE_S

    def current(self, key: object) -> CallStream | None:
        """Return the stream for a key; None if the hub has accepted none. Retire a stream for another key."""
        self._switch_to(key)
        return self._stream if self._stream is not None and self._stream.alive else None

    def open_if_needed(
        self, key: object, open_rpc: "Callable[[], Rpc]", on_closing: Callable[[], None] = lambda: None
    ) -> None:
        """Open a stream for a key if there is none, unless this is the first call, or a stream has just failed.

        `on_closing` is called when the hub of the stream shuts down.
        """
        self._switch_to(key)
        if self._opening is not None or (self._stream is not None and self._stream.alive):
            return
        self._call_count += 1
        clock = asyncio.get_running_loop()
        if self._call_count > 1 and clock.time() >= self._open_after:
            # In a context of its own, since the stream belongs to no call's trace.
            self._opening = clock.create_task(self._open(open_rpc(), on_closing), context=Context())

    def end(self, error: HubbubError) -> None:
        """End all streams; their calls fail with the error."""
        self._reset()
        for stream in self._retired:
            stream.end(error, error)  # unsent calls fail as well: no other way is left to them

    def _switch_to(self, key: object) -> None:
        """Retire the current stream if it is for another key."""
        if key != self._key:
            self._reset()
            self._key = key

    def _reset(self) -> None:
        """Retire the stream, stop opening another, and forget failures, so that the next may be opened at once."""
        if self._opening is not None:
            self._opening.cancel()
        self._retire_current()
        self._opening = None
        self._open_after, self._pause_s = -math.inf, FIRST_PAUSE_S

    def _retire_current(self) -> None:
        """Retire the stream, and store it as long as calls are under way on it."""
        if self._stream is not None:
            self._stream.retire()
            self._retired = [each for each in (*self._retired, self._stream) if each.busy]
        self._stream = None

    async def _open(self, rpc: "Rpc", on_closing: Callable[[], None]) -> None:
        """Wait until the hub reports that a stream is ready, and use it.

        After a failure the pause before the next stream is longer; a hub without this RPC is not asked again.
        """
        pause_s = self._pause_s
        try:
            first = await rpc.read()
            if isinstance(first, pb.StreamCallsResponse) and first.steps:
                ready = first.steps[0].ready
                self._retire_current()
                self._stream = CallStream(rpc, ready, self._max_response_bytes, self._on_revision, on_closing)
                pause_s = 0.0
        except aio.AioRpcError as failure:
            pause_s = math.inf if failure.code() is StatusCode.UNIMPLEMENTED else pause_s
            if from_rpc(failure).reason == SHUTTING_DOWN:
                on_closing()
        finally:
            if self._opening is asyncio.current_task():  # else `_reset` has begun again meanwhile
                self._opening = None
                self._open_after = asyncio.get_running_loop().time() + pause_s
                self._pause_s = min(2 * pause_s, LAST_PAUSE_S) if pause_s else FIRST_PAUSE_S


def _require_success(end: Step) -> Step:
    """Return the last step of a call or an answer, if it is no failure.

    Raises the error of the step: HubbubError, or NotSent if a hub that shuts down had not begun the call.
    """
    if end.HasField("failed"):
        error = from_status(end.failed)
        raise NotSent if error.reason == SHUTTING_DOWN and error.metadata.get("begun") == "false" else error
    return end


def _trace_position() -> TracePosition:
    """Return the caller's place in a trace, as fields of a step; empty without a trace."""
    metadata = dict(trace_context.metadata())
    return {"traceparent": metadata.get("traceparent", ""), "tracestate": metadata.get("tracestate", "")}


def _stream_error(error: HubbubError) -> HubbubError | NotSent:
    """Return the error of the calls on a stream that ended with `error`: Unavailable, unless the caller was refused.

    Return NotSent if the hub shuts down: that hub has reported the end of each call that it had begun.
    """
    if error.reason == SHUTTING_DOWN:
        return NotSent()
    if isinstance(error, (PermissionDenied, Unauthenticated)):
        return error
    is_unavailable = isinstance(error, Unavailable)
    why = error.message if is_unavailable else f"the stream of calls broke: {error.message}"
    return Unavailable(
        f"{why}; this call had been sent, and the hub aborts it",
        reason=error.reason if is_unavailable else "STREAM_ENDED",
        metadata=error.metadata,
        retry_after_s=error.retry_after_s,
        help_url=error.help_url,
    )


def _with_call_id(error: HubbubError, call_id: str) -> HubbubError:
    """Return an error of the stream with the id of a call in its metadata; unchanged metadata for an empty id."""
    return type(error)(
        error.message,
        reason=error.reason,
        metadata={**error.metadata, "call_id": call_id} if call_id else error.metadata,
        retry_after_s=error.retry_after_s,
        help_url=error.help_url,
        code=error.code,
    )
