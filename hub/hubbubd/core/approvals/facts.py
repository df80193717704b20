"""What conditions know of a call: from its record, its params and the hints of its tool."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hubbubd.conditions import CallFacts
from hubbubd.core.calls.call_states import Call
from hubbubd.core.calls.tool_policy import CALL


def is_tool_call(method: str) -> bool:
    """Return whether a method calls a tool, also for a server that reads it carelessly."""
    return method.strip().casefold() == CALL


def facts_of(call: Call, params: Mapping[str, Any], hints: Mapping[str, Any], now: float) -> CallFacts:
    """Return the facts of a call of a tool; `now` is in seconds since the epoch, `hints` are the tool's annotations."""
    return CallFacts(
        server=call.server,
        tool=str(params.get("name")),
        args=params.get("arguments", {}),
        argument_bytes=len(call.params),
        hints=hints,
        caller=call.principal,
        roles=call.origin.roles,
        host=call.origin.host,
        profile=call.origin.profile,
        now=datetime.fromtimestamp(now, UTC),
    )
