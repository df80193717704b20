"""What becomes of a call once it is in its queue: admission, turns, exchanges with the server, rounds, the end."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.core import calls as core
from hubbubd.core.call_faults import of_hub, of_server, reused
from hubbubd.core.calls import Call
from hubbubd.core.tasks import created
from hubbubd.core.tool_policy import denied, shown
from hubbubd.errors import Category, Fault, FaultCode, HubError, PeerError, UpstreamError
from hubbubd.runtime.calls.call_queue import ActiveCall, ServerQueue
from hubbubd.runtime.calls.call_spans import SpanRecorder
from hubbubd.runtime.calls.causes import Causes
from hubbubd.runtime.calls.client_tasks import ClientTasks
from hubbubd.runtime.calls.multi_round import Rounds
from hubbubd.runtime.calls.orphans import Orphans
from hubbubd.runtime.calls.resumption import Resumption, require_rounds, require_state
from hubbubd.runtime.calls.spec import ProgressEvent
from hubbubd.runtime.calls.task_support import TaskSupport, with_task
from hubbubd.runtime.calls.url_elicitation import Consents
from hubbubd.runtime.records import Change, Ledger, Table
from hubbubd.store import Conflict
from hubbubd.telemetry.trace import CURRENT_TRACE
from hubbubd.upstream.ports import Era, Link, ProgressUpdate

log = structlog.get_logger(__name__)


class CallExchange:
    """Carries calls out. One for all servers; each call brings its queue."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        table: Table[Call],
        clock: Clock,
        rounds: Rounds,
        consents: Consents,
        client_tasks: ClientTasks,
        resumption: Resumption,
        support: TaskSupport,
        orphans: Orphans,
        causes: Causes,
        spans: SpanRecorder,
    ) -> None:
        self._ledger = ledger
        self._table = table
        self._clock = clock
        self._rounds = rounds
        self._consents = consents
        self._client_tasks = client_tasks
        self._resumption = resumption
        self._support = support
        self._orphans = orphans
        self._causes = causes
        self._spans = spans

    async def recover(self, under_way: Sequence[Call]) -> None:
        """Ends what the hub before this one has left of calls that are not under way any more."""
        await self._rounds.recover(under_way)
        await self._client_tasks.recover()
        await self._causes.recover()

    async def begin(self, queue: ServerQueue, active: ActiveCall, params: dict[str, Any]) -> None:
        """Carries out a new call, from its admission to its end."""
        if await self._admit(queue, active):
            await self._run(queue, active, partial(self._exchange, queue, active, params))

    def resume(self, queue: ServerQueue, active: ActiveCall) -> Callable[[], Awaitable[None]]:
        """How a call goes on that the hub before this one has left; what it needs of the store is read now."""
        return partial(
            self._run, queue, active, self._resumption.way_on(queue, active, partial(self._exchange, queue, active))
        )

    async def _admit(self, queue: ServerQueue, active: ActiveCall) -> bool:
        """Makes a detached call durable before it is sent; False when the store does not take it."""
        if active.call.detached:
            try:
                await self._ledger.commit([self._table.change(active.call.id, active.call)])
            except Conflict:
                active.refusal = reused(active.call)
            except HubError as exc:
                active.refusal = exc
        if active.refusal is not None:
            queue.leave(active, core.fail(active.call, of_hub(active.refusal), self._clock.now()))
            active.ended.set()
        active.admitted.set()
        return active.refusal is None

    async def _run(
        self, queue: ServerQueue, active: ActiveCall, exchange: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        CURRENT_TRACE.set(active.call.trace)  # what is logged from here on belongs to the call
        try:
            await self._outcome(queue, active, exchange)
        finally:
            self._consents.forget(active)

    async def _outcome(
        self, queue: ServerQueue, active: ActiveCall, exchange: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        """Has the call end with what becomes of the exchange, unless the next hub is to go on with it."""
        started = self._clock.steady()
        result: dict[str, Any] | None = None
        fault: Fault | None = None
        try:
            with active.scope:
                result = await exchange()
        except PeerError as exc:
            fault = of_server(exc)
        except HubError as exc:
            fault = exc.fault if isinstance(exc, UpstreamError) else of_hub(exc)
        except Exception as exc:
            log.exception("a call failed in the hub", call=active.call.id)
            fault = Fault(code="INTERNAL", category=Category.SERVER, message=f"the hub failed: {type(exc).__name__}")
        if result is None and self._resumption.outlives(queue, active, fault):
            queue.leave(active, active.call)
            self._record(active.call)
            active.ended.set()
            return
        now = self._clock.now()
        if result is not None:
            await self._end(queue, active, core.complete(active.call, payload.dumps(result), now))
            return
        fault = fault or active.fault or queue.out_of_time(active)
        details = {
            "server": active.call.server,
            "method": active.call.method,
            "elapsed_s": round(self._clock.steady() - started, 3),
        }
        await self._end(
            queue, active, core.fail(active.call, replace(fault, details={**details, **fault.details}), now)
        )

    async def _exchange(
        self, queue: ServerQueue, active: ActiveCall, params: dict[str, Any], sending: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Waits for the turn, sends, and asks for what the server needs, until there is a result.

        A call that goes on where the hub before this one left it has something else to send first.
        """
        resumed, sending = sending is not None, params if sending is None else sending
        while True:
            with self._spans.queued(active):
                link = await queue.turn(active)
            if not await self._may_go_out(queue, link, active):
                continue
            if (denial := denied(queue.config, active.call.method, sending)) is not None:
                raise denial
            if resumed:
                require_rounds(link.hello, active.call)
            await self._support.check(link.hello, active.call, sending)
            sending = with_task(link.hello, queue.config, active.call, sending)
            try:
                result = await self._send(queue, link, active, sending)
            except PeerError as exc:
                await self._rounds.replied(active.call)
                if resumed:
                    require_state(active.call, exc)
                await self._consents.ask(queue, active, link.hello, exc)
                resumed = False
                continue
            except UpstreamError as exc:
                if exc.reason != FaultCode.SESSION_LOST or active.resent:
                    raise
                active.resent = True
                if queue.link is link:
                    queue.attach(None)  # it is of no use to anybody any more; its successor calls them up
                queue.enter_again(active)
                continue
            await self._rounds.replied(active.call)
            resumed = False
            task = created(active.call.method, sending, result, stateless=link.hello.era is Era.STATELESS)
            if task is not None:
                return await self._client_tasks.begin(queue, active, link, task)
            if result.get("resultType") != "input_required":
                return shown(queue.config, active.call.method, result)
            sending = await self._rounds.ask(queue, active, params, result)

    async def _may_go_out(self, queue: ServerQueue, link: Link, active: ActiveCall) -> bool:
        """Has the next hub know that a detached call was sent, before it is; False when it must wait for another turn.

        Raises Unavailable: then it is not sent.
        """
        if active.call.detached and not active.known_as_sent:
            await self._ledger.commit([Change(self._table, active.call.id, active.call)])
            active.known_as_sent = True
            if queue.link is not link:
                queue.enter_again(active)
                return False
        return True

    async def _send(self, queue: ServerQueue, link: Link, active: ActiveCall, params: dict[str, Any]) -> dict[str, Any]:
        def on_progress(update: ProgressUpdate) -> None:
            queue.progressed(active)
            if self._table.feed.watched:
                event = ProgressEvent(active.call.id, update.progress, update.total, update.message)
                self._table.feed.publish_live(active.call.id, active.call, active.call.id, event)

        with self._orphans.looked_after(queue, link, active.call, params), self._spans.sent(active, params) as span:
            return await link.request(
                active.call.method, params or None, call_id=active.call.id, on_progress=on_progress, span=span
            )

    async def _end(self, queue: ServerQueue, active: ActiveCall, call: Call) -> None:
        queue.ended[call.state] += 1
        queue.leave(active, call)
        self._record(call)
        ended = Change(self._table, call.id, call)
        log.debug("call ended", call=call.id, server=call.server, method=call.method, state=call.state.value)
        try:
            if call.detached or call.rounds or call.task_id or self._causes.named(call.id):
                # Durable before the answer; if the store fails now, the record follows when it recovers.
                with suppress(HubError):
                    await self._ledger.transact(lambda: (None, [ended, *self._causes.changes(call.id)]))
        finally:
            active.ended.set()

    def _record(self, call: Call) -> None:
        self._ledger.later(Change(self._table, call.id, call))
