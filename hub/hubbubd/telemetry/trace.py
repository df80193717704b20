"""Spans and their places in traces, as plain values that records can hold.

A span is exported when it ends, under ids chosen when it began: it may begin in one hub process and end in the next.
"""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, cast

from hubbubd.bounds import Moment

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE: Final = re.compile(r"[\x20-\x7e]{1,512}")
_SAMPLED: Final = 1
"""The flag `sampled` (W3C Trace Context, 3.2.2.5.1)."""

Value = str | int | float | bool
Attributes = dict[str, Value]


class SpanKind(StrEnum):
    """OpenTelemetry's span kind."""

    INTERNAL = "internal"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The place of a span in a trace: its ids in lower-case hex, and `state`, the tracestate of the trace.

    `own` says that the hub exports the span when it ends. A place from elsewhere, or one not sampled, is only
    propagated.
    """

    trace_id: str
    span_id: str
    parent_id: str | None = None
    sampled: bool = True
    state: str = ""
    own: bool = False

    def headers(self) -> dict[str, str]:
        """Return `traceparent` and `tracestate` for propagation (W3C Trace Context)."""
        parent = {"traceparent": f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"}
        return {**parent, "tracestate": self.state} if self.state else parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span that has begun. `start` is in seconds since the epoch."""

    name: str
    kind: SpanKind
    trace: Trace
    start: Moment
    attributes: Attributes = field(default_factory=dict[str, Value])


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event within a span; `at` is seconds since the epoch."""

    name: str
    at: float
    attributes: Attributes


@dataclass(slots=True, eq=False)
class RpcSpan:
    """The span of the RPC that is served now, and links to the traces of calls and requests that it acts on."""

    span: Span
    links: list[Trace] = field(default_factory=list[Trace])


CURRENT_RPC: ContextVar[RpcSpan | None] = ContextVar("hubbub_rpc_span", default=None)
"""The RPC being served, when it is traced."""

CURRENT_TRACE: ContextVar[Trace | None] = ContextVar("hubbub_trace", default=None)
"""The current parent span: that of the call or the RPC, or else the caller's own."""


def parse_trace(carrier: object) -> Trace | None:
    """Return the trace that `traceparent` and `tracestate` of a mapping name; None when they name no valid one.

    W3C Trace Context, 3.2 and 3.3. Later versions are read as version 00, as the specification says.
    """
    if not carrier or not isinstance(carrier, Mapping):
        return None
    headers = cast("Mapping[str, Any]", carrier)
    traceparent = headers.get("traceparent")
    match = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) and len(traceparent) <= 512 else None
    if match is None:
        return None
    version, trace_id, span_id, flags, suffix = match.groups()
    if version == "ff" or (version == "00" and suffix) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = headers.get("tracestate")
    state = state if isinstance(state, str) and _TRACESTATE.fullmatch(state) else ""
    return Trace(trace_id=trace_id, span_id=span_id, sampled=bool(int(flags, 16) & _SAMPLED), state=state)


def trace_of_params(params: Mapping[str, Any]) -> Trace | None:
    """Return the trace that `_meta` of an MCP message's params names; None when it names no valid one."""
    meta: object = params.get("_meta")
    return parse_trace(cast("object", meta)) if isinstance(meta, Mapping) and "traceparent" in meta else None


def propagated_span(trace: Trace | None) -> Span | None:
    """Return a span that only carries another program's trace on; it is never exported. None without a trace."""
    return trace and Span(name="", kind=SpanKind.CLIENT, trace=replace(trace, own=False), start=0.0)


def inject_trace(params: Mapping[str, Any] | None, trace: Trace) -> dict[str, Any]:
    """Return the params of an MCP message with a trace in `_meta`, in place of any other."""
    request_params = params or {}
    # `traceparent` is always overwritten, `tracestate` only if this trace has one.
    other_meta = {key: value for key, value in _as_mapping(request_params.get("_meta")).items() if key != "tracestate"}
    return {**request_params, "_meta": {**other_meta, **trace.headers()}}


def _as_mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return cast("Mapping[str, Any]", value) if value is not None and isinstance(value, Mapping) else {}
