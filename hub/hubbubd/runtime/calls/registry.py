"""The registry of calls: making, reading, cancelling and draining them. `exchange.py` executes them."""

import asyncio
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import structlog

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_faults import SHUTTING_DOWN, cancelled, not_connected, reused
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.calls.tool_policy import denied
from hubbubd.core.filters import CallFilter
from hubbubd.core.servers.server_record import QueueCounts
from hubbubd.errors import FailedPrecondition, Fault, HubError, Unavailable
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls.exchange import CallExchange
from hubbubd.runtime.calls.progress import LiveCalls
from hubbubd.runtime.calls.queue import ActiveCall, End, ServerQueue
from hubbubd.runtime.calls.remote import RemoteCalls
from hubbubd.runtime.calls.resumption import Resumption, broken_off, in_order
from hubbubd.runtime.calls.spans import SpanRecorder
from hubbubd.runtime.calls.spec import CallSpec, LogEvent
from hubbubd.runtime.calls.tasks.support import TaskSupport
from hubbubd.runtime.oversight import Quota
from hubbubd.runtime.ownership import NOT_BEGUN, Takeover, moved
from hubbubd.runtime.records import AgePosition, Ledger, Table, Watch
from hubbubd.timing.clock import Clock

CHANGE_S, LOOK_S = 2.0, 0.02
"""Seconds for which a call waits until it is clear who has its server, and between looks."""

DRAIN_S = 0.02
"""Seconds between looks, while draining, whether calls have ended."""

log = structlog.get_logger(__name__)


class Calls:
    """The calls of all servers, under way and ended, with a queue per server."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        table: Table[Call],
        live: LiveCalls,
        clock: Clock,
        background: Background,
        exchange: CallExchange,
        resumption: Resumption,
        support: TaskSupport,
        quota: Quota,
        spans: SpanRecorder,
        absent: Callable[[str], HubError],
        kept_if_named: bool = False,
    ) -> None:
        """`absent` returns why a server has no queue.

        With `kept_if_named` calls are durable before they are sent if their callers have named them.
        """
        self._kept_if_named = kept_if_named
        self._ledger = ledger
        self._table = table
        self.live = live
        self._clock = clock
        self._background = background
        self._exchange = exchange
        self._resumption = resumption
        self._support = support
        self._quota = quota
        self._spans = spans
        self._absent = absent
        self._queues: dict[str, ServerQueue] = {}
        self._leaving: set[str] = set()
        self._heard_out: set[asyncio.Event] = set()
        self.elsewhere: RemoteCalls | None = None
        """Makes calls of servers that other members of a fleet have; None for a hub that has all."""
        self.closing = anyio.Event()
        """Set once new calls are refused, at shutdown; those at other members of a fleet go on."""
        self.stopped = anyio.Event()
        """Set once all calls have been told to end, at shutdown."""

    # Queues

    def open_queue(self, config: ServerConfig) -> ServerQueue:
        """Create a server's call queue, and resume the server's calls from before a restart."""
        queue = self._queues[config.name] = ServerQueue(config, self._clock, self._record, self._spans.tracer)
        own = [call for call in self._table if call.server == config.name]
        queue.ended.update(call.state for call in own if call.state.ended)
        left = [call for call in own if not call.state.ended and self._resumption.obstacle(call, config) is None]
        for call in in_order(left):
            active = queue.resume(core.taken_up(self._spans.taken_over(call)))
            self._record(call, active.call)
            go_on = self._exchange.resume(queue, active)
            self._quota.take(call.principal)
            self._background.start_brief(self._quota.until_ended, call.principal, go_on)
        return queue

    async def close_queue(self, server: str, fault: Fault, end: End = End.SERVER_GONE) -> None:
        """End the calls of a server that is removed, or goes on elsewhere, and wait for that."""
        queue = self._queues.pop(server)
        queue.stop_all(fault, end)
        await queue.wait_idle()

    async def take(self, taking: Takeover) -> None:
        """End the unfinished calls of these servers that were not resumed when their queues were opened."""
        left = [call for call in self._table if taking.owns(call.server) and not call.state.ended]
        for call in left:
            if self._active(call) is not None:
                continue
            queue = self._queues.get(call.server)
            why = self._resumption.obstacle(call, queue.config if queue else None)
            ended = core.fail(self._spans.taken_over(call), broken_off(taking, why), self._clock.now())
            self._record(call, ended)
            if queue is not None:
                queue.ended[ended.state] += 1
        for server, queue in self._queues.items():
            if queue.closed and taking.owns(server):  # whoever had it ended in the middle of a disconnect
                queue.stop_all(cancelled(f"{server} was disconnected", "SERVER_DISCONNECTED"), End.SERVER_GONE)
        await self._exchange.take(taking, [active.call for _, active in self._under_way()])

    # Reading

    def get(self, call_id: str) -> Call:
        """Return a call. Raises NotFound."""
        return self._table.get(call_id)

    def find(self, call_id: str) -> Call | None:
        """Return a call, or None."""
        return self._table.record(call_id)

    def knows(self, call_id: str) -> bool:
        """Return whether there is a call with this id, also one that is not written yet."""
        return self._known(call_id) is not None

    def select(self, chosen: CallFilter) -> list[Call]:
        """Return the calls that match, newest first."""
        return list(self._table.newest(chosen.matches))

    def newest(
        self, chosen: CallFilter, after: AgePosition | None = None, oldest_first: bool = False
    ) -> Iterator[Call]:
        """Yield the calls that match and come after a place, newest or oldest first."""
        return self._table.newest(chosen.matches, after, oldest_first)

    def watch(self, chosen: CallFilter, token: str = "") -> Watch[Call]:
        """Watch calls: snapshot, then changes, with progress and log events in between; `token` resumes."""
        return self._table.feed.watch(chosen, token)

    def listen(self, call_id: str, tell: Callable[[Call, object], None]) -> AbstractContextManager[None]:
        """Tell of each change, progress and log event of one call during the block, whoever made the call."""
        return self._table.feed.listen(call_id, tell)

    def task_support(self, server: str, tool: str) -> str | None:
        """Return whether a call of a tool may be requested as a task, as the connected server says; None for no."""
        queue = self._queues.get(server)
        return self._support.of(queue.link.hello, server, tool) if queue is not None and queue.link else None

    def hasten(self, call: Call) -> None:
        """Have the server asked soon how far the task is that it has made of a call, if it has."""
        self._exchange.hasten(call)

    def counts(self, server: str) -> QueueCounts:
        """Return the number of a server's calls by state. Raises NotFound."""
        return self._queue(server).counts()

    # For callers

    async def call(self, spec: CallSpec, principal: str, *, detached: bool = False) -> Call:
        """Make a call, wait for its end, and return it, whatever the outcome.

        `spec.call_id` is an idempotency key: the same request under the same id joins the call there is. Cancelling
        this ends the call, unless it is detached or another caller waits for it, too. Raises NotFound, InvalidArgument,
        AlreadyExists (CALL_ID_REUSED), FailedPrecondition, ResourceExhausted, Unavailable.
        """
        if self.elsewhere is not None and self.elsewhere.has(spec.server):
            return await self.elsewhere.call(spec, principal, detached=detached)
        try:
            call, active = await self._begin(spec, principal, detached=detached)
        except Unavailable as exc:
            if not await self._has_changed_hands(exc, spec.server):
                raise
            return await self.call(spec, principal, detached=detached)
        if active is None:
            return call
        active.waiters += 1
        try:
            await active.ended.wait()
        finally:
            active.waiters -= 1
            _stop_unwanted(active)
            if not active.call.state.ended:
                self._spans.caller_left(active)
        if not active.call.state.ended:
            raise self._goes_on(spec.server)
        return active.call

    async def start(self, spec: CallSpec, principal: str) -> Call:
        """Queue a detached call; it is durable on return. Raises as `call`."""
        if self.elsewhere is not None and self.elsewhere.has(spec.server):
            return await self.elsewhere.start(spec, principal)
        try:
            call, active = await self._begin(spec, principal, detached=True)
        except Unavailable as exc:
            if not await self._has_changed_hands(exc, spec.server):
                raise
            return await self.start(spec, principal)
        if active is None:
            return call
        if not active.call.detached:  # the id joined a call that was made by `call`
            await self._detach(active)
        return active.call

    async def _has_changed_hands(self, refusal: Unavailable, server: str) -> bool:
        """Wait until a call that was refused for it can be made, here or at another member; False after CHANGE_S."""
        if refusal.reason not in NOT_BEGUN or self.elsewhere is None or not self.elsewhere.may():
            return False
        with anyio.move_on_after(CHANGE_S):
            while True:
                if self.elsewhere.has(server) or (server in self._queues and server not in self._leaving):
                    return True
                await anyio.sleep(LOOK_S)
        return False

    async def _detach(self, active: ActiveCall) -> None:
        """Make a call detached, durably. Whoever else starts it meanwhile waits for that. Raises Unavailable."""
        before = active.call
        active.call = replace(before, detached=True)
        active.admitted = asyncio.Event()
        try:
            await self._ledger.change(self._table, before.id, partial(core.goes_on, before, active.call))
        except HubError:
            active.call = replace(active.call, detached=False)
            _stop_unwanted(active)  # its callers may have hung up meanwhile
            raise
        finally:
            active.admitted.set()

    async def cancel(self, call_id: str, *, abort: bool) -> Call:
        """End a call; one on the wire only with `abort`. Raises NotFound and FailedPrecondition."""
        call = self.get(call_id)
        if self.elsewhere is not None and self.elsewhere.has(call.server):
            return await self.elsewhere.cancel(call, abort=abort)
        active = self._active(call)
        if active is None or active.call.state.ended:
            raise FailedPrecondition(f"this call has ended: {call.state}", reason="CALL_FINISHED")
        if active.call.state is CallState.IN_PROGRESS and not abort:
            raise FailedPrecondition("this call is on the wire; abort it to tell the server", reason="CALL_IN_PROGRESS")
        active.stop(cancelled("cancelled on request"))
        await active.ended.wait()
        return active.call

    def give_up(self, call_id: str) -> None:
        """End a call, even a detached one, unless a caller waits for it."""
        call = self._table.record(call_id)
        if call is not None and self.elsewhere is not None and self.elsewhere.has(call.server):
            self._background.start_brief(self.elsewhere.give_up, call)
            return
        active = self._active(call) if call is not None else None
        if active is not None and not active.waiters and not active.ended.is_set():
            active.stop(cancelled("its caller hung up"))

    async def clear(self, server: str) -> int:
        """Cancel the queued calls of a server, and return how many. Raises NotFound."""
        queue = self._queue(server)
        waiting = queue.queued()
        for active in waiting:
            active.stop(cancelled("the queue was cleared"))
        for active in waiting:
            await active.ended.wait()
        return len(waiting)

    def logged(self, call_id: str, params: dict[str, Any]) -> None:
        """Publish a log message to those who watch the call."""
        if self.live.wanted and (call := self._table.record(call_id)) is not None:
            self.live.tell(call, LogEvent(call_id, payload.dumps(params)))

    @property
    def draining(self) -> bool:
        """Whether new calls are refused, as the hub shuts down."""
        return self.closing.is_set()

    @contextmanager
    def heard_out(self) -> Generator[None]:
        """Have `drain` wait for the end of the block, in which a caller waits for something that no queue here has."""
        over = asyncio.Event()
        self._heard_out.add(over)
        try:
            yield
        finally:
            self._heard_out.discard(over)
            over.set()

    async def drain(self) -> None:
        """Refuse new calls, and wait until no unfinished call has a waiting caller or would be lost by a restart.

        Also wait for whoever is to be heard out by then.
        """
        self.closing.set()
        await self._drained(lambda: list(self._queues.values()))
        for over in list(self._heard_out):
            await over.wait()

    async def all_heard(self) -> bool:
        """Wait until nobody is to be heard out; return False if nobody was."""
        any_heard = bool(self._heard_out)
        while self._heard_out:
            await next(iter(self._heard_out)).wait()
        return any_heard

    @contextmanager
    def refused(self, server: str) -> Generator[None]:
        """Refuse new calls of a server during the block (MOVED)."""
        self._leaving.add(server)
        try:
            yield
        finally:
            self._leaving.discard(server)

    async def leave(self, server: str) -> None:
        """Wait as `drain` does, for the calls of one server."""
        await self._drained(lambda: [self._queues[server]] if server in self._queues else [])

    async def _drained(self, queues: Callable[[], Sequence[ServerQueue]]) -> None:
        self._leave_unsent(queues())
        # Polling, as there are many ways for a call to end or to become resumable.
        while any(self._needs_time(queue, active) for queue in queues() for active in queue.calls.values()):
            await anyio.sleep(DRAIN_S)
            self._leave_unsent(queues())  # the store may just have taken one that it was writing when it began

    def _leave_unsent(self, queues: Sequence[ServerQueue]) -> None:
        """Leave the detached calls that wait for a turn to whoever has their server next."""
        for queue in queues:
            # Sent now, they might be broken off; unsent they can be resumed.
            for active in queue.queued():
                if core.never_sent(active.call) and active.admitted.is_set():
                    active.stop(SHUTTING_DOWN, End.SHUTTING_DOWN)

    def _under_way(self) -> list[tuple[ServerQueue, ActiveCall]]:
        return [(queue, active) for queue in self._queues.values() for active in queue.calls.values()]

    def _needs_time(self, queue: ServerQueue, active: ActiveCall) -> bool:
        told = active.admitted.is_set() and active.waiters == 0
        return not told or self._resumption.obstacle(active.call, queue.config) is not None

    def shut_down(self) -> None:
        """End all calls at shutdown, telling their callers; some are resumed after the restart."""
        for queue in self._queues.values():
            queue.stop_all(SHUTTING_DOWN, End.SHUTTING_DOWN)
        self.stopped.set()

    # New calls

    async def _begin(self, spec: CallSpec, principal: str, *, detached: bool) -> tuple[Call, ActiveCall | None]:
        queue = self._queue(spec.server)
        call = Call(
            id=spec.call_id or f"call_{secrets.token_hex(8)}",
            server=spec.server,
            method=spec.method,
            params=spec.params,
            principal=principal,
            detached=detached,
            timeout_s=spec.timeout_s or queue.config.call_timeout_s,
            max_s=spec.max_s or max(queue.config.call_max_s, spec.timeout_s or 0.0),
            as_task=spec.as_task,
            fingerprint=queue.fingerprint,
            created_at=self._clock.now(),
        )
        known = await self._recorded(call.id) if spec.call_id else None
        if known is not None:
            if known.principal != principal or not known.same_request(call):
                raise reused(call)
            active = self._active(known)
        elif self.draining:
            raise Unavailable("the hub is shutting down and takes no new calls", reason="SHUTTING_DOWN")
        elif spec.server in self._leaving:
            raise moved(spec.server)
        else:
            active = self._enter(queue, call, spec.message, kept=bool(spec.call_id) and self._kept_if_named)
        if active is not None and (detached or active.kept or known is not None):
            while not active.admitted.is_set():  # `_detach` replaces the event
                await active.admitted.wait()
            if active.refusal is not None:
                raise active.refusal
        return active.call if active else known or call, active

    def _enter(self, queue: ServerQueue, call: Call, params: dict[str, Any], *, kept: bool) -> ActiveCall:
        if queue.closed:
            raise not_connected(call.server, queue.given_up)
        if (denial := denied(queue.config, call.method, params)) is not None:
            raise denial
        refusal = self._support.refusal(queue.link.hello, call, params) if queue.link is not None else None
        if refusal is not None:
            raise FailedPrecondition(refusal.message, reason=refusal.code)
        self._quota.require(call.principal)
        active = queue.enter(self._spans.begun(call, params))
        self._quota.take(call.principal)
        active.kept = kept
        if not call.detached and not kept:
            self._record(None, active.call)
        # Runs in the background, not in the caller's task: a cancelled caller must not break the call off anywhere.
        begin = partial(self._exchange.begin, queue, active, params)
        self._background.start_brief(self._quota.until_ended, call.principal, begin)
        return active

    def _record(self, before: Call | None, after: Call) -> None:
        self._ledger.later(self._table, after.id, partial(core.goes_on, before, after))

    def _queue(self, server: str) -> ServerQueue:
        queue = self._queues.get(server)
        if queue is None:
            raise self._absent(server)
        return queue

    async def _recorded(self, call_id: str) -> Call | None:
        """Return a call that is known; durable, unless it is under way. Raises Unavailable."""
        known = self._known(call_id)
        if known is not None and self._active(known) is None:
            await self._ledger.transact(lambda: (None, self._table.queued(call_id)))
            return self._known(call_id)
        return known

    def _goes_on(self, server: str) -> Unavailable:
        """Return what the caller is told of a call that was left, not ended."""
        if server in self._leaving:
            message = f"{server} is being handed on to another member of the fleet; the call goes on there"
            return Unavailable(message, reason="OWNER_LOST", metadata={"server": server})
        return Unavailable("the hub is shutting down; the call goes on with the next one", reason="SHUTTING_DOWN")

    def _known(self, call_id: str) -> Call | None:
        under_way = [queue.calls[call_id].call for queue in self._queues.values() if call_id in queue.calls]
        return under_way[0] if under_way else self._table.record(call_id)

    def _active(self, call: Call) -> ActiveCall | None:
        queue = self._queues.get(call.server)
        return queue.calls.get(call.id) if queue else None


def _stop_unwanted(active: ActiveCall) -> None:
    """End a call that nobody waits for, unless it is detached."""
    if not active.waiters and not active.call.detached and not active.ended.is_set():
        active.stop(cancelled("its caller hung up"))
