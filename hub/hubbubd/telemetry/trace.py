"""Spans, and where each stands in its trace. Plain values, so that they can stand in records.

A span is told when it ends, under ids that were chosen when it began: what began under one hub can end under the next.
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


class Kind(StrEnum):
    """On which side of an exchange a span stands."""

    INTERNAL = "internal"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A span's place: its ids in lower-case hex, and `state`, the tracestate that came with the trace.

    `own` is whether the hub tells of the span when it ends; one that came from elsewhere, or is not sampled, is only
    passed on.
    """

    trace_id: str
    span_id: str
    parent_id: str | None = None
    sampled: bool = True
    state: str = ""
    own: bool = False

    def headers(self) -> dict[str, str]:
        """`traceparent` and `tracestate` for whoever goes on from here (W3C Trace Context)."""
        parent = {"traceparent": f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"}
        return {**parent, "tracestate": self.state} if self.state else parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span that has begun. `start` is in seconds since the epoch."""

    name: str
    kind: Kind
    trace: Trace
    start: Moment
    attributes: Attributes = field(default_factory=dict[str, Value])


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a span, `at` seconds since the epoch."""

    name: str
    at: float
    attributes: Attributes


@dataclass(slots=True, eq=False)
class Serving:
    """The span of the RPC that is being served, and the spans of other traces that it has to do with."""

    span: Span
    links: list[Trace] = field(default_factory=list[Trace])


CURRENT_RPC: ContextVar[Serving | None] = ContextVar("hubbub_rpc_span", default=None)
"""The RPC being served, when it is traced."""

CURRENT_TRACE: ContextVar[Trace | None] = ContextVar("hubbub_trace", default=None)
"""The span that what is done now belongs to: that of the RPC, else its caller's own."""


def parsed(carrier: object) -> Trace | None:
    """The place that `traceparent` and `tracestate` of a mapping name; None when there is no valid one.

    W3C Trace Context, 3.2 and 3.3. A later version is read as far as version 00 goes.
    """
    given = _mapping(carrier)
    text = given.get("traceparent")
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) and len(text) <= 512 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = given.get("tracestate")
    state = state if isinstance(state, str) and _TRACESTATE.fullmatch(state) else ""
    return Trace(trace_id=trace_id, span_id=span_id, sampled=bool(int(flags, 16) & _SAMPLED), state=state)


def of_params(params: Mapping[str, Any]) -> Trace | None:
    """The place that an MCP message names in its `_meta`."""
    return parsed(params.get("_meta"))


def passed_on(trace: Trace | None) -> Span | None:
    """A span for the other side to know of, and nobody to tell: what it belongs to tells of itself."""
    return trace and Span(name="", kind=Kind.CLIENT, trace=replace(trace, own=False), start=0.0)


def with_place(params: Mapping[str, Any] | None, trace: Trace) -> dict[str, Any]:
    """The params of an MCP message that names this place in its `_meta`, whatever it named before."""
    kept = {key: value for key, value in _mapping((params or {}).get("_meta")).items() if key != "tracestate"}
    return {**(params or {}), "_meta": {**kept, **trace.headers()}}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
