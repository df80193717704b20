"""The calls that hosts make at one endpoint, from a request to its response."""

import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from hubbubd import payload
from hubbubd.core.access import Principal, call_origin
from hubbubd.core.calls.call_states import Call, CallOrigin
from hubbubd.core.calls.capabilities import KEY as CAPABILITIES
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.core.jsonrpc import HUB_FAILED
from hubbubd.core.servers.catalog import CatalogKind, list_id
from hubbubd.downstream.calls import tickets
from hubbubd.downstream.calls.call_results import read_result, read_tool_result, without_own_meta
from hubbubd.downstream.calls.denials import render_refused_call
from hubbubd.downstream.calls.host_call import Attendance, HostCall
from hubbubd.downstream.calls.repeats import RepeatedCalls
from hubbubd.downstream.hosts.host import HostRequest, McpHost, TaskMode
from hubbubd.downstream.people.permits import Permits
from hubbubd.downstream.protocol import revisions
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.questions.input_rounds import CallLost, InputRounds, make_joining_spec
from hubbubd.downstream.questions.question_requests import QuestionRequests
from hubbubd.downstream.questions.state_tokens import StateToken, StateTokens
from hubbubd.downstream.tasks.host_tasks import HostTasks, ResultRenderer, refuse_task
from hubbubd.downstream.tasks.session_tasks import SessionTasks
from hubbubd.downstream.tasks.task_extension import TaskExtension
from hubbubd.downstream.views import own_tools
from hubbubd.downstream.views.question_policy import NAMES, QuestionPolicy
from hubbubd.downstream.views.view import EndpointView
from hubbubd.errors import HubError, NotFound
from hubbubd.runtime.calls import ASK, CallSpec
from hubbubd.runtime.hub import Hub

LOST_TEXT: Final = (
    "The hub was restarted while this call was under way, so it has no result. The server may have carried out a part "
    "of it. It may be called again."
)

_RESTART_CODES: Final = frozenset({"HUB_RESTARTED", "OWNER_LOST", "SHUTTING_DOWN"})
"""Codes of the faults of calls that ended only because their hub did."""


class HostCalls:
    """The calls that hosts make at one endpoint."""

    def __init__(self, hub: Hub, view: EndpointView, tokens: StateTokens, render: ResultRenderer) -> None:
        """`render` returns a server's result of a tool as a host sees it."""
        self._hub = hub
        self._view = view
        self._questions = HostQuestions(hub, view)
        self._attendance = Attendance(hub)  # how many hosts wait for each call
        self._repeats = RepeatedCalls(hub.clock.steady)
        self._rounds = InputRounds(self._questions, tokens, view.name)
        self.tasks = HostTasks(view, self._questions)
        self.permits = Permits(hub, self._questions, self._attendance, view.name)
        self.extension = TaskExtension(self.tasks, render)
        self.session_tasks = SessionTasks(self.tasks, render)

    def describe_questions(self, host: McpHost) -> dict[str, str]:
        """Return by kind of question why a host is not asked it in its calls; "" where the host is asked."""
        return {name: self._questions.why_not_kind(host, kind, {}) for kind, name in NAMES.items()}

    async def call(self, request: HostRequest, server: str, method: str, params: Mapping[str, Any]) -> bytes:
        """Make or join a call, and return its result, or what the host gets instead. Raises Refusal and HubError.

        Instead of a result the host may get a task, a ticket (how to fetch the result later), or questions to answer.
        """
        mode = request.task_mode
        spec, token = None, None
        if request.host.stateless:
            try:
                spec, token = await self._rounds.find_call(request)
            except CallLost:
                return _render_lost(request)
        if spec is None:
            spec = self._join_or_make_spec(request, server, method, params, mode)
        host_call = HostCall(self._questions, self._attendance, request, spec)  # checks the progress token
        if mode is TaskMode.REQUESTED:
            return await self.session_tasks.start_task(request, spec)
        return await self._serve_call(host_call, token, may_become_task=token is None and mode is TaskMode.POSSIBLE)

    async def fetch_earlier_result(self, request: HostRequest) -> tuple[str, bytes]:
        """Return the server and the result of an earlier call. Raises Refusal and HubError.

        For a call that still goes on the result is a ticket, which says how to fetch the result later.
        """
        refuse_task(request)
        query = tickets.parse_query(request.params)
        call = await self._find_own_call(query.call_id, request.host.principal)
        if call.state.ended:
            return call.server, _render_ended_call(request, call, host_knew_of_call=True)
        spec, token = await self._rounds.find_call(request) if request.host.stateless else (None, None)
        host_call = HostCall(self._questions, self._attendance, request, spec or make_joining_spec(call))
        host_call.end_hold_within(query.wait_s)
        return call.server, await self._serve_call(host_call, token, may_become_task=False)

    async def find_earlier_call(self, principal: Principal, call_ids: Iterable[str]) -> Call | None:
        """Return the first call of a principal with one of these ids, whichever process or member has made it.

        None if there is none, or if the principal may not see its server here. Raises Unavailable.
        """
        for call_id in call_ids:
            with suppress(NotFound):
                call = await self._hub.find_call(call_id)
                if call.principal == principal.name and self._view.shows(call.server, principal):
                    return call
        return None

    async def resume_call(self, request: HostRequest, call: Call) -> bytes:
        """Return the result of the call that a request became earlier, as the call's server returned it.

        For a call that is a task, return the result that names the task.

        Raises Refusal (HUB_RESTARTED) and HubError.
        """
        request.note_call(call.id)
        if call.detached and self.tasks.find_task_call(request.host, call.id) is not None:
            return self.session_tasks.render_created(request.host, call)
        if not call.state.ended:
            host_call = HostCall(self._questions, self._attendance, request, make_joining_spec(call))
            return await self._serve_call(host_call, None, may_become_task=False)
        if call.fault is not None and call.fault.code in _RESTART_CODES:
            raise refusal_for_lost_call()
        return _render_ended_call(request, call, host_knew_of_call=False)

    async def _find_own_call(self, call_id: str, principal: Principal) -> Call:
        """Return a tool's call that this principal has made at this endpoint.

        Raises Refusal (there is no such call, or it is of another principal or endpoint) and Unavailable.
        """
        try:
            call = await self._hub.find_call(call_id)
        except NotFound:
            raise tickets.refusal_for_unknown_call(call_id) from None
        is_own = call.principal == principal.name and call.method in ("tools/call", ASK)
        if not is_own or not self._view.shows(call.server, principal):
            raise tickets.refusal_for_unknown_call(call_id)
        return call

    async def _serve_call(self, host_call: HostCall, token: StateToken | None, *, may_become_task: bool) -> bytes:
        """Run or join a call, and return its result; if its hold ends before, a ticket or an error in its place.

        A host without requests of the hub may get questions instead, with `may_become_task` a task. Raises Refusal and
        HubError.
        """
        request = host_call.request
        request.note_call(host_call.call_id)
        try:
            if may_become_task:
                outcome = await self.extension.run_call(host_call)
            elif request.host.stateless:
                outcome = await self._rounds.run_call(host_call, token)
            else:
                outcome = await self._ask_by_requests(host_call)
        except HubError as exc:
            denial = render_refused_call(exc) if request.method == "tools/call" else None
            if denial is None:
                raise
            return _render_hub_result(request, denial)
        if isinstance(outcome, bytes):
            return outcome
        call = outcome or self._hub.calls.get(host_call.call_id)
        if call.state.ended:
            host_knew_of_call = outcome is None or token is not None or host_call.outlives_host
            return _render_ended_call(request, call, host_knew_of_call=host_knew_of_call)
        if request.method != "tools/call" or self._questions.policy.on_hold_end != "ticket":
            raise tickets.refusal_for_late_answer(call, host_call.awaited_questions)
        ticket = tickets.render_ticket(
            call, host_call.awaited_questions, as_error=self._has_output_schema(request, call)
        )
        return _render_hub_result(request, ticket)

    async def _ask_by_requests(self, host_call: HostCall) -> Call | None:
        """Make or join a call, and ask its host the call's questions by requests; return the call once it has ended.

        None if the hold of the request ends before; the call then goes on.
        """
        request = host_call.request
        requests: QuestionRequests | None = None

        def ask_or_withdraw(question: PendingRequest) -> None:
            """Ask the host a question of the call, or withdraw one that is closed or was changed."""
            nonlocal requests
            if requests is None:  # most calls have no question
                requests = QuestionRequests(self._questions, request, host_call)
            requests.update(question)

        def why_absent() -> str:
            """Return why the host cannot be asked now; "" if it can."""
            return "" if request.presence.is_connected else "it has hung up"

        host_call.observer.on_question = ask_or_withdraw
        waiting_host = self._questions.make_waiting_host(request.host, why_absent=why_absent)
        with host_call.report_to_host(), self._hub.inbox.reserved.reserve_for_host(host_call.call_id, waiting_host):
            try:
                call = self._hub.calls.call(host_call.spec, request.host.principal.name)
                return await host_call.run_until_hold_ends(call)
            finally:
                if requests is not None:
                    await requests.close()

    def _has_output_schema(self, request: HostRequest, call: Call) -> bool:
        """Return whether the called tool has an output schema, against which the host checks results."""
        if request.params.get("name") in own_tools.ALL_NAMES:
            return False
        tool: object = payload.loads(call.params).get("name")
        entries = map(payload.loads, self._hub.catalog.entries(list_id(call.server, CatalogKind.TOOL)))
        return any(entry.get("name") == tool and "outputSchema" in entry for entry in entries)

    def _join_or_make_spec(
        self, request: HostRequest, server: str, method: str, params: Mapping[str, Any], mode: TaskMode
    ) -> CallSpec:
        """Return the spec of a call; with `join_s` in the profile it joins an identical call that is under way.

        Not for a host with tasks: it knows how its calls go on, and repeats none.
        """
        policy = self._view.policy
        if not policy.join_s or method != "tools/call" or mode is not TaskMode.NONE:
            return self._make_spec(request, server, method, params, mode, policy)
        call_id = self._repeats.find(request, server, params, policy.join_s)
        call = self._hub.calls.find(call_id) if call_id is not None else None
        if call is not None and not call.state.ended:
            return make_joining_spec(call)
        spec = self._make_spec(request, server, method, params, mode, policy)
        self._repeats.note(request, server, params, spec.call_id or "")
        return spec

    def _make_spec(
        self,
        request: HostRequest,
        server: str,
        method: str,
        params: Mapping[str, Any],
        mode: TaskMode,
        policy: QuestionPolicy,
    ) -> CallSpec:
        """Return the spec of a new call of a host: its message, capabilities, id and origin."""
        message = without_own_meta(params)
        message.pop("task", None)  # this member asks the hub for a task; `as_task` below asks the server
        if policy.asks_host_alone or request.host.shows_apps:  # else the hub's own capabilities are right
            capabilities = policy.call_capabilities(request.host.capabilities)
            message["_meta"] = {**(message.get("_meta") or {}), CAPABILITIES: capabilities}
        origin = request.host.origins.get(server) or self._find_origin(request.host, server)
        if mode is TaskMode.NONE:
            call_id = request.call_key or f"call_{secrets.token_hex(8)}"
        else:
            call_id = self.tasks.make_id(request)
        return CallSpec(
            server=server,
            method=method,
            params=payload.dumps(message),
            message=message,
            call_id=call_id,
            origin=replace(origin, app=True) if request.by_app else origin,
            as_task=method == "tools/call" and self._needs_server_task(call_id, server, str(params.get("name")), mode),
        )

    def _find_origin(self, host: McpHost, server: str) -> CallOrigin:
        """Return the origin of a host's calls of a server, and store it in the host for its next calls."""
        caller, profile = host.principal, self._view.name.removeprefix("p/")
        origin = host.origins[server] = call_origin(caller.grants, caller.groups, server, host.name, profile)
        return origin

    def _needs_server_task(self, call_id: str, server: str, tool: str, mode: TaskMode) -> bool:
        """Return whether the hub asks the server for a task: where the server insists, or the host asks for one."""
        if (call := self._hub.calls.find(call_id)) is not None:  # the request was sent again; its server may be away
            return call.as_task
        support = self._hub.calls.task_support(server, tool)
        return support == "required" or (support == "optional" and mode is TaskMode.REQUESTED)


def _render_ended_call(request: HostRequest, call: Call, *, host_knew_of_call: bool) -> bytes:
    """Return the result of a call that has ended. Raises Refusal.

    `host_knew_of_call`: the host knew that the call goes on, and so waits for a result. If a restart has ended such a
    call, a tool's result says so, since a model reads results rather than errors.
    """
    if host_knew_of_call and call.fault is not None and call.fault.code in _RESTART_CODES:
        return _render_lost(request)
    if request.method == "tools/call":
        return read_tool_result(call, request.host.revision)
    return read_result(call)


def refusal_for_lost_call() -> Refusal:
    """Return the error for a request that was under way when the hub was restarted."""
    return Refusal(HUB_FAILED, LOST_TEXT, {"reason": "HUB_RESTARTED"})


def _render_lost(request: HostRequest) -> bytes:
    """Return the result of a tool whose call was lost in a restart. Raises Refusal for all other methods."""
    if request.method != "tools/call":
        raise refusal_for_lost_call()
    return _render_hub_result(
        request, payload.dumps({"content": [{"type": "text", "text": LOST_TEXT}], "isError": True})
    )


def _render_hub_result(request: HostRequest, result: bytes) -> bytes:
    """Return a result that the hub itself has made, as the host's revision has it."""
    return revisions.render_result(request.method, result, request.host.revision, None)
