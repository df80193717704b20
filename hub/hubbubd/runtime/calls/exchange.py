"""Executes queued calls: admission, wait for a slot, exchange with the server, further rounds, end."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from hubbubd import payload
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_faults import hub_fault, reused_id_error, server_fault
from hubbubd.core.calls.call_states import Call
from hubbubd.core.calls.tool_policy import find_denial, without_denied_tools
from hubbubd.core.tasks import find_created_task
from hubbubd.errors import Category, Fault, FaultCode, HubError, PeerError, UnknownOutcome, UpstreamError
from hubbubd.redaction import REDACTION
from hubbubd.runtime.calls.approvals.gate import ApprovalGate
from hubbubd.runtime.calls.causes import Causes
from hubbubd.runtime.calls.progress import LiveCalls
from hubbubd.runtime.calls.queue import ActiveCall, ServerQueue
from hubbubd.runtime.calls.resumption import Resumption, require_accepted_state, require_multi_round_support
from hubbubd.runtime.calls.rounds.multi_round import MultiRound
from hubbubd.runtime.calls.rounds.url_elicitation import Consents
from hubbubd.runtime.calls.spans import SpanRecorder
from hubbubd.runtime.calls.spec import ProgressEvent
from hubbubd.runtime.calls.tasks.client_tasks import ClientTasks
from hubbubd.runtime.calls.tasks.orphans import Orphans
from hubbubd.runtime.calls.tasks.support import TaskSupport, with_task
from hubbubd.runtime.ownership import Takeover
from hubbubd.runtime.records import Change, Ledger, Table
from hubbubd.telemetry.trace import CURRENT_TRACE
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Era, McpLink, ProgressUpdate

log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class CallExchange:
    """Executes the calls of all servers; each call comes with its server's queue."""

    ledger: Ledger
    table: Table[Call]
    live: LiveCalls
    clock: Clock
    gate: ApprovalGate
    rounds: MultiRound
    consents: Consents
    client_tasks: ClientTasks
    resumption: Resumption
    support: TaskSupport
    orphans: Orphans
    causes: Causes
    spans: SpanRecorder

    async def end_unresumed(self, takeover: Takeover, under_way: Sequence[Call]) -> None:
        """End the requests and tasks of calls of the servers taken over, except of the calls `under_way`."""
        await self.gate.withdraw_unresumed(takeover, under_way)
        await self.rounds.withdraw_unresumed(takeover, under_way)
        await self.client_tasks.cancel_unresumed(takeover)
        await self.causes.take_over(takeover)

    def poll_task_soon(self, call: Call) -> None:
        """Poll the task of a call soon, if the server has made a task of the call."""
        self.client_tasks.poll_call_soon(call)

    async def execute(self, queue: ServerQueue, active: ActiveCall, params: dict[str, Any]) -> None:
        """Execute a new call: make its record durable if that must come first, then send it, and record its end."""
        if await self._admit(queue, active):
            if active.question is not None:
                await self._run_to_end(queue, active, partial(self.exchange_approved, queue, active))
            else:
                await self._run_to_end(queue, active, partial(self._exchange, queue, active, params))

    def prepare_resumption(self, queue: ServerQueue, active: ActiveCall) -> Callable[[], Awaitable[None]]:
        """Return a function that continues a call from before a restart.

        The records that the function needs are read now, before retention may delete them.
        """
        if core.is_held(active.call):
            return partial(self._run_to_end, queue, active, partial(self.exchange_approved, queue, active))
        send_again = partial(self._exchange, queue, active)
        return partial(self._run_to_end, queue, active, self.resumption.prepare(queue, active, send_again))

    async def _admit(self, queue: ServerQueue, active: ActiveCall) -> bool:
        """Decide whether a call may be sent, and set `admitted`, for callers that wait for the decision.

        If the record of the call must be durable first, it is committed, together with the question about the call. If
        the store refuses the record or the inbox the question, the call fails and leaves its queue: return False.
        """
        if active.call.detached or active.is_durable_first:
            try:
                if active.question is not None:
                    await self.gate.open_question(active.question, lambda: [self._new_record(active.call)])
                else:
                    await self.ledger.transact(lambda: (None, [self._new_record(active.call)]))
            except HubError as exc:
                active.refusal = exc
        if active.refusal is not None:
            failed = core.fail(active.call, hub_fault(active.refusal), self.clock.now())
            if isinstance(active.refusal, UnknownOutcome):  # if the store has the record, it must not stay unfinished
                self.ledger.change_later(
                    self.table, failed.id, partial(core.record_failed_creation, active.call, failed)
                )
            queue.remove(active, failed)
            active.ended.set()
        active.admitted.set()
        return active.refusal is None

    def _new_record(self, call: Call) -> Change[Call]:
        """Return the change that adds the record of a call. Raises AlreadyExists if its id is taken."""
        if self.table.record(call.id) is not None:
            raise reused_id_error(call)
        return self.table.new(call.id, call)

    async def _run_to_end(
        self, queue: ServerQueue, active: ActiveCall, exchange: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        """Run the exchange, and end the call with its outcome, unless the next hub is to resume it."""
        CURRENT_TRACE.set(active.call.trace)  # log lines from here on get the call's trace ids
        started_at = self.clock.steady()
        result: dict[str, Any] | None = None
        fault: Fault | None = None
        try:
            result = await active.deadline.run(exchange)
        except PeerError as exc:
            fault = server_fault(exc)
        except HubError as exc:
            fault = exc.fault if isinstance(exc, UpstreamError) else hub_fault(exc)
        except Exception as exc:
            log.exception("call failed: internal error", call=active.call.id)
            fault = Fault(code="INTERNAL", category=Category.SERVER, message=f"the hub failed: {type(exc).__name__}")
        if result is not None:
            ended = core.complete(active.call, payload.dumps(result), self.clock.now())
        elif self.resumption.is_left_to_resume(queue, active, fault):
            queue.remove(active, active.call)
            active.ended.set()
            return
        else:
            fault = fault or active.fault or queue.timeout_fault(active)
            elapsed_s = round(self.clock.steady() - started_at, 3)
            details = {"server": active.call.server, "method": active.call.method, "elapsed_s": elapsed_s}
            fault = replace(fault, details={**details, **fault.details})
            ended = core.fail(active.call, fault, self.clock.now())
        await self._end(queue, active, ended)

    async def exchange_approved(self, queue: ServerQueue, active: ActiveCall) -> dict[str, Any]:
        """Wait until a held call is approved, send it with the approved params, and return its result."""
        return await self._exchange(queue, active, await self.gate.wait_for_approval(queue, active))

    async def _exchange(
        self,
        queue: ServerQueue,
        active: ActiveCall,
        params: dict[str, Any],
        resumed_params: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Wait for a slot, send, and get the input that the server asks for, until there is a result.

        `resumed_params` are what a resumed call sends first, in place of `params`.
        """
        is_resumed = resumed_params is not None
        params_to_send = params if resumed_params is None else resumed_params
        while True:
            with self.spans.queue_span(active):
                link = await queue.wait_for_slot(active)
            if not await self._record_as_sent(queue, link, active):
                continue  # the connection has changed meanwhile
            if is_resumed:
                require_multi_round_support(link.hello, active.call)
            await self._require_allowed(queue, link, active, params_to_send)
            await active.deadline.stop_if_over()
            if self.gate.is_on or queue.config.confirm:
                objection = self.gate.find_objection(queue, active.call, params)
                if objection is not None:
                    params = await self.gate.ask_again(queue, active, params, objection)
                    params_to_send = {**params_to_send, **params}
                    continue
            params_to_send = with_task(link.hello, queue.config, active.call, params_to_send)
            try:
                result = await self._send(queue, link, active, params_to_send)
            except PeerError as exc:
                if active.call.rounds is not None:
                    await self.rounds.mark_delivered(active.call.rounds)
                if is_resumed:
                    require_accepted_state(active.call, exc)
                await self.consents.ask(queue, active, link.hello, exc)
                is_resumed = False
                continue
            except UpstreamError as exc:
                if active.was_resent or not _was_not_received(exc.fault):
                    raise
                active.was_resent = True
                if queue.link is link:
                    queue.set_link(None)  # the link is lost for all calls; they wait for the next one
                queue.requeue(active)
                continue
            if active.call.rounds is not None:
                await self.rounds.mark_delivered(active.call.rounds)
            is_resumed = False
            is_stateless = link.hello.era is Era.STATELESS
            if is_stateless or "task" in params_to_send:
                task = find_created_task(active.call.method, params_to_send, result, stateless=is_stateless)
                if task is not None:
                    return await self.client_tasks.poll_new(queue, active, link, task)
            if result.get("resultType") != "input_required":
                return without_denied_tools(queue.config, active.call.method, result) if queue.limits_tools else result
            params_to_send = await self.rounds.ask(queue, active, params, result)

    async def _require_allowed(
        self, queue: ServerQueue, link: McpLink, active: ActiveCall, params: dict[str, Any]
    ) -> None:
        """Raise the error of a call that its server's options, or the server, do not allow.

        Where rules may ask people, the definition of the call's tool is fetched first. A call that was checked with the
        same configuration and handshake of the server is not checked again.
        """
        if self.gate.is_on or queue.config.confirm:
            await self.gate.refresh_tool(queue, active.call)
        if active.checked_with is not None:
            config, hello = active.checked_with
            if config is queue.config and hello is link.hello:
                return
        denial = find_denial(queue.config, active.call.method, params) if queue.limits_tools else None
        if denial is not None:
            raise denial
        await self.support.require_supported(link.hello, active.call, params)

    async def _record_as_sent(self, queue: ServerQueue, link: McpLink, active: ActiveCall) -> bool:
        """Record durably that a detached or approved call is being sent, as a crash must not hide that it was sent.

        Return False if the connection has changed meanwhile: then the call is queued again. Raises Unavailable if the
        store does not take the record; then the call must not be sent.
        """
        if not active.is_recorded_as_sent and (active.call.detached or active.call.approval is not None):
            await self.ledger.transact(lambda: (None, self.table.waiting_changes(active.call.id)))
            active.is_recorded_as_sent = True
            if queue.link is not link:
                queue.requeue(active)
                return False
        return True

    async def _send(
        self, queue: ServerQueue, link: McpLink, active: ActiveCall, params: dict[str, Any]
    ) -> dict[str, Any]:
        """Send a call over a link, publish its progress, and return the result. Raises PeerError and UpstreamError."""

        def on_progress(update: ProgressUpdate | None) -> None:
            """Restart the call's timeout, and publish its progress; None is another sign of work."""
            queue.note_progress(active)
            if update is not None and self.live.is_watched:
                message = None if update.message is None else REDACTION.redact_text(update.message)
                event = ProgressEvent(active.call.id, update.progress, update.total, message)
                self.live.publish(active.call, event)

        active.was_sent = True
        may_create_task = "task" in params
        orphan_search = self.orphans.search_if_cancelled(queue, link, active.call) if may_create_task else nullcontext()
        with orphan_search, self.spans.exchange_span(active, params) as span:
            return await link.request(
                active.call.method, params or None, call_id=active.call.id, on_progress=on_progress, span=span
            )

    async def _end(self, queue: ServerQueue, active: ActiveCall, call: Call) -> None:
        """Record the end of a call, durably if a client or a pending request depends on it, and wake its callers."""
        queue.ended[call.state] += 1
        self.ledger.change_later(self.table, call.id, partial(core.merge_change, active.call, call))
        queue.remove(active, call)
        log.debug("call ended", call=call.id, server=call.server, method=call.method, state=call.state.value)
        try:
            has_requests = call.id in self.causes.request_ids_by_call
            if call.detached or call.rounds or call.task_id or (has_requests and self.causes.has_open_request(call.id)):
                # Durable before the caller sees it; if the store fails now, write-behind retries.
                with suppress(HubError):
                    await self.ledger.transact(
                        lambda: (None, [*self.table.waiting_changes(call.id), *self.causes.changes_of_ended(call.id)])
                    )
        finally:
            active.ended.set()


def _was_not_received(fault: Fault) -> bool:
    """Return whether a fault says that the server has not received the call: no such session, or not reached."""
    return fault.code == FaultCode.SESSION_LOST or fault.details.get("sent") is False
