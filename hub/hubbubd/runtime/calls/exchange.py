"""Executes queued calls: admission, turn, exchange with the server, further rounds, end."""

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
from hubbubd.errors import Category, Fault, HubError, PeerError, UpstreamError
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
from hubbubd.telemetry.trace import CALLER
from hubbubd.upstream.ports import Era, Link, ProgressUpdate

log = structlog.get_logger(__name__)


class CallExchange:
    """Executes calls. One for all servers; each call comes with its queue."""

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
        story: SpanRecorder,
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
        self._story = story

    async def start_up(self, under_way: Sequence[Call]) -> None:
        """End what belonged to calls from before a restart that were not resumed."""
        await self._rounds.start_up(under_way)
        await self._client_tasks.start_up()
        await self._causes.start_up()

    async def begin(self, lane: ServerQueue, live: ActiveCall, params: dict[str, Any]) -> None:
        """Execute a new call, from admission to its end."""
        if await self._admit(lane, live):
            await self._run(lane, live, partial(self._exchange, lane, live, params))

    def resume(self, lane: ServerQueue, live: ActiveCall) -> Callable[[], Awaitable[None]]:
        """Return the execution of a call from before a restart. Reads what it needs from the store now."""
        return partial(self._run, lane, live, self._resumption.way_on(lane, live, partial(self._exchange, lane, live)))

    async def _admit(self, lane: ServerQueue, live: ActiveCall) -> bool:
        """Commit a detached call before it is sent; return False if the store refused it."""
        if live.call.detached:
            try:
                await self._ledger.commit([self._table.change(live.call.id, live.call)])
            except Conflict:
                live.refusal = reused(live.call)
            except HubError as exc:
                live.refusal = exc
        if live.refusal is not None:
            lane.leave(live, core.fail(live.call, of_hub(live.refusal), self._clock.now()))
            live.ended.set()
        live.admitted.set()
        return live.refusal is None

    async def _run(
        self, lane: ServerQueue, live: ActiveCall, exchange: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        CALLER.set(live.call.trace)  # log lines from here on get the call's trace ids
        try:
            await self._outcome(lane, live, exchange)
        finally:
            self._consents.forget(live)

    async def _outcome(
        self, lane: ServerQueue, live: ActiveCall, exchange: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        """End the call with the outcome of the exchange, unless it is left for the next process to resume."""
        started = self._clock.steady()
        result: dict[str, Any] | None = None
        fault: Fault | None = None
        try:
            with live.scope:
                result = await exchange()
        except PeerError as exc:
            fault = of_server(exc)
        except HubError as exc:
            fault = exc.fault if isinstance(exc, UpstreamError) else of_hub(exc)
        except Exception as exc:
            log.exception("call failed: internal error", call=live.call.id)
            fault = Fault(code="INTERNAL", category=Category.SERVER, message=f"the hub failed: {type(exc).__name__}")
        if result is None and self._resumption.outlives(lane, live, fault):
            lane.leave(live, live.call)
            self._record(live.call)
            live.ended.set()
            return
        now = self._clock.now()
        if result is not None:
            await self._end(lane, live, core.complete(live.call, payload.dumps(result), now))
            return
        fault = fault or live.verdict or lane.out_of_time(live)
        details = {
            "server": live.call.server,
            "method": live.call.method,
            "elapsed_s": round(self._clock.steady() - started, 3),
        }
        await self._end(lane, live, core.fail(live.call, replace(fault, details={**details, **fault.details}), now))

    async def _exchange(
        self, lane: ServerQueue, live: ActiveCall, params: dict[str, Any], sending: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Wait for a turn, send, and get the input that the server asks for, until there is a result.

        `sending` are the params of the first exchange, if they differ: those of a resumed call.
        """
        resumed, sending = sending is not None, params if sending is None else sending
        while True:
            with self._story.queued(live):
                link = await lane.turn(live)
            if not await self._may_go_out(lane, link, live):
                continue
            if (denial := denied(lane.config, live.call.method, sending)) is not None:
                raise denial
            if resumed:
                require_rounds(link.hello, live.call)
            await self._support.check(link.hello, live.call, sending)
            sending = with_task(link.hello, lane.config, live.call, sending)
            try:
                result = await self._send(lane, link, live, sending)
            except PeerError as exc:
                await self._rounds.replied(live.call)
                if resumed:
                    require_state(live.call, exc)
                await self._consents.ask(lane, live, link.hello, exc)
                resumed = False
                continue
            except UpstreamError as exc:
                if exc.reason != "SESSION_LOST" or live.resent:
                    raise
                live.resent = True
                if lane.link is link:
                    lane.attach(None)  # the session is gone for all calls; they wait for the next link
                lane.enter_again(live)
                continue
            await self._rounds.replied(live.call)
            resumed = False
            task = created(live.call.method, sending, result, stateless=link.hello.era is Era.STATELESS)
            if task is not None:
                return await self._client_tasks.begin(lane, live, link, task)
            if result.get("resultType") != "input_required":
                return shown(lane.config, live.call.method, result)
            sending = await self._rounds.ask(lane, live, params, result)

    async def _may_go_out(self, lane: ServerQueue, link: Link, live: ActiveCall) -> bool:
        """Record durably that a detached call is being sent; return False when it must wait for another turn.

        After a crash the record decides whether the call may have been executed. Raises Unavailable; then it is not
        sent.
        """
        if live.call.detached and not live.known_as_sent:
            await self._ledger.commit([Change(self._table, live.call.id, live.call)])
            live.known_as_sent = True
            if lane.link is not link:
                lane.enter_again(live)
                return False
        return True

    async def _send(self, lane: ServerQueue, link: Link, live: ActiveCall, params: dict[str, Any]) -> dict[str, Any]:
        def on_progress(update: ProgressUpdate) -> None:
            lane.progressed(live)
            if self._table.feed.watched:
                event = ProgressEvent(live.call.id, update.progress, update.total, update.message)
                self._table.feed.publish_live(live.call.id, live.call, live.call.id, event)

        with self._orphans.looked_after(lane, link, live.call, params), self._story.sent(live, params) as span:
            return await link.request(
                live.call.method, params or None, call_id=live.call.id, on_progress=on_progress, span=span
            )

    async def _end(self, lane: ServerQueue, live: ActiveCall, call: Call) -> None:
        lane.ended[call.state] += 1
        lane.leave(live, call)
        self._record(call)
        ended = Change(self._table, call.id, call)
        log.debug("call ended", call=call.id, server=call.server, method=call.method, state=call.state.value)
        try:
            if call.detached or call.rounds or call.task_id or self._causes.named(call.id):
                # Durable before the caller sees it; if the store fails now, write-behind retries.
                with suppress(HubError):
                    await self._ledger.transact(lambda: (None, [ended, *self._causes.changes(call.id)]))
        finally:
            live.ended.set()

    def _record(self, call: Call) -> None:
        self._ledger.later(Change(self._table, call.id, call))
