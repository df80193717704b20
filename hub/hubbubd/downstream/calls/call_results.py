"""Params of a host's request as they go to a server, and the end of its call as the host gets it."""

import secrets
from collections.abc import Mapping
from typing import Any

from hubbubd import payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.jsonrpc import HUB_FAILED, INVALID_PARAMS
from hubbubd.downstream.calls.denials import is_denial, render_denied_call
from hubbubd.downstream.calls.host_call import CallReporter
from hubbubd.downstream.hosts.host import LOG_LEVEL, HostRequest
from hubbubd.downstream.protocol import revisions
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.errors import Fault, HubError, InvalidArgument, NotFound, UpstreamError
from hubbubd.runtime.calls import Calls, CallSpec

OWN_META = "io.modelcontextprotocol/"
"""Prefix of the members of `_meta` that belong to one connection."""

NOT_PASSED_ON = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
"""Further members of `_meta` that are not passed on: the hub sets its own in requests to servers."""


async def make_call(calls: Calls, request: HostRequest, server: str, method: str, params: Mapping[str, Any]) -> Call:
    """Make a call whose questions its host is not asked, and return it once it has ended. Raises HubError.

    Progress and log messages of the call go to the host.
    """
    call_id = request.call_key or f"call_{secrets.token_hex(8)}"
    request.note_call(call_id)
    spec = CallSpec(server=server, method=method, params=payload.dumps(without_own_meta(params)), call_id=call_id)
    with calls.listen(call_id, CallReporter(request).on_event):
        return await calls.call(spec, request.host.principal.name)


def without_own_meta(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the params without the members of `_meta` that concern the host and the hub alone.

    The level of log messages stays: the server needs it, too.
    """
    copied = dict(params)
    if not (meta := copied.pop("_meta", None)):
        return copied
    for_server = {
        key: value
        for key, value in meta.items()
        if key == LOG_LEVEL or (key not in NOT_PASSED_ON and not key.startswith(OWN_META))
    }
    if for_server:
        copied["_meta"] = for_server
    return copied


def read_result(call: Call) -> bytes:
    """Return the result of a call that has ended, an empty object if it has none. Raises Refusal for a fault."""
    if call.fault is not None:
        raise refusal_from_fault(call.fault)
    return call.result or b"{}"


def read_tool_result(call: Call, revision: str) -> bytes:
    """Return the result of a tool's call that has ended; for a denied call, a result that explains the denial.

    Raises Refusal for any other fault. `revision` is the host's.
    """
    if call.fault is not None and is_denial(call.fault):
        return revisions.render_result("tools/call", render_denied_call(call.fault), revision, None)
    return read_result(call)


def refusal_from_fault(fault: Fault) -> Refusal:
    """Return a call's fault as an error for the host; an error of the server itself is passed on unchanged."""
    code = fault.details.get("jsonrpc_code")
    if fault.code == "SERVER_ERROR" and isinstance(code, int):
        return Refusal(code, str(fault.details.get("jsonrpc_message", "")), fault.details.get("jsonrpc_data"))
    data = {"reason": fault.code, "category": str(fault.category), "help": fault.help_url}
    return Refusal(HUB_FAILED, fault.message, data)


def refusal_from_error(exc: HubError) -> Refusal:
    """Return an error of the hub as an error for the host."""
    if isinstance(exc, UpstreamError):
        return refusal_from_fault(exc.fault)
    code = INVALID_PARAMS if isinstance(exc, NotFound | InvalidArgument) else HUB_FAILED
    return Refusal(code, exc.message, {"reason": exc.reason, **exc.metadata})
