"""A host's request as a call of the hub: sent on, followed, answered."""

import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from hubbubd import payload
from hubbubd.core.calls.call_states import Call
from hubbubd.core.jsonrpc import HUB_FAILED, INVALID_PARAMS
from hubbubd.downstream.calls.progress import ProgressReporter
from hubbubd.downstream.hosts.host import LOG_LEVEL, RequestToHost
from hubbubd.downstream.protocol.messages import Refusal, notification
from hubbubd.errors import Fault, HubError, InvalidArgument, NotFound, UpstreamError
from hubbubd.runtime.calls import Calls, CallSpec, LogEvent, ProgressEvent

OWN_META = "io.modelcontextprotocol/"
"""Prefix of the members of `_meta` that belong to one connection."""

NOT_PASSED_ON = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
"""Further members of `_meta` that the hub has of its own towards servers."""


async def call(calls: Calls, exchange: RequestToHost, server: str, method: str, params: Mapping[str, Any]) -> Call:
    """Make a call that no server asks anything for; progress and log messages go to the host. Raises HubError."""
    call_id = exchange.call_key or f"call_{secrets.token_hex(8)}"
    if exchange.shown is not None:
        exchange.shown.call_id = call_id
    spec = CallSpec(server=server, method=method, params=payload.dumps(passed_on(params)), call_id=call_id)
    with followed(calls, exchange, call_id, ProgressReporter(exchange)):
        return await calls.call(spec, exchange.host.principal.name)


def passed_on(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params as they go to a server: without what is between the host and the hub."""
    meta: Mapping[str, Any] = params.get("_meta") or {}
    kept = {key: value for key, value in meta.items() if key == LOG_LEVEL or _is_passed_on(key)}
    bare = {key: value for key, value in params.items() if key != "_meta"}
    return {**bare, "_meta": kept} if kept else bare


def _is_passed_on(key: str) -> bool:
    return key not in NOT_PASSED_ON and not key.startswith(OWN_META)


def result_of(ended: Call) -> bytes:
    """Return the result of a call that has ended. Raises Refusal for a fault."""
    if ended.fault is not None:
        raise of_fault(ended.fault)
    return ended.result or b"{}"


def of_fault(fault: Fault) -> Refusal:
    """Return a call's fault as an error for the host: the server's own error as it was."""
    code = fault.details.get("jsonrpc_code")
    if fault.code == "SERVER_ERROR" and isinstance(code, int):
        return Refusal(code, str(fault.details.get("jsonrpc_message", "")), fault.details.get("jsonrpc_data"))
    data = {"reason": fault.code, "category": str(fault.category), "help": fault.help_url}
    return Refusal(HUB_FAILED, fault.message, data)


def of_error(exc: HubError) -> Refusal:
    """Return a refusal of the hub as an error for the host."""
    if isinstance(exc, UpstreamError):
        return of_fault(exc.fault)
    code = INVALID_PARAMS if isinstance(exc, NotFound | InvalidArgument) else HUB_FAILED
    return Refusal(code, exc.message, {"reason": exc.reason, **exc.metadata})


@contextmanager
def followed(calls: Calls, exchange: RequestToHost, call_id: str, progress: ProgressReporter) -> Generator[None]:
    """Tell the host of progress and log messages of a call, as far as it wants them."""

    def tell(followed: Call, live: object) -> None:
        match live:
            case ProgressEvent():
                progress.report(live)
            case LogEvent():
                params = cast("dict[str, Any]", payload.loads(live.params))
                if exchange.wants_log(followed.server, params.get("level")):
                    exchange.tell(notification("notifications/message", params))
            case _:
                pass

    with calls.listen(call_id, tell):
        yield
