"""A host's request as a call of the hub, with what its server asks in between."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from hubbubd import payload
from hubbubd.core.calls import Call
from hubbubd.core.inbox import PendingRequest
from hubbubd.core.jsonrpc import HUB_FAILED
from hubbubd.downstream import calls
from hubbubd.downstream.following import Following
from hubbubd.downstream.handles import Handles
from hubbubd.downstream.host import Exchange
from hubbubd.downstream.host_tasks import HostTasks, Shown, may_become_task, requests_task
from hubbubd.downstream.messages import Refusal
from hubbubd.downstream.profiles import View
from hubbubd.downstream.questions import Questions
from hubbubd.downstream.requests import Requests
from hubbubd.downstream.rounds import Lost, Rounds
from hubbubd.downstream.session_tasks import SessionTasks
from hubbubd.downstream.task_extension import TaskExtension
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub

LOST: Final = (
    "The hub was restarted while the server waited for an answer, so this call has no result. The server may have "
    "carried out a part of it. It may be called again."
)


_RESTARTS: Final = frozenset({"HUB_RESTARTED", "SHUTTING_DOWN"})


class Conversations:
    """The calls that hosts make at one endpoint."""

    def __init__(self, hub: Hub, view: View, handles: Handles, shown: Shown) -> None:
        """`shown` returns a server's result of a tool as a host sees it."""
        self._hub = hub
        self._questions = Questions(hub, lambda: view.policy)
        self._rounds = Rounds(self._questions, handles, view.name)
        self.tasks = HostTasks(view, self._questions)
        self.extension = TaskExtension(self.tasks, shown)
        self.session_tasks = SessionTasks(self.tasks, shown)

    async def call(self, exchange: Exchange, server: str, method: str, params: Mapping[str, Any]) -> bytes:
        """Return the result of a server's method, or one that asks the host for input. Raises Refusal and HubError."""
        try:
            attached = self._rounds.attached(exchange) if exchange.host.stateless else None
        except Lost:
            return _lost(method)
        spec, handle = attached or (self._new(exchange, server, method, params), None)
        assert spec.call_id is not None, "a host's call has an id"
        if requests_task(exchange):
            return await self.session_tasks.begin(exchange, spec)
        with calls.followed(self._hub.calls, exchange, spec.call_id):
            if handle is None and may_become_task(exchange):
                outcome = await self.extension.result(exchange, spec)
            elif exchange.host.stateless:
                outcome = await self._rounds.result(exchange, spec, handle)
            else:
                outcome = await self._with_requests(exchange, spec, spec.call_id)
        if isinstance(outcome, bytes):
            return outcome
        if handle is not None and outcome.fault is not None and outcome.fault.code in _RESTARTS:
            return _lost(method)
        return calls.result_of(outcome)

    def _new(self, exchange: Exchange, server: str, method: str, params: Mapping[str, Any]) -> CallSpec:
        sent = self._questions.stamped(exchange, calls.passed_on(params))
        sent.pop("task", None)  # between the host and the hub
        call_id = exchange.call_key or f"call_{secrets.token_hex(8)}"
        if requests_task(exchange) or may_become_task(exchange):
            call_id = self.tasks.new_id(exchange)
        return CallSpec(
            server=server,
            method=method,
            params=payload.dumps(sent),
            call_id=call_id,
            as_task=method == "tools/call" and self._as_task(exchange, server, str(params.get("name"))),
        )

    def _as_task(self, exchange: Exchange, server: str, tool: str) -> bool:
        """Return whether the hub asks for a task at the server: where the server insists, or the host asks for one."""
        support = self._hub.calls.task_support(server, tool)
        return support == "required" or (support == "optional" and requests_task(exchange))

    async def _with_requests(self, exchange: Exchange, spec: CallSpec, call_id: str) -> Call:
        principal = exchange.host.principal.name
        requests = Requests(self._questions, exchange)

        def reserves(request: PendingRequest) -> bool:
            return self._questions.reserves(exchange.host, request)

        with (
            Following(self._hub, call_id, requests.changed).following(),
            self._hub.inbox.reserved.for_caller(call_id, principal, reserves),
        ):
            async with requests.asked():
                return await self._hub.calls.call(spec, principal)


def _lost(method: str) -> bytes:
    """Return what a tool says when its call is gone. Raises Refusal for other methods, which have no such result."""
    if method != "tools/call":
        raise Refusal(HUB_FAILED, LOST, {"reason": "HUB_RESTARTED"})
    return payload.dumps({"content": [{"type": "text", "text": LOST}], "isError": True})
