"""`hub.calls`: MCP requests to servers, through the hub."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hubbub.v1 import call_pb2
from hubbub_client import events, numbers, payload
from hubbub_client.errors import HubbubError
from hubbub_client.events import CallEvent, Progressed, Synced, Upsert
from hubbub_client.link import Link, Page, pages
from hubbub_client.reading import enum_numbers, read
from hubbub_client.records import Call, CallState, Progress, QueueCounts
from hubbub_client.waits import beside, within
from hubbub_client.watch import follow

# How long a call that has ended waits for the last of its progress.
LAST_NEWS_S = 1.0

A = TypeVar("A")
OnProgress = Callable[[Progress], Awaitable[None] | None]
OnPending = Callable[[str], Awaitable[None] | None]


class Calls:
    """CallService. Every method raises HubbubError; a call that does not exist is NotFound."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def call(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        max_s: float | None = None,
        call_id: str | None = None,
        detached: bool = False,
        as_task: bool = False,
        on_progress: OnProgress | None = None,
        on_pending: OnPending | None = None,
        on_perhaps_pending: OnPending | None = None,
    ) -> Call:
        """Sends a request and waits for its end: the completed call, with its result.

        A cancelled wait aborts the call unless it is `detached`. The same `call_id` again finds the same call.
        `as_task` has the server carry out a tools/call as a task, found by `task_id` among `hub.tasks`.
        `on_progress` is told how far it is, `on_pending` the id of each request that it puts into the inbox,
        `on_perhaps_pending` of each that it or another call has put there; each may be a coroutine
        function. What they raise aborts the call and comes out of here.
        Raises HubbubError, UpstreamError where the server answered with an error.
        """
        reporter = _Reporter(on_progress, on_pending, on_perhaps_pending)
        reported = reporter != _Reporter()
        call_id = call_id or (secrets.token_hex(16) if reported else None)
        request = call_pb2.CallMethodRequest(
            spec=_spec(server, method, params, call_id, timeout_s, max_s, as_task), detached=detached
        )
        if not reported or call_id is None:
            return await self._call(request)
        return await self._reported(request, call_id, reporter)

    async def _reported(
        self,
        request: call_pb2.CallMethodRequest,
        call_id: str,
        reporter: "_Reporter",
    ) -> Call:
        outcome: Call | HubbubError | None = None
        following, ended = asyncio.Event(), asyncio.Event()
        # What a callback raises, or the watch for it, aborts the call.
        async with beside(self._report(call_id, reporter, following, ended)):
            await following.wait()
            try:
                outcome = await self._call(request)
            except HubbubError as error:
                outcome = error
            else:
                with contextlib.suppress(TimeoutError):
                    async with within(LAST_NEWS_S):
                        await ended.wait()
        if isinstance(outcome, Call):
            return outcome
        raise outcome or AssertionError("the block ends with an outcome or raises")

    async def start(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        max_s: float | None = None,
        call_id: str | None = None,
        as_task: bool = False,
    ) -> Call:
        """Queues a detached call and returns at once."""
        request = call_pb2.StartCallRequest(spec=_spec(server, method, params, call_id, timeout_s, max_s, as_task))
        answer = await self._link.call(lambda hub: hub.calls.StartCall, request)
        return read(Call, answer.call)

    async def list(
        self, *, server: str | None = None, states: Collection[CallState] = (), limit: int | None = None
    ) -> Sequence[Call]:
        """Calls, newest first; every condition given must hold."""
        condition = _filter(server, states, ())

        async def page(which: Page) -> tuple[Sequence[Call], str]:
            request = call_pb2.ListCallsRequest(filter=condition, **which)
            answer = await self._link.call(lambda hub: hub.calls.ListCalls, request)
            return [read(Call, each) for each in answer.calls], answer.next_page_token

        return await pages(page, limit)

    async def get(self, id: str) -> Call:  # noqa: A002 - the field's name
        """One call."""
        answer = await self._link.call(lambda hub: hub.calls.GetCall, call_pb2.GetCallRequest(id=id))
        return read(Call, answer.call)

    async def cancel(self, id: str, *, abort: bool = False) -> Call:  # noqa: A002
        """Cancels a call that is queued or waits for input; one on the wire only with `abort`."""
        request = call_pb2.CancelCallRequest(id=id, abort=abort)
        answer = await self._link.call(lambda hub: hub.calls.CancelCall, request)
        return read(Call, answer.call)

    async def queue(self, server: str) -> QueueCounts:
        """How many calls of a server are in each state."""
        answer = await self._link.call(lambda hub: hub.calls.GetQueue, call_pb2.GetQueueRequest(server=server))
        return read(QueueCounts, answer.counts)

    async def clear_queue(self, server: str) -> QueueCounts:
        """Cancels all queued calls of a server; the counts afterwards."""
        request = call_pb2.ClearQueueRequest(server=server)
        answer = await self._link.call(lambda hub: hub.calls.ClearQueue, request)
        return read(QueueCounts, answer.counts)

    def watch(
        self,
        *,
        server: str | None = None,
        states: Collection[CallState] = (),
        ids: Collection[str] = (),
        resume_token: str | None = None,
    ) -> AsyncGenerator[CallEvent, None]:
        """Snapshot and changes of calls, with progress and log lines in between (these are seen live only)."""
        condition = _filter(server, states, ids)
        return follow(
            self._link,
            lambda hub: hub.calls.WatchCalls,
            lambda token: call_pb2.WatchCallsRequest(filter=condition, resume_token=token),
            events.read_call,
            resume_token,
        )

    async def _call(self, request: call_pb2.CallMethodRequest) -> Call:
        answer = await self._link.call(lambda hub: hub.calls.CallMethod, request)
        return read(Call, answer.call)

    async def _report(
        self,
        call_id: str,
        reporter: "_Reporter",
        following: asyncio.Event,
        ended: asyncio.Event,
    ) -> None:
        """Tells what happens to a call until it has ended; `following` when nothing can be missed any more."""
        async with contextlib.aclosing(self.watch(ids=[call_id])) as news:
            async for event in news:
                match event:
                    case Synced():
                        following.set()
                    case Progressed(progress=progress) if reporter.on_progress:
                        await tell(reporter.on_progress, progress)
                    case Upsert(record=call):
                        await reporter.asked(call)
                        if call.ended:
                            ended.set()
                    case _:
                        pass


@dataclass
class _Reporter:
    """Who wants to be told of a call while it goes on, and which questions they were told of."""

    on_progress: OnProgress | None = None
    on_pending: OnPending | None = None
    on_perhaps_pending: OnPending | None = None
    told: set[tuple[bool, str]] = field(default_factory=set[tuple[bool, str]])

    async def asked(self, call: Call) -> None:
        """Tells of each question once; once more of one that turns out to be the call's own."""
        for certain, ids in ((True, call.pending_ids), (False, call.perhaps_pending_ids)):
            callback = self.on_pending if certain else self.on_perhaps_pending
            for id_ in ids:
                if callback and (certain, id_) not in self.told:
                    self.told.add((certain, id_))
                    await tell(callback, id_)


async def tell(callback: Callable[[A], Awaitable[None] | None], what: A) -> None:
    """Calls a callback, and waits for it if it is a coroutine function."""
    if (waited := callback(what)) is not None:
        await waited


def _spec(
    server: str,
    method: str,
    params: Mapping[str, Any] | None,
    call_id: str | None,
    timeout_s: float | None,
    max_s: float | None,
    as_task: bool,
) -> call_pb2.CallSpec:
    return call_pb2.CallSpec(
        server=server,
        method=method,
        params=b"" if params is None else payload.dumps(params),
        call_id=call_id or "",
        timeout=None if timeout_s is None else numbers.duration(timeout_s),
        max_duration=None if max_s is None else numbers.duration(max_s),
        as_task=as_task,
    )


def _filter(server: str | None, states: Collection[CallState], ids: Collection[str]) -> call_pb2.CallFilter:
    return call_pb2.CallFilter(server=server or "", states=enum_numbers(call_pb2.CallState.DESCRIPTOR, states), ids=ids)
