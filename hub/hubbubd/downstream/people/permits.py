"""Permissions of a host's own tools: asked as approvals, answered in time or with a denial that says to ask again.

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
from hubbubd.core.approvals.suggestions import taken_suggestions
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import CallFilter
from hubbubd.downstream.calls.call_results import tool_result_of
from hubbubd.downstream.calls.denials import render_refused
from hubbubd.downstream.calls.host_call import Attendance, HostCall
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.people.tools import PermitQuery, parse_permit
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.host_questions import HostQuestions
from hubbubd.downstream.questions.input_rounds import spec_of
from hubbubd.errors import HubError
from hubbubd.runtime.calls import HOST, CallSpec
from hubbubd.runtime.hub import Hub

MAX_LEFT: Final = 1000
"""Questions that are remembered whose hosts have been told to ask again: the latest."""

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
        self._left: OrderedDict[str, str] = OrderedDict()
        """The calls of which no host has heard the end, by what was asked."""
        self._waited_for = set[str]()

    async def result(self, request: HostRequest) -> bytes:
        """Return the decision as a host takes it: a result of a tool with one block of JSON. Raises Refusal."""
        query = parse_permit(request.params)
        decision = await self._decide(request, query)
        if query.form == "hook":
            decision = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
        return payload.dumps({"content": [{"type": "text", "text": payload.dumps(decision).decode()}]})

    async def _decide(self, request: HostRequest, query: PermitQuery) -> Mapping[str, Any]:
        key = _key_of(request, query)
        spec = self._take_left(key, request, query) or self._make_spec(request, query)
        host_call = HostCall(self._questions, self._attendance, request, spec)
        request.note_call(host_call.call_id)
        began_at, heard = self._hub.clock.steady(), False
        self._waited_for.add(host_call.call_id)
        try:
            with host_call.followed():
                call = await host_call.result_in_time(self._hub.calls.call(host_call.spec, request.host.principal.name))
            heard = call is not None
        except HubError as exc:
            heard = True
            return _deny(_words(render_refused(exc)) or exc.message)
        finally:
            self._waited_for.discard(host_call.call_id)
            if not heard:
                self._leave(key, host_call.call_id)
        if call is None:
            waited_s = round(self._hub.clock.steady() - began_at)
            return _deny(f"Nobody answered in {waited_s} s. The question is still open: ask again, and wait for it.")
        return _read_decision(call)

    def _take_left(self, key: str, request: HostRequest, query: PermitQuery) -> CallSpec | None:
        """Return what joins a call of this that no host has heard the end of; it is not left any more."""
        call_id = self._left.pop(key, None)
        call = self._hub.calls.find(call_id) if call_id is not None else self._find_open(request, query)
        return spec_of(call) if call is not None else None

    def _find_open(self, request: HostRequest, query: PermitQuery) -> Call | None:
        """Return a call of this that goes on though no host waits for it, as an earlier hub has left it."""
        mine = self._hub.calls.newest(CallFilter(server=HOST))
        for call in islice(mine, MAX_LOOKED_AT):
            is_free = not call.state.ended and call.detached and call.id not in self._waited_for
            own = call.principal == request.host.principal.name and call.id.startswith(self._prefix)
            if is_free and own and _asked_of(payload.loads_message(call.params, "params")) == _asked_of(query.params):
                return call
        return None

    def _leave(self, key: str, call_id: str) -> None:
        """Leave a call to the next identical request, if it goes on."""
        call = self._hub.calls.find(call_id)
        if call is None or not call.detached:
            return
        self._left[key] = call_id
        if len(self._left) > MAX_LEFT:
            self._left.popitem(last=False)

    def _make_spec(self, request: HostRequest, query: PermitQuery) -> CallSpec:
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


def _key_of(request: HostRequest, query: PermitQuery) -> str:
    asked = payload.dumps([request.host.principal.name, query.tool, query.arguments, query.cwd])
    return hashlib.sha256(asked).hexdigest()


def _asked_of(params: Mapping[str, Any]) -> tuple[str, bytes, str]:
    """Return what a host asks for, whatever it suggests beside that."""
    return params["name"], payload.dumps(params["arguments"]), read_folder(HOST, params)


def _read_decision(call: Call) -> Mapping[str, Any]:
    """Return what became of a call that has ended."""
    try:
        result = payload.loads(tool_result_of(call, ""))
    except Refusal as refusal:
        return _deny(str(refusal))
    text = str(result["content"][0]["text"])
    if result.get("isError"):
        return _deny(text)
    taken = taken_suggestions(call)
    return {**payload.loads(text.encode()), **({"updatedPermissions": taken} if taken else {})}


def _words(result: bytes | None) -> str:
    return str(payload.loads(result)["content"][0]["text"]) if result is not None else ""


def _deny(message: str) -> Mapping[str, Any]:
    return {"behavior": "deny", "message": message}
