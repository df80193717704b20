"""Many calls over one stream (StreamCalls): each is served as a CallMethod of its own, by the same code.

    caller ──> reader ──> a task per call: CallMethod ──────────────────> outbox ──> writer ──> caller
                    └───> a task per answer: AnswerPendingRequest ──────────┘

A caller that answers what its call is asked is a worker for as long as the call takes.

A call counts as under way until the writer takes its end, so a caller that reads slowly holds up its own calls only.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import anyio

from hubbub.v1 import call_pb2 as pb
from hubbub.v1 import inbox_pb2
from hubbubd.core.access import Principal
from hubbubd.core.calls.call_faults import cancelled_fault
from hubbubd.core.calls.call_states import Call
from hubbubd.core.tally import Tally
from hubbubd.errors import InvalidArgument, ResourceExhausted, Unavailable, UpstreamError
from hubbubd.rpc import status
from hubbubd.rpc.auth import access
from hubbubd.rpc.context import current, principal
from hubbubd.rpc.messages import api_records, requests
from hubbubd.rpc.methods import Unary, Write
from hubbubd.runtime.calls import Calls, LogEvent, ProgressEvent
from hubbubd.runtime.inbox import Assigned, AssignmentOver, Work, Worker
from hubbubd.telemetry.trace import CURRENT_TRACE, parse_trace

MAX_CALLS = 1000
"""The most calls in progress on one stream, and the most answers."""

MAX_STEPS = 1000
"""The most steps in one message of a caller."""

MAX_UNWRITTEN = 2 * MAX_CALLS
"""While as many steps wait to be written, the hub reads no further; refusals beyond MAX_CALLS are among them."""

MAX_UNWRITTEN_LOGS = 256
"""While as many steps wait to be written, log lines are dropped, as a watch drops them."""

MAX_BATCH_BYTES = 64 * 1024
"""The most bytes of steps that share a message: gRPC costs most per message, so short ones are batched."""

NOTICE_S = 1.0
"""Seconds for which a stream takes calls after its caller was notified that the hub shuts down."""

DEFAULT_RESPONSE_BYTES = 4 * 1024 * 1024
"""The longest response that gRPC's clients accept by default."""


Start = pb.StreamCallsRequest.Start
Answer = pb.StreamCallsRequest.Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStreamServer:
    """Serves streams of calls.

    `serve` is CallMethod and `answer` AnswerPendingRequest, with their middleware. `hold` counts a worker as an open
    stream of its caller.
    """

    calls: Calls
    work: Work
    serve: Unary
    answer: Unary
    hold: Callable[[Principal], AbstractContextManager[None]]
    max_request_bytes: int

    async def run(self, steps: AsyncIterator[pb.StreamCallsRequest], write: Write) -> None:
        """Serve one stream until its caller has no more calls.

        Raises InvalidArgument for a step that belongs to no call, and Unavailable (SHUTTING_DOWN).
        """
        with self.calls.drain_delays.hold():
            # A stream that opens while the hub shuts down gets the error below at once.
            if not self.calls.draining:
                await self._run(steps, write)
        if self.calls.draining:
            raise _shutting_down_error()

    async def _run(self, steps: AsyncIterator[pb.StreamCallsRequest], write: Write) -> None:
        """Serve one stream until its caller has no more calls, or the hub shuts down."""
        ready = pb.StreamCallsResponse.Ready(
            max_calls=MAX_CALLS, max_request_bytes=self.max_request_bytes, takes_answers=True
        )
        await write(_serialize_step(ready=ready))
        stream = _CallStream(self, write)
        async with asyncio.TaskGroup() as tasks:  # not anyio's, whose tasks cost five times as much
            reader = tasks.create_task(stream.read(steps, tasks))
            announcer = tasks.create_task(stream.announce_shutdown())
            await stream.write()
            reader.cancel()
            announcer.cancel()


class _CallStream:
    """One stream of calls and answers."""

    def __init__(self, streams: CallStreamServer, write: Write) -> None:
        self._streams = streams
        self._write = write
        self._calls: dict[int, asyncio.Task[None] | None] = {}
        self._answers: dict[int, asyncio.Task[None] | None] = {}
        """By id, the task of a call or answer until its end is taken for writing; None for a refused one."""
        self._workers: dict[int, Worker] = {}
        """By the id of a call, the worker that stands for its caller."""
        self._open_answer_ids = Tally()
        """Ids of pending requests that an answer of this stream is being given to, with the number of answers."""
        self._outbox: OrderedDict[object, tuple[int, bytes]] = OrderedDict()
        """Steps to write, by call and kind, each with the id of the call or answer that it ends, or 0."""
        self._outbox_filled = asyncio.Event()
        self._outbox_emptied = asyncio.Event()
        self._takes_no_calls = False

    async def read(self, steps: AsyncIterator[pb.StreamCallsRequest], tasks: asyncio.TaskGroup) -> None:
        """Read steps until the caller has no more; start and cancel calls and answers. Raises InvalidArgument."""
        async for message in steps:
            if len(message.steps) > MAX_STEPS:
                problem = f"has {len(message.steps)} entries; at most {MAX_STEPS} are taken"
                raise InvalidArgument.field("steps", problem)
            for step in message.steps:
                self._handle_step(step, tasks)
                while len(self._outbox) >= MAX_UNWRITTEN:
                    self._outbox_emptied.clear()
                    await self._outbox_emptied.wait()
        self._stop_taking_calls()

    def _handle_step(self, step: pb.StreamCallsRequest.Step, tasks: asyncio.TaskGroup) -> None:
        """Carry out a step: start or cancel a call or answer, or skip a pending request. Raises InvalidArgument."""
        match step.WhichOneof("step"):
            case "start":
                self._start_task("start", step.start.id, tasks, self._calls, lambda: self._make_call(step.start))
            case "answer":
                self._start_task(
                    "answer", step.answer.id, tasks, self._answers, lambda: self._answer_request(step.answer)
                )
            case "cancel":
                if (task := self._calls.get(step.cancel.id) or self._answers.get(step.cancel.id)) is not None:
                    task.cancel()
            case "skip":
                request_id = requests.identifier(step.skip.pending_request_id, "skip.pending_request_id")
                if (worker := self._workers.get(step.skip.id)) is not None:
                    self._streams.work.skip(worker, request_id)
            case _:
                raise InvalidArgument.field("step", "must be one of start, answer, cancel, skip")

    async def announce_shutdown(self) -> None:
        """Notify the caller once the hub shuts down, and take no further calls NOTICE_S later."""
        calls = self._streams.calls
        await calls.closing.wait()
        self._enqueue_step(0, "closing", _serialize_step(closing=pb.StreamCallsResponse.Closing()))
        with anyio.move_on_after(NOTICE_S):
            await calls.stopped.wait()
        self._stop_taking_calls()

    async def write(self) -> None:
        """Write what is in the outbox, until the stream takes no more calls, and all calls and answers have ended."""
        while not self._takes_no_calls or self._calls or self._answers:
            await self._outbox_filled.wait()
            self._outbox_filled.clear()
            while self._outbox:
                await self._write(self._take_message())
                self._outbox_emptied.set()

    def _take_message(self) -> bytes:
        """Take the next steps out of the outbox, as one message; free the ids of calls that end with them."""
        message = b""
        while self._outbox:
            key = next(iter(self._outbox))
            call_id, step = self._outbox[key]
            if message and len(message) + len(step) > MAX_BATCH_BYTES:
                break
            del self._outbox[key]
            # Before it is written: a caller that has read it may use the id again.
            self._calls.pop(call_id, None)
            self._answers.pop(call_id, None)
            message += step  # repeated fields of messages one after the other are one list
        return message

    def _stop_taking_calls(self) -> None:
        """Refuse further calls; `write` returns once all open calls and answers have ended."""
        self._takes_no_calls = True
        self._outbox_filled.set()

    def _start_task(
        self,
        name: str,
        id_: int,
        tasks: asyncio.TaskGroup,
        running: dict[int, asyncio.Task[None] | None],
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Start a task for a call or an answer; enqueue a refusal beyond MAX_CALLS, or for a call after the end.

        Raises InvalidArgument for an id that is not above 0, or in use.
        """
        if id_ <= 0:
            raise InvalidArgument.field(f"{name}.id", "must be above 0")
        if id_ in self._calls or id_ in self._answers:
            problem = f"{id_} is the id of a call or an answer that is under way on this stream"
            raise InvalidArgument.field(f"{name}.id", problem)
        is_late = self._takes_no_calls and running is self._calls
        if is_late or len(running) >= MAX_CALLS:
            running[id_] = None
            self._enqueue_end(
                id_,
                _serialize_failure(id_, _shutting_down_error(begun="false") if is_late else _too_many_calls_error()),
            )
            return
        task = running[id_] = tasks.create_task(work())
        task.add_done_callback(lambda done: self._report_cancelled(id_) if done.cancelled() else None)

    async def _make_call(self, start: Start) -> None:
        """Make a call, and enqueue its end for the caller."""

        async def serve_call() -> bytes:
            """Make the call, and return its last step. Raises ResourceExhausted for a step too long for the caller."""
            limit = requests.max_response_bytes(start, "start") or DEFAULT_RESPONSE_BYTES
            with (
                self._report_changes(start, limit) if start.follow else nullcontext(),
                self._register_worker(start, limit) if start.answers else nullcontext(),
            ):
                response = await self._serve_in_time(start)
            return _check_size(
                limit, _serialize_step(id=start.id, completed=response), "GetCall", call_id=response.call.id
            )

        await self._report_outcome(start, serve_call)

    async def _answer_request(self, answer: Answer) -> None:
        """Answer a pending request, and enqueue for the caller whether the answer was accepted."""

        async def serve_answer() -> bytes:
            """Give the answer, and return its last step. Raises ResourceExhausted for a step that is too long."""
            limit = requests.max_response_bytes(answer, "answer") or DEFAULT_RESPONSE_BYTES
            self._open_answer_ids.add(answer.request.id)
            try:
                response = cast("inbox_pb2.AnswerPendingRequestResponse", await self._streams.answer(answer.request))
            finally:
                self._open_answer_ids.subtract(answer.request.id)
            step_bytes = _serialize_step(id=answer.id, answered=response)
            return _check_size(
                limit, step_bytes, "the answer is accepted; GetPendingRequest", request=answer.request.id
            )

        await self._report_outcome(answer, serve_answer)

    async def _report_outcome(self, started: Start | Answer, serve: Callable[[], Awaitable[bytes]]) -> None:
        """Serve a call or an answer, and enqueue its last step: the one that `serve` returns, or its failure."""
        CURRENT_TRACE.set(parse_trace({"traceparent": started.traceparent, "tracestate": started.tracestate}))
        try:
            step_bytes = await serve()
        except Exception as exc:  # noqa: BLE001 - every error gets a status; cancellation is not an Exception
            step_bytes = _serialize_failure(started.id, exc)
        self._enqueue_end(started.id, step_bytes)

    async def _serve_in_time(self, start: Start) -> pb.CallMethodResponse:
        """Make a call, and return its response. Raises UpstreamError (WAIT_OVER) after the time its caller waits."""
        if not start.HasField("wait"):
            return cast("pb.CallMethodResponse", await self._streams.serve(start.request))
        wait = asyncio.timeout(requests.wait_s(start))
        try:
            async with wait:
                return cast("pb.CallMethodResponse", await self._streams.serve(start.request))
        except TimeoutError:
            if wait.expired():
                raise status.wait_over_error() from None
            raise

    @contextmanager
    def _report_changes(self, start: Start, limit: int) -> Generator[None]:
        """Enqueue changes, progress and logs of a call during the block, as far as the caller may see the call."""
        call_id, visible, calls = requests.followed_call_id(start), access.visible_scope(), self._streams.calls

        def on_event(call: Call, live: object) -> None:
            """Enqueue a change, progress or a log line of the call, as long as it has not ended."""
            if not visible.has_call(call) or call.state.ended:
                return
            match live:
                case None:
                    self._enqueue_step(
                        start.id,
                        "changed",
                        _serialize_step(id=start.id, changed=api_records.call(call, visible)),
                        limit,
                    )
                case ProgressEvent():
                    self._enqueue_step(
                        start.id, "progress", _serialize_step(id=start.id, progress=api_records.progress(live)), limit
                    )
                case LogEvent() if len(self._outbox) < MAX_UNWRITTEN_LOGS:
                    self._enqueue_step(
                        start.id, object(), _serialize_step(id=start.id, log=api_records.call_log(live)), limit
                    )
                case _:
                    pass

        if (call := calls.find(call_id)) is not None:
            on_event(call, None)
        with calls.listen(call_id, on_event):
            yield

    @contextmanager
    def _register_worker(self, start: Start, limit: int) -> Generator[None]:
        """Make the caller a worker during the block, which is assigned the pending requests of its call.

        Raises ResourceExhausted.
        """
        work, request_filter = self._streams.work, requests.answered_requests(start, access.answerable_scope())
        assigned_ids: set[str] = set()

        def on_assignment(step: Assigned | AssignmentOver) -> None:
            """Enqueue a pending request for the caller, or the end of its assignment; skip requests too long for it."""
            match step:
                case Assigned(request):
                    step_bytes = _serialize_step(id=start.id, assigned=api_records.request(request, with_claim_id=True))
                    if self._enqueue_step(start.id, ("assigned", request.id), step_bytes, limit):
                        assigned_ids.add(request.id)
                    else:
                        work.skip(worker, request.id)
                case AssignmentOver(id=id_, state=state) if id_ in assigned_ids:
                    assigned_ids.discard(id_)
                    if not self._withdraw_assignment(start.id, id_):
                        revoked = inbox_pb2.WorkResponse.Revoked(id=id_, state=api_records.REQUEST_STATES[state])
                        # The caller that answered it gets the response in a moment: one message has both.
                        at_once = not self._open_answer_ids[id_]
                        self._enqueue_step(
                            start.id, ("revoked", id_), _serialize_step(id=start.id, revoked=revoked), limit, at_once
                        )
                case AssignmentOver():
                    pass

        with (
            self._streams.hold(principal()),
            work.join(
                principal().name, request_filter, 1, current().is_credential_valid, on_step=on_assignment
            ) as worker,
        ):
            self._workers[start.id] = worker
            try:
                yield
            finally:
                del self._workers[start.id]
                for id_ in assigned_ids:
                    self._withdraw_assignment(start.id, id_)

    def _withdraw_assignment(self, call_id: int, request_id: str) -> bool:
        """Remove an assignment that is still unwritten, and return whether there was one.

        The caller then gets neither the assignment nor its end, so that a caller that reads nothing takes no memory.
        """
        return self._outbox.pop((call_id, ("assigned", request_id)), None) is not None

    def _enqueue_step(
        self, call_id: int, kind: object, step: bytes, limit: int = DEFAULT_RESPONSE_BYTES, at_once: bool = True
    ) -> bool:
        """Put a step of a call into the outbox, and return True; return False for a step of more than `limit` bytes.

        The step replaces an unwritten one of its kind. Without `at_once` it is written together with the next step.
        """
        if len(step) > limit:
            return False
        self._outbox.pop((call_id, kind), None)
        self._outbox[call_id, kind] = 0, step
        if at_once:
            self._outbox_filled.set()
        return True

    def _report_cancelled(self, call_id: int) -> None:
        """Enqueue the end of a cancelled call, for a task that may not have started to run."""
        self._enqueue_end(call_id, _serialize_failure(call_id, UpstreamError(cancelled_fault("its caller hung up"))))

    def _enqueue_end(self, call_id: int, step: bytes) -> None:
        """Put the last step of a call or an answer into the outbox; once it is taken out, the id is free again."""
        self._outbox[call_id, "end"] = call_id, step
        self._outbox_filled.set()


def _serialize_step(**step: Any) -> bytes:
    """Return a response with one step, serialized; the arguments are the fields of the step."""
    message = pb.StreamCallsResponse()
    message.steps.add(**step)  # copied once: a result may be long
    return message.SerializeToString()


def _serialize_failure(call_id: int, exc: Exception) -> bytes:
    """Return a response with the step that says why a call or an answer failed."""
    return _serialize_step(id=call_id, failed=status.status_of(exc).SerializeToString())


def _check_size(limit: int, response: bytes, source: str, **metadata: str) -> bytes:
    """Return a response. Raises ResourceExhausted if it is too long; `source` names the RPC that still returns it."""
    if len(response) <= limit:
        return response
    raise ResourceExhausted(
        f"the response is {len(response)} bytes long, its caller takes {limit}; {source} has it",
        reason="MESSAGE_TOO_LARGE",
        metadata={"limit": str(limit), **metadata},
    )


def _too_many_calls_error() -> ResourceExhausted:
    """Return the error for a call, or an answer, beyond MAX_CALLS on one stream."""
    return ResourceExhausted(
        f"{MAX_CALLS} calls, or answers, are under way on this stream; that is as many as one may have",
        reason="TOO_MANY_CALLS",
        metadata={"limit": str(MAX_CALLS)},
    )


def _shutting_down_error(**metadata: str) -> Unavailable:
    return Unavailable("the hub is shutting down", reason="SHUTTING_DOWN", metadata=metadata)
