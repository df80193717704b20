"""A host's request as a call of the hub, with what its server asks in between."""

import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from hubbubd import payload
from hubbubd.core.access import Principal
from hubbubd.core.calls.call_states import Call
from hubbubd.core.jsonrpc import HUB_FAILED
from hubbubd.core.servers.catalog import CatalogKind, list_id
from hubbubd.downstream.calls import call_results, tickets
from hubbubd.downstream.calls.attendance import Attendance
from hubbubd.downstream.calls.hold import Hold, HoldTerms
from hubbubd.downstream.calls.observer import CallObserver
from hubbubd.downstream.calls.progress import ProgressReporter
from hubbubd.downstream.calls.repeats import RepeatedCalls
from hubbubd.downstream.hosts.host import McpHost, RequestToHost
from hubbubd.downstream.protocol import revisions
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.questions.input_rounds import CallLost, InputRounds, spec_of
from hubbubd.downstream.questions.question_requests import QuestionRequests
from hubbubd.downstream.questions.state_tokens import StateToken, StateTokens
from hubbubd.downstream.tasks.host_tasks import HostTasks, ResultRenderer, may_become_task, refuse_task, requests_task
from hubbubd.downstream.tasks.session_tasks import SessionTasks
from hubbubd.downstream.tasks.task_extension import TaskExtension
from hubbubd.downstream.views import own_tools
from hubbubd.downstream.views.question_policy import NAMES
from hubbubd.downstream.views.view import EndpointView
from hubbubd.errors import NotFound
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub

LOST: Final = (
    "The hub was restarted while this call was under way, so it has no result. The server may have carried out a part "
    "of it. It may be called again."
)


_RESTARTS: Final = frozenset({"HUB_RESTARTED", "OWNER_LOST", "SHUTTING_DOWN"})


class HostCalls:
    """The calls that hosts make at one endpoint."""

    def __init__(self, hub: Hub, view: EndpointView, handles: StateTokens, shown: ResultRenderer) -> None:
        """`shown` returns a server's result of a tool as a host sees it."""
        self._hub = hub
        self._view = view
        self._questions = HostQuestions(hub, view)
        self._attendance = Attendance(hub)
        self._repeats = RepeatedCalls(hub.clock.steady)
        self._rounds = InputRounds(self._questions, handles, view.name)
        self.tasks = HostTasks(view, self._questions)
        self.extension = TaskExtension(self.tasks, shown)
        self.session_tasks = SessionTasks(self.tasks, shown)

    def outlook(self, host: McpHost) -> dict[str, str]:
        """Return why a host is not asked what servers ask in the course of its calls, by kind; "" where it is."""
        return {name: self._questions.outlook(host, kind, {}) for kind, name in NAMES.items()}

    async def call(self, exchange: RequestToHost, server: str, method: str, params: Mapping[str, Any]) -> bytes:
        """Return the result of a server's method, or one that asks the host for input. Raises Refusal and HubError."""
        try:
            attached = await self._rounds.attached(exchange) if exchange.host.stateless else None
        except CallLost:
            return _lost(exchange)
        spec, handle = attached or (self._made(exchange, server, method, params), None)
        holding = self._holding(exchange, spec)
        if requests_task(exchange):
            return await self.session_tasks.begin(exchange, spec)
        return await self._held(
            exchange, spec, handle, holding, may_become=handle is None and may_become_task(exchange)
        )

    async def again(self, exchange: RequestToHost) -> tuple[str, bytes]:
        """Return the server and the result of an earlier call, or another ticket. Raises Refusal and HubError."""
        refuse_task(exchange)
        wanted = tickets.wanted(exchange.params)
        call = await self._own(wanted.call_id, exchange.host.principal)
        if call.state.ended:
            return call.server, _result(exchange, call, attached=True)
        attached = await self._rounds.attached(exchange) if exchange.host.stateless else None
        spec, handle = attached or (spec_of(call), None)
        holding = self._holding(exchange, spec, wanted)
        return call.server, await self._held(exchange, spec, handle, holding, may_become=False)

    async def made_before(self, principal: Principal, call_ids: Iterable[str]) -> Call | None:
        """Return the call that an earlier process, or another member, has made of a request; None if there is none.

        Raises Unavailable.
        """
        for call_id in call_ids:
            with suppress(NotFound):
                call = await self._hub.find_call(call_id)
                if call.principal == principal.name and call.server in self._view.servers(principal):
                    return call
        return None

    async def resumed(self, exchange: RequestToHost, call: Call) -> bytes:
        """Return what such a call comes to, as its server says it. Raises Refusal (HUB_RESTARTED) and HubError."""
        if exchange.shown is not None:
            exchange.shown.call_id = call.id
        if call.detached and self.tasks.known(exchange.host, call.id) is not None:
            return self.session_tasks.begun(exchange.host, call)
        if not call.state.ended:
            spec = spec_of(call)
            return await self._held(exchange, spec, None, self._holding(exchange, spec), may_become=False)
        if call.fault is not None and call.fault.code in _RESTARTS:
            raise lost()
        return call_results.result_of(call)

    def _holding(self, exchange: RequestToHost, spec: CallSpec, wanted: tickets.ResultQuery | None = None) -> Hold:
        """Return how a request is held that came now; `wanted` is what it wants of a call that is not its own."""
        progress, now = ProgressReporter(exchange), self._hub.clock.steady()
        terms = HoldTerms.of(self._questions.policy, exchange, now, told=progress.wanted)
        if wanted is not None:
            within = terms.until if wanted.wait_s is None else now + wanted.wait_s
            terms = replace(terms, until=min(terms.until, within), whatever=True)
        return Hold(self._hub, exchange, spec, terms, progress)

    async def _own(self, call_id: str, principal: Principal) -> Call:
        """Return a call of a tool that a principal has made of a server of this endpoint.

        Raises Refusal and Unavailable.
        """
        try:
            call = await self._hub.find_call(call_id)
        except NotFound:
            raise tickets.unknown(call_id) from None
        own = call.principal == principal.name and call.method == "tools/call"
        if not own or call.server not in self._view.servers(principal):
            raise tickets.unknown(call_id)
        return call

    async def _held(
        self, exchange: RequestToHost, spec: CallSpec, handle: StateToken | None, holding: Hold, *, may_become: bool
    ) -> bytes:
        """Return the result of a call, or what its host gets instead where it takes longer than the host waits.

        `may_become`: that may be a task.
        """
        assert spec.call_id is not None, "a host's call has an id"
        if exchange.shown is not None:
            exchange.shown.call_id = spec.call_id
        with (
            call_results.followed(self._hub.calls, exchange, spec.call_id, holding.progress),
            self._attendance.waiting(exchange, spec.call_id),
        ):
            if may_become:
                outcome = await self.extension.result(exchange, spec)
            elif exchange.host.stateless:
                outcome = await holding.held(self._rounds.result(exchange, spec, handle, holding))
            else:
                outcome = await holding.held(self._with_requests(exchange, spec, spec.call_id, holding))
        if isinstance(outcome, bytes):
            return outcome
        call = outcome or self._hub.calls.get(spec.call_id)
        if call.state.ended:
            return _result(exchange, call, attached=outcome is None or handle is not None or holding.keeps)
        if exchange.method != "tools/call" or self._questions.policy.on_hold_end != "ticket":
            raise tickets.late(call, holding.asked)
        return _of_hub(exchange, tickets.ticket(call, holding.asked, as_error=self._has_schema(exchange, call)))

    def _has_schema(self, exchange: RequestToHost, call: Call) -> bool:
        """Return whether the host checks results of the tool that it has called against a schema."""
        if exchange.params.get("name") in own_tools.ALL:
            return False
        own: object = payload.loads(call.params).get("name")
        entries = map(payload.loads, self._hub.catalog.entries(list_id(call.server, CatalogKind.TOOL)))
        return any(entry.get("name") == own and "outputSchema" in entry for entry in entries)

    def _made(self, exchange: RequestToHost, server: str, method: str, params: Mapping[str, Any]) -> CallSpec:
        """Return what a call is made from: an identical one that goes on, where the profile joins it, else a new one.

        A host with tasks knows how its calls go on, and repeats none.
        """
        join_s = self._questions.policy.join_s
        if not join_s or method != "tools/call" or requests_task(exchange) or may_become_task(exchange):
            return self._new(exchange, server, method, params)
        call_id = self._repeats.of(exchange, server, params, join_s)
        call = self._hub.calls.find(call_id) if call_id is not None else None
        if call is not None and not call.state.ended:
            return spec_of(call)
        spec = self._new(exchange, server, method, params)
        self._repeats.note(exchange, server, params, spec.call_id or "")
        return spec

    def _new(self, exchange: RequestToHost, server: str, method: str, params: Mapping[str, Any]) -> CallSpec:
        sent = self._questions.stamped(exchange, call_results.passed_on(params))
        sent.pop("task", None)  # between the host and the hub
        call_id = exchange.call_key or f"call_{secrets.token_hex(8)}"
        if requests_task(exchange) or may_become_task(exchange):
            call_id = self.tasks.new_id(exchange)
        return CallSpec(
            server=server,
            method=method,
            params=payload.dumps(sent),
            call_id=call_id,
            as_task=method == "tools/call" and self._as_task(exchange, call_id, server, str(params.get("name"))),
        )

    def _as_task(self, exchange: RequestToHost, call_id: str, server: str, tool: str) -> bool:
        """Return whether the hub asks for a task at the server: where the server insists, or the host asks for one."""
        if (call := self._hub.calls.find(call_id)) is not None:  # sent again, perhaps while the server is away
            return call.as_task
        support = self._hub.calls.task_support(server, tool)
        return support == "required" or (support == "optional" and requests_task(exchange))

    async def _with_requests(self, exchange: RequestToHost, spec: CallSpec, call_id: str, holding: Hold) -> Call:
        principal = exchange.host.principal.name
        requests = QuestionRequests(self._questions, exchange, holding)

        waiting = self._questions.waiting(lambda: exchange.host, but=requests.absent)
        waits = self._questions.noting(exchange.host, holding.changed)
        with (
            CallObserver(self._hub, call_id, requests.changed, waits).following(),
            self._hub.inbox.reserved.for_host(call_id, waiting),
        ):
            async with requests.asked():
                return await self._hub.calls.call(spec, principal)


def _result(exchange: RequestToHost, call: Call, *, attached: bool) -> bytes:
    """Return the result of a call that has ended; `attached` if its host asked for it before. Raises Refusal."""
    if attached and call.fault is not None and call.fault.code in _RESTARTS:
        return _lost(exchange)
    return call_results.result_of(call)


def lost() -> Refusal:
    """Return the error for a request that was under way when the hub was restarted."""
    return Refusal(HUB_FAILED, LOST, {"reason": "HUB_RESTARTED"})


def _lost(exchange: RequestToHost) -> bytes:
    """Return what a tool says when its call is gone. Raises Refusal for other methods, which have no such result."""
    if exchange.method != "tools/call":
        raise lost()
    return _of_hub(exchange, payload.dumps({"content": [{"type": "text", "text": LOST}], "isError": True}))


def _of_hub(exchange: RequestToHost, result: bytes) -> bytes:
    """Return a result of the hub's own as the host's revision has it, whatever its server's revision has."""
    return revisions.result(exchange.method, result, exchange.host.revision, None)
