"""Permissions for a host's own tools: asked as approvals, answered in time or with a denial that says to ask again.

A host understands nothing but yes and no. So a request that ends before people have answered is denied, and its call
goes on. The next identical request joins that call; it gets an answer that came meanwhile, once.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from hubbubd import payload
from hubbubd.core.access import call_origin
from hubbubd.core.approvals.requests import read_folder
from hubbubd.core.approvals.suggestions import accepted_suggestions
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import CallFilter
from hubbubd.downstream.calls.call_results import read_tool_result
from hubbubd.downstream.calls.denials import render_refused_call
from hubbubd.downstream.calls.host_call import Attendance, HostCall
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.people.tools import PermitQuery, parse_permit
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.questions.input_rounds import make_joining_spec
from hubbubd.errors import HubError
from hubbubd.runtime.calls import HOST, CallSpec
from hubbubd.runtime.hub import Hub

MAX_UNDELIVERED: Final = 1000
"""The most calls that are remembered for a later request: the latest."""

MAX_LOOKED_AT: Final = 1000
"""Calls that are searched for an open question of an earlier process of the hub."""


class Permits:
    """The permissions that the hosts of one endpoint ask for."""

    def __init__(self, hub: Hub, questions: HostQuestions, attendance: Attendance, view_name: str) -> None:
        self._hub = hub
        self._questions = questions
        self._attendance = attendance
        self._profile = view_name.removeprefix("p/")
        self._prefix = f"permit_{hashlib.sha256(view_name.encode()).hexdigest()[:8]}_"
        self._undelivered_calls: OrderedDict[str, str] = OrderedDict()
        """By `_question_key`, the id of a call whose result no host has got."""
        self._awaited_ids = set[str]()
        """The ids of calls for which a host waits now."""

    async def render_decision(self, request: HostRequest) -> bytes:
        """Return the decision of people, as the result of a tool with one block of JSON. Raises Refusal.

        In the form `hook` the decision has the shape of the output of a PermissionRequest hook.
        """
        query = parse_permit(request.params)
        decision = await self._decide(request, query)
        if query.form == "hook":
            decision = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
        return payload.dumps({"content": [{"type": "text", "text": payload.dumps(decision).decode()}]})

    async def _decide(self, request: HostRequest, query: PermitQuery) -> Mapping[str, Any]:
        """Make or join the call that asks people, and return its decision; a denial if the call takes too long.

        A call whose result the host does not get is remembered, so that the next identical request joins it.
        """
        key = _question_key(request, query)
        spec = self._join_undelivered_call(key, request, query) or self._make_spec(request, query)
        host_call = HostCall(self._questions, self._attendance, request, spec)
        request.note_call(host_call.call_id)
        began_at, has_result = self._hub.clock.steady(), False
        self._awaited_ids.add(host_call.call_id)
        try:
            with host_call.report_to_host():
                call = await host_call.run_until_hold_ends(
                    self._hub.calls.call(host_call.spec, request.host.principal.name)
                )
            has_result = call is not None
        except HubError as exc:
            has_result = True
            return _make_denial(_read_text(render_refused_call(exc)) or exc.message)
        finally:
            self._awaited_ids.discard(host_call.call_id)
            if not has_result:
                self._remember_call(key, host_call.call_id)
        if call is None:
            waited_s = round(self._hub.clock.steady() - began_at)
            return _make_denial(
                f"Nobody answered in {waited_s} s. The question is still open: ask again, and wait for it."
            )
        return _read_decision(call)

    def _join_undelivered_call(self, key: str, request: HostRequest, query: PermitQuery) -> CallSpec | None:
        """Return the spec that joins an earlier call with the same question; None if there is no such call.

        The call is forgotten, so that no second request joins it.
        """
        call_id = self._undelivered_calls.pop(key, None)
        call = self._hub.calls.find(call_id) if call_id is not None else self._find_open_call(request, query)
        return make_joining_spec(call) if call is not None else None

    def _find_open_call(self, request: HostRequest, query: PermitQuery) -> Call | None:
        """Return an earlier process's open call with the same question, if no host waits for it; else None."""
        calls = self._hub.calls.newest(CallFilter(server=HOST))
        for call in islice(calls, MAX_LOOKED_AT):
            is_free = not call.state.ended and call.detached and call.id not in self._awaited_ids
            is_own = call.principal == request.host.principal.name and call.id.startswith(self._prefix)
            if (
                is_free
                and is_own
                and _identify_question(payload.loads_message(call.params, "params")) == _identify_question(query.params)
            ):
                return call
        return None

    def _remember_call(self, key: str, call_id: str) -> None:
        """Remember a detached call for the next identical request; beyond MAX_UNDELIVERED forget the oldest."""
        call = self._hub.calls.find(call_id)
        if call is None or not call.detached:
            return
        self._undelivered_calls[key] = call_id
        if len(self._undelivered_calls) > MAX_UNDELIVERED:
            self._undelivered_calls.popitem(last=False)

    def _make_spec(self, request: HostRequest, query: PermitQuery) -> CallSpec:
        """Return the spec of a new call that asks people."""
        host, message = request.host, query.params
        caller = host.principal
        return CallSpec(
            server=HOST,
            method="tools/call",
            params=payload.dumps(message),
            message=message,
            call_id=f"{self._prefix}{secrets.token_hex(8)}",
            origin=call_origin(caller.grants, caller.groups, HOST, host.name, self._profile),
        )


def _question_key(request: HostRequest, query: PermitQuery) -> str:
    """Return a hash of principal, tool, arguments and folder: the same for identical questions of one principal."""
    key = payload.dumps([request.host.principal.name, query.tool, query.arguments, query.cwd])
    return hashlib.sha256(key).hexdigest()


def _identify_question(params: Mapping[str, Any]) -> tuple[str, bytes, str]:
    """Return the tool, the arguments and the folder, by which two questions are compared."""
    return params["name"], payload.dumps(params["arguments"]), read_folder(HOST, params)


def _read_decision(call: Call) -> Mapping[str, Any]:
    """Return the decision of a call that has ended, with the further permissions that people have given.

    A failed call is a denial.
    """
    try:
        result = payload.loads(read_tool_result(call, ""))  # "": no host gets this result, so it needs no revision
    except Refusal as refusal:
        return _make_denial(str(refusal))
    text = str(result["content"][0]["text"])
    if result.get("isError"):
        return _make_denial(text)
    permissions = accepted_suggestions(call)
    return {**payload.loads(text.encode()), **({"updatedPermissions": permissions} if permissions else {})}


def _read_text(result: bytes | None) -> str:
    """Return the text of a tool's result; "" without a result."""
    return str(payload.loads(result)["content"][0]["text"]) if result is not None else ""


def _make_denial(message: str) -> Mapping[str, Any]:
    """Return a decision that denies, with the reason for the model."""
    return {"behavior": "deny", "message": message}
