"""The registry of calls: making, reading, cancelling and draining them. `exchange.py` executes them."""

import asyncio
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, replace
from functools import partial
from typing import Any

import anyio
import structlog

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_faults import SHUTTING_DOWN, cancelled_fault, not_connected_error, reused_id_error
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.calls.tool_policy import find_denial
from hubbubd.core.servers.server_record import QueueCounts
from hubbubd.errors import FailedPrecondition, Fault, HubError, Unavailable
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls.approvals.gate import ApprovalGate, HeldQuestion
from hubbubd.runtime.calls.drain_delays import DrainDelays
from hubbubd.runtime.calls.exchange import CallExchange
from hubbubd.runtime.calls.progress import LiveCalls
from hubbubd.runtime.calls.queue import ActiveCall, End, ServerQueue
from hubbubd.runtime.calls.resumption import Resumption, lost_fault, resumption_order
from hubbubd.runtime.calls.spans import SpanRecorder
from hubbubd.runtime.calls.spec import CallSpec, LogEvent, RemoteCalls
from hubbubd.runtime.calls.tasks.support import TaskSupport
from hubbubd.runtime.oversight import Quota
from hubbubd.runtime.ownership import NOT_STARTED_REASONS, Takeover, moved_error
from hubbubd.runtime.records import Ledger, RecordReader, Table
from hubbubd.timing.clock import Clock

OWNER_WAIT_S, OWNER_POLL_S = 2.0, 0.02
"""Seconds for which a call waits for an owner of its server at most, and seconds between checks for one."""

DRAIN_POLL_S = 0.02
"""Seconds between checks, while draining, whether calls have ended."""

log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Calls(RecordReader[Call]):
    """The calls of all servers, under way and ended, with a queue per server.

    `missing_queue_error` returns why a server has no queue. With `durable_if_named` calls are durable before they are
    sent if their callers have named them.
    """

    ledger: Ledger
    table: InitVar[Table[Call]]
    live: LiveCalls
    clock: Clock
    background: Background
    exchange: CallExchange
    resumption: Resumption
    support: TaskSupport
    gate: ApprovalGate
    quota: Quota
    spans: SpanRecorder
    missing_queue_error: Callable[[str], HubError]
    durable_if_named: bool = False

    def __post_init__(self, table: Table[Call]) -> None:
        super().__init__(table)
        self._queues: dict[str, ServerQueue] = {}
        self._active: dict[str, ActiveCall] = {}
        """The calls under way by id, maintained by the queues; `ActiveCall.call` is the newest state of each."""
        self._in_handover: set[str] = set()
        """Servers that are being handed to other members: they get no new calls."""
        self.drain_delays = DrainDelays()
        self.remote: RemoteCalls | None = None
        """Makes calls of servers that other members of a fleet have; None without a fleet."""
        self.closing = anyio.Event()
        """Set once new calls are refused, at shutdown; those at other members of a fleet go on."""
        self.stopped = anyio.Event()
        """Set once all calls are being ended, at shutdown."""

    # Queues

    def open_queue(self, config: ServerConfig) -> ServerQueue:
        """Create a server's call queue, and resume the server's calls from before a restart."""
        queue = ServerQueue(config, self.clock, self._record, self._active, self.spans.tracer)
        self._queues[config.name] = queue
        server_calls = [call for call in self._table if call.server == config.name]
        queue.ended.update(call.state for call in server_calls if call.state.ended)
        # Calls with an obstacle are ended by `end_unresumed`.
        unfinished = [
            call
            for call in server_calls
            if not call.state.ended and self.resumption.find_obstacle(call, config) is None
        ]
        for call in resumption_order(unfinished):
            active = queue.resume(core.as_resumed(self.spans.finish_open_spans(call)))
            self._record(call, active.call)
            execute = self.exchange.prepare_resumption(queue, active)
            self.quota.add(call.principal)
            self.background.start_brief(self.quota.run_and_subtract, call.principal, execute)
        return queue

    async def close_queue(self, server: str, fault: Fault, end: End = End.SERVER_GONE) -> None:
        """Remove the queue of a server that is removed or handed over; return when all its calls have ended."""
        queue = self._queues.pop(server)
        queue.stop_all(fault, end)
        await queue.wait_idle()

    async def end_unresumed(self, takeover: Takeover) -> None:
        """End the unfinished calls of the servers taken over that were not resumed when their queues were opened.

        Resumed calls of a server that is disconnected are ended, too.
        """
        unfinished = [call for call in self._table if takeover.owns(call.server) and not call.state.ended]
        for call in unfinished:
            if call.id in self._active:
                continue
            queue = self._queues.get(call.server)
            obstacle = self.resumption.find_obstacle(call, queue.config if queue else None)
            ended = core.fail(self.spans.finish_open_spans(call), lost_fault(takeover, obstacle), self.clock.now())
            self._record(call, ended)
            if queue is not None:
                queue.ended[ended.state] += 1
        for server, queue in self._queues.items():
            if queue.closed and takeover.owns(server):  # the hub that had it stopped while disconnecting it
                queue.stop_all(cancelled_fault(f"{server} was disconnected", "SERVER_DISCONNECTED"), End.SERVER_GONE)
        await self.exchange.end_unresumed(takeover, [active.call for active in self._active.values()])

    # Reading

    def has_call(self, call_id: str) -> bool:
        """Return whether there is a call with this id, also one that is not written yet."""
        return self._find(call_id) is not None

    def task_support(self, server: str, tool: str) -> str | None:
        """Return a tool's `taskSupport`, as the connected server lists it; None if callers cannot request a task."""
        queue = self._queues.get(server)
        return self.support.tool_support(queue.link.hello, server, tool) if queue is not None and queue.link else None

    def poll_task_soon(self, call: Call) -> None:
        """If the server has made a task of a call, poll that task soon."""
        self.exchange.poll_task_soon(call)

    def has_queue(self, server: str) -> bool:
        """Return whether this hub has the call queue of a server."""
        return server in self._queues

    def counts(self, server: str) -> QueueCounts:
        """Return the number of a server's calls by state. Raises NotFound."""
        return self._require_queue(server).counts()

    # For callers

    async def call(self, spec: CallSpec, principal: str, *, detached: bool = False) -> Call:
        """Make a call, wait for its end, and return it, whatever the outcome.

        `spec.call_id` is an idempotency key: the same request under the same id joins the first call. Cancelling
        the wait ends the call, unless the call is detached or another caller waits for it. Raises NotFound,
        InvalidArgument, AlreadyExists (CALL_ID_REUSED), FailedPrecondition, ResourceExhausted, Unavailable.
        """
        if (remote := self._remote_for(spec.server)) is not None:
            return await remote.call(spec, principal, detached=detached)
        try:
            call, active = await self._make_or_join(spec, principal, detached=detached)
        except Unavailable as exc:
            if not await self._wait_for_owner(exc, spec.server):
                raise
            return await self.call(spec, principal, detached=detached)
        if active is None:
            return call
        active.waiters += 1
        try:
            await active.ended.wait()
        finally:
            active.waiters -= 1
            _stop_unless_wanted(active)
            if not active.call.state.ended:
                self.spans.drop_rpc_span(active)
        if not active.call.state.ended:
            raise self._unfinished_error(spec.server)
        return active.call

    async def start(self, spec: CallSpec, principal: str) -> Call:
        """Queue a detached call; it is durable on return. Raises as `call`."""
        if (remote := self._remote_for(spec.server)) is not None:
            return await remote.start(spec, principal)
        try:
            call, active = await self._make_or_join(spec, principal, detached=True)
        except Unavailable as exc:
            if not await self._wait_for_owner(exc, spec.server):
                raise
            return await self.start(spec, principal)
        if active is None:
            return call
        if not active.call.detached:  # the id joined a call that was made by `call`
            await self._detach(active)
        return active.call

    def _remote_for(self, server: str) -> RemoteCalls | None:
        """Return the port for calls at other members if one of them has the server; None if no other member has it."""
        return self.remote if self.remote is not None and self.remote.has_server(server) else None

    async def _wait_for_owner(self, refusal: Unavailable, server: str) -> bool:
        """After a `refusal` because a server changes owners, wait until a call of the server may be tried again.

        Return False after OWNER_WAIT_S; at once if the refusal has another reason, or a member has forwarded the call.
        """
        if refusal.reason not in NOT_STARTED_REASONS or self.remote is None or not self.remote.may_forward():
            return False
        with anyio.move_on_after(OWNER_WAIT_S):
            while True:
                if self.remote.has_server(server) or (server in self._queues and server not in self._in_handover):
                    return True
                await anyio.sleep(OWNER_POLL_S)
        return False

    async def _detach(self, active: ActiveCall) -> None:
        """Make a call detached, durably; callers that start it again meanwhile wait for that. Raises Unavailable."""
        before = active.call
        active.call = replace(before, detached=True)
        active.admitted = asyncio.Event()
        try:
            await self.ledger.change(self._table, before.id, partial(core.merge_change, before, active.call))
        except HubError:
            active.call = replace(active.call, detached=False)
            _stop_unless_wanted(active)  # its callers may have hung up meanwhile
            raise
        finally:
            active.admitted.set()

    async def cancel(self, call_id: str, *, abort: bool) -> Call:
        """End a call and return it; one that was sent only with `abort`. Raises NotFound and FailedPrecondition."""
        call = self.get(call_id)
        if (remote := self._remote_for(call.server)) is not None:
            return await remote.cancel(call, abort=abort)
        active = self._active.get(call_id)
        if active is None or active.call.state.ended:
            raise FailedPrecondition(f"this call has ended: {call.state}", reason="CALL_FINISHED")
        if active.call.state is CallState.IN_PROGRESS and not abort:
            raise FailedPrecondition("this call is on the wire; abort it to tell the server", reason="CALL_IN_PROGRESS")
        active.stop(cancelled_fault("cancelled on request"))
        await active.ended.wait()
        return active.call

    def end_unless_awaited(self, call_id: str) -> None:
        """End a call, even a detached one, unless a caller waits for it."""
        call = self._table.record(call_id)
        if call is not None and (remote := self._remote_for(call.server)) is not None:
            self.background.start_brief(remote.end_unless_awaited, call)
            return
        active = self._active.get(call_id) if call is not None else None
        if active is not None and not active.waiters and not active.ended.is_set():
            active.stop(cancelled_fault("its caller hung up"))

    async def clear_queue(self, server: str) -> int:
        """Cancel the queued calls of a server, and return how many. Raises NotFound."""
        waiting_calls = self._require_queue(server).waiting_calls()
        for active in waiting_calls:
            active.stop(cancelled_fault("the queue was cleared"))
        for active in waiting_calls:
            await active.ended.wait()
        return len(waiting_calls)

    def publish_log(self, call_id: str, params: dict[str, Any]) -> None:
        """Publish a log message to those who watch the call."""
        if self.live.is_watched and (call := self._table.record(call_id)) is not None:
            self.live.publish(call, LogEvent(call_id, payload.dumps(params)))

    # Shutdown

    @property
    def draining(self) -> bool:
        """Whether new calls are refused, as the hub shuts down."""
        return self.closing.is_set()

    async def drain(self) -> None:
        """Refuse new calls, and wait until no unfinished call has a waiting caller or would be lost by a restart.

        Then wait for callers that have no call in a queue here (`drain_delays`).
        """
        self.closing.set()
        await self._drain_queues(lambda: list(self._queues.values()))
        await self.drain_delays.wait_for_present()

    @contextmanager
    def refuse_calls(self, server: str) -> Generator[None]:
        """Refuse new calls of a server during the block (MOVED)."""
        self._in_handover.add(server)
        try:
            yield
        finally:
            self._in_handover.discard(server)

    async def drain_server(self, server: str) -> None:
        """Wait until no call of a server has a waiting caller, or would be lost if another hub took the server over."""
        await self._drain_queues(lambda: [self._queues[server]] if server in self._queues else [])

    async def _drain_queues(self, queues: Callable[[], Sequence[ServerQueue]]) -> None:
        """Stop the unsent detached calls of these queues; wait for the calls that must end before the hub does."""
        self._stop_unsent(queues())
        # Polling, as there are many ways for a call to end or to become resumable.
        while any(self._must_end(queue, active) for queue in queues() for active in queue.calls.values()):
            await anyio.sleep(DRAIN_POLL_S)
            self._stop_unsent(queues())  # a call that was still being stored may be stored now

    def _stop_unsent(self, queues: Sequence[ServerQueue]) -> None:
        """Stop the detached calls that wait for a slot: the next hub that has their server resumes them."""
        for queue in queues:
            # If they were sent now, they might be broken off; unsent calls can be resumed.
            for active in queue.waiting_calls():
                if core.was_never_sent(active.call) and active.admitted.is_set():
                    active.stop(SHUTTING_DOWN, End.SHUTTING_DOWN)

    def _must_end(self, queue: ServerQueue, active: ActiveCall) -> bool:
        """Return whether a call must end before the hub does: a caller waits for it, or it cannot be resumed."""
        if active.waiters > 0 or not active.admitted.is_set():
            return True
        return self.resumption.find_obstacle(active.call, queue.config) is not None

    def shut_down(self) -> None:
        """End all calls at shutdown; their callers get a response, and some calls are resumed after the restart."""
        for queue in self._queues.values():
            queue.stop_all(SHUTTING_DOWN, End.SHUTTING_DOWN)
        self.stopped.set()

    # New calls

    async def _make_or_join(self, spec: CallSpec, principal: str, *, detached: bool) -> tuple[Call, ActiveCall | None]:
        """Make a call, or join the call with its id; return the call, and its active call (None if it has ended)."""
        queue = self._require_queue(spec.server)
        if self.gate.is_on or queue.config.confirm:
            await self.gate.fetch_unknown_tool(queue, spec.method, spec.message)
            queue = self._require_queue(spec.server)  # it may have been removed, or added again, meanwhile
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
            created_at=self.clock.now(),
            origin=spec.origin,
        )
        existing = await self._find_durable(call.id) if spec.call_id else None
        if existing is not None:
            if existing.principal != principal or not existing.is_same_request(call):
                raise reused_id_error(call)
            active = self._active.get(call.id)
            if active is None:
                return existing, None
        else:
            active = self._enqueue(queue, call, spec)
            if not detached and not active.is_durable_first:
                return active.call, active
        while not active.admitted.is_set():  # `_detach` replaces the event
            await active.admitted.wait()
        if active.refusal is not None:
            raise active.refusal
        return active.call, active

    def _enqueue(self, queue: ServerQueue, call: Call, spec: CallSpec) -> ActiveCall:
        """Put a new call into its queue, and begin to execute it. Raises the error of a call that must be refused."""
        if self.draining:
            raise Unavailable("the hub is shutting down and takes no new calls", reason="SHUTTING_DOWN")
        if call.server in self._in_handover:
            raise moved_error(call.server)
        if queue.closed:
            raise not_connected_error(call.server, queue.give_up_fault)
        params = spec.message
        denial = find_denial(queue.config, call.method, params) if queue.limits_tools else None
        if denial is not None:
            raise denial
        hello = queue.link.hello if queue.link is not None else None
        refusal = self.support.find_refusal(hello, call, params) if hello is not None else None
        if refusal is not None:
            raise FailedPrecondition(refusal.message, reason=refusal.code)
        self.quota.require(call.principal)
        call = self.spans.with_trace(call, params)
        is_gated = self.gate.is_on or queue.config.confirm
        active = self._queue_or_hold(queue, call, params) if is_gated else queue.add(call)
        self.quota.add(call.principal)
        active.is_durable_first = active.question is not None or (bool(spec.call_id) and self.durable_if_named)
        if hello is not None and not self.support.needs_catalog(hello, call):
            active.checked_with = queue.config, hello
        if not call.detached and not active.is_durable_first:
            self._record(None, active.call)
        # Runs in the background, not in the caller's task: a cancelled caller must not break the call off anywhere.
        execute = partial(self.exchange.execute, queue, active, params)
        self.background.start_brief(self.quota.run_and_subtract, call.principal, execute)
        return active

    def _queue_or_hold(self, queue: ServerQueue, call: Call, params: dict[str, Any]) -> ActiveCall:
        """Queue a new call, or hold it if a rule wants it approved. Raises PermissionDenied and ResourceExhausted."""
        outcome = self.gate.judge_new(queue, call, params)
        if not isinstance(outcome, HeldQuestion):
            return queue.add(outcome)
        active = queue.register(outcome.call)
        active.question = outcome.request
        return active

    def _record(self, before: Call | None, after: Call) -> None:
        """Record a change of a call, write-behind."""
        self.ledger.change_later(self._table, after.id, partial(core.merge_change, before, after))

    def _require_queue(self, server: str) -> ServerQueue:
        """Return the queue of a server. Raises NotFound, or Unavailable if its owner changes."""
        queue = self._queues.get(server)
        if queue is None:
            raise self.missing_queue_error(server)
        return queue

    def _find(self, call_id: str) -> Call | None:
        """Return a call, also one whose record is not written yet; None if there is none."""
        active = self._active.get(call_id)
        return self._table.record(call_id) if active is None else active.call

    async def _find_durable(self, call_id: str) -> Call | None:
        """Return a call, after making the record of an ended one durable; None if there is none. Raises Unavailable."""
        existing = self._find(call_id)
        if existing is None or call_id in self._active:
            return existing
        await self.ledger.transact(lambda: (None, self._table.waiting_changes(call_id)))
        return self._find(call_id)  # another one may have deleted it meanwhile

    def _unfinished_error(self, server: str) -> Unavailable:
        """Return the error for a caller whose call continues at another member, or after the restart of this hub."""
        if server in self._in_handover:
            message = f"{server} is being handed on to another member of the fleet; the call goes on there"
            return Unavailable(message, reason="OWNER_LOST", metadata={"server": server})
        return Unavailable("the hub is shutting down; the call goes on with the next one", reason="SHUTTING_DOWN")


def _stop_unless_wanted(active: ActiveCall) -> None:
    """End a call that nobody waits for, unless it is detached."""
    if not active.waiters and not active.call.detached and not active.ended.is_set():
        active.stop(cancelled_fault("its caller hung up"))
