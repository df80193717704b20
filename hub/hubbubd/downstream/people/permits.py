"""Permissions for a host's own tools: asked as approvals, answered in time or with a denial that says to ask again.

A host takes nothing else than yes and no. So a request that ends before people have answered is denied, the question
stays open, and the next identical request takes it over; or an answer that nobody has heard, once.
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

MAX_LEFT: Final = 1000
"""Questions that are remembered whose hosts have to ask again: the latest."""

MAX_LOOKED_AT: Final = 1000
"""Calls that are searched for a question which an earlier hub has left open."""


class Permits:
    """The permissions that the hosts of one endpoint ask for."""

    def __init__(self, hub: Hub, questions: HostQuestions, attendance: Attendance, view: str) -> None:
        self._hub = hub
        self._questions = questions
        self._attendance = attendance
        self._profile = view.removeprefix("p/")
        self._prefix = f"permit_{hashlib.sha256(view.encode()).hexdigest()[:8]}_"
        self._left_calls: OrderedDict[str, str] = OrderedDict()
        """The calls of which no host has heard the end, by what was asked (`_question_key`)."""
        self._waited_for = set[str]()
        """The calls for which a host waits now."""

    async def render_decision(self, request: HostRequest) -> bytes:
        """Return what people decide, as the result of a tool with one block of JSON. Raises Refusal.

        In the form `hook` the decision is wrapped as a PermissionRequest hook of the host returns it.
        """
        query = parse_permit(request.params)
        decision = await self._decide(request, query)
        if query.form == "hook":
            decision = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
        return payload.dumps({"content": [{"type": "text", "text": payload.dumps(decision).decode()}]})

    async def _decide(self, request: HostRequest, query: PermitQuery) -> Mapping[str, Any]:
        """Make or join the call that asks people, and return its decision; a denial if the call takes too long.

        A call whose end the host does not hear is remembered, so that the next identical request joins it.
        """
        key = _question_key(request, query)
        spec = self._rejoin_left_call(key, request, query) or self._make_spec(request, query)
        host_call = HostCall(self._questions, self._attendance, request, spec)
        request.note_call(host_call.call_id)
        began_at, heard = self._hub.clock.steady(), False
        self._waited_for.add(host_call.call_id)
        try:
            with host_call.report_to_host():
                call = await host_call.run_until_hold_ends(
                    self._hub.calls.call(host_call.spec, request.host.principal.name)
                )
            heard = call is not None
        except HubError as exc:
            heard = True
            return _make_denial(_read_text(render_refused_call(exc)) or exc.message)
        finally:
            self._waited_for.discard(host_call.call_id)
            if not heard:
                self._remember_left_call(key, host_call.call_id)
        if call is None:
            waited_s = round(self._hub.clock.steady() - began_at)
            return _make_denial(
                f"Nobody answered in {waited_s} s. The question is still open: ask again, and wait for it."
            )
        return _read_decision(call)

    def _rejoin_left_call(self, key: str, request: HostRequest, query: PermitQuery) -> CallSpec | None:
        """Return the spec that joins a call of the same question which no host waits for; None if there is none."""
        call_id = self._left_calls.pop(key, None)
        call = self._hub.calls.find(call_id) if call_id is not None else self._find_open_call(request, query)
        return make_joining_spec(call) if call is not None else None

    def _find_open_call(self, request: HostRequest, query: PermitQuery) -> Call | None:
        """Return a call of the same question that an earlier process has left open; None if there is none."""
        mine = self._hub.calls.newest(CallFilter(server=HOST))
        for call in islice(mine, MAX_LOOKED_AT):
            is_free = not call.state.ended and call.detached and call.id not in self._waited_for
            own = call.principal == request.host.principal.name and call.id.startswith(self._prefix)
            if (
                is_free
                and own
                and _identify_question(payload.loads_message(call.params, "params")) == _identify_question(query.params)
            ):
                return call
        return None

    def _remember_left_call(self, key: str, call_id: str) -> None:
        """Remember a call that goes on, so that the next identical request joins it."""
        call = self._hub.calls.find(call_id)
        if call is None or not call.detached:
            return
        self._left_calls[key] = call_id
        if len(self._left_calls) > MAX_LEFT:
            self._left_calls.popitem(last=False)

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
    """Return a hash of who asks what: the same for identical questions of one principal."""
    asked = payload.dumps([request.host.principal.name, query.tool, query.arguments, query.cwd])
    return hashlib.sha256(asked).hexdigest()


def _identify_question(params: Mapping[str, Any]) -> tuple[str, bytes, str]:
    """Return what makes two questions the same: the tool, its arguments and the folder."""
    return params["name"], payload.dumps(params["arguments"]), read_folder(HOST, params)


def _read_decision(call: Call) -> Mapping[str, Any]:
    """Return the decision of a call that has ended, with the further permissions that people gave.

    A call that failed is a denial.
    """
    try:
        result = payload.loads(read_tool_result(call, ""))  # no host gets it, so no revision
    except Refusal as refusal:
        return _make_denial(str(refusal))
    text = str(result["content"][0]["text"])
    if result.get("isError"):
        return _make_denial(text)
    taken = accepted_suggestions(call)
    return {**payload.loads(text.encode()), **({"updatedPermissions": taken} if taken else {})}


def _read_text(result: bytes | None) -> str:
    """Return the text of a tool's result; "" without a result."""
    return str(payload.loads(result)["content"][0]["text"]) if result is not None else ""


def _make_denial(message: str) -> Mapping[str, Any]:
    """Return a decision that denies, with the reason for the model."""
    return {"behavior": "deny", "message": message}
