"""Spans of calls, pending requests and tasks, exported when their records end.

A span whose record outlives this process is exported by the next one, under the same ids. What is shorter than a record
(an RPC, an exchange on the wire) is exported where it happens; the call's record lists it meanwhile (`under_way`), so
that the next process can finish it after a crash. While tracing is off, all this costs one comparison.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final

from hubbubd import payload
from hubbubd.core.approvals.votes import approval_outcome
from hubbubd.core.calls import call_states as core_calls
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.inbox import request_states as core_inbox
from hubbubd.core.inbox.request_states import Delivery, Origin, PendingRequest, RequestEvent, RequestKind, RequestState
from hubbubd.core.tasks import Task, TaskStatus
from hubbubd.frozen import replaced
from hubbubd.runtime.calls.queue import ActiveCall
from hubbubd.runtime.records import Ledger, Table
from hubbubd.telemetry import mcp
from hubbubd.telemetry.trace import (
    CURRENT_RPC,
    CURRENT_TRACE,
    Attributes,
    Span,
    SpanEvent,
    SpanKind,
    Trace,
    trace_of_params,
)
from hubbubd.telemetry.tracer import Tracer
from hubbubd.upstream.ports import InboundRequest, ReplyError

RESTARTED = "HUB_RESTARTED"
"""`error.type` of spans that were open when the previous process ended."""

_NO_SPAN: Final = nullcontext()

METHODS = {
    RequestKind.ELICITATION_FORM: "elicitation/create",
    RequestKind.ELICITATION_URL: "elicitation/create",
    RequestKind.SAMPLING: "sampling/createMessage",
    RequestKind.ROOTS: "roots/list",
}


class SpanRecorder:
    """Adds spans to new calls, follows the tables, and exports the spans of ended records."""

    def __init__(
        self,
        tracer: Tracer,
        ledger: Ledger,
        calls: Table[Call],
        requests: Table[PendingRequest],
        tasks: Table[Task],
    ) -> None:
        self.tracer = tracer
        self._ledger = ledger
        self._calls = calls
        if tracer.on:
            calls.follow_own(self._export_ended_call)
            requests.follow_own(self._export_ended_request)
            tasks.follow_own(self._export_ended_task)

    # Calls

    def with_trace(self, call: Call, params: dict[str, object]) -> Call:
        """Return a new call with a span of its own, whose parent is the span in `_meta` of the params, else the RPC's.

        Without a parent, and with tracing off, the call stays as it is. While a caller waits for the call, its record
        lists the span of the RPC, so that the next process can finish the span after a crash.
        """
        named_parent = trace_of_params(params)
        parent = named_parent or CURRENT_TRACE.get()
        if parent is None and not self.tracer.on:
            return call
        trace = self.tracer.begin(parent, f"call {mcp.describe_request(call.method, params)[0]}")
        rpc = CURRENT_RPC.get()
        if rpc is None or trace is None:
            return replaced(call, trace=trace)
        if named_parent is not None:
            rpc.links.append(trace)
        lists_rpc = _is_exported_here(rpc.span.trace) and not call.detached
        return replaced(call, trace=trace, under_way=(rpc.span,) if lists_rpc else ())

    def queue_span(self, active: ActiveCall) -> AbstractContextManager[None]:
        """Export the block, a call's wait for a slot, as a span."""
        return self._exported_queue_span(active) if self.tracer.on else _NO_SPAN

    @contextmanager
    def _exported_queue_span(self, active: ActiveCall) -> Generator[None]:
        """Export the block as a span; for a call that was never sent the span begins when the call was made."""
        start = active.call.created_at if active.call.started_at is None else self.tracer.now()
        try:
            yield
        finally:
            self._export_queue_span(active.call, start, self.tracer.now())

    def exchange_span(self, active: ActiveCall, params: dict[str, object]) -> AbstractContextManager[Span | None]:
        """Yield the span of an exchange on the wire, for the link to export; None if the call is not traced."""
        return _NO_SPAN if active.call.trace is None else self._listed_exchange_span(active, params)

    @contextmanager
    def _listed_exchange_span(self, active: ActiveCall, params: dict[str, object]) -> Generator[Span | None]:
        """Yield a new client span for an exchange of a call; None if that is not traced.

        If this hub exports the span, the call's record lists it during the block.
        """
        name, attributes = mcp.describe_request(active.call.method, params)
        trace = self.tracer.begin(active.call.trace, name, SpanKind.CLIENT)
        if trace is None:
            yield None
            return
        active.last_span = trace
        span = Span(name=name, kind=SpanKind.CLIENT, trace=trace, start=self.tracer.now(), attributes=attributes)
        if not _is_exported_here(trace):
            yield span
            return
        self._set_open_spans(active, (*active.call.under_way, span))
        try:
            yield span
        finally:
            self._set_open_spans(active, tuple(other for other in active.call.under_way if other is not span))

    def drop_rpc_span(self, active: ActiveCall) -> None:
        """Remove the RPC's span from the record of a call whose caller is gone: the RPC itself exports that span."""
        if active.call.under_way:
            self._set_open_spans(
                active, tuple(span for span in active.call.under_way if span.kind is not SpanKind.SERVER)
            )

    def finish_open_spans(self, call: Call) -> Call:
        """Export the open spans of a call from before a restart, as broken off, and return the call without them."""
        if not call.under_way and call.started_at is not None:
            return call
        now = self.tracer.now()
        for span in call.under_way:
            self.tracer.export_span(span, now, attributes={"hubbub.server": call.server}, error=RESTARTED)
        if call.started_at is None:
            self._export_queue_span(call, call.created_at, now)
        return replaced(call, under_way=())

    def _set_open_spans(self, active: ActiveCall, under_way: tuple[Span, ...]) -> None:
        """Record, write-behind, the spans that the next hub must finish if this one is killed."""
        before = active.call
        active.call = replaced(before, under_way=under_way)
        self._ledger.change_later(self._calls, before.id, partial(core_calls.merge_change, before, active.call))

    def _export_queue_span(self, call: Call, start: float, end: float) -> None:
        """Export a wait for a slot as a span, unless this hub only passes the call's trace on."""
        trace = self.tracer.begin(call.trace, "queue") if _is_exported_here(call.trace) else None
        if trace is not None:
            attributes: Attributes = {"hubbub.server": call.server, "hubbub.call.id": call.id}
            self.tracer.export_span(
                Span(name="queue", kind=SpanKind.INTERNAL, trace=trace, start=start, attributes=attributes), end
            )

    def _export_ended_call(self, before: Call | None, call: Call | None) -> None:
        """Export the span of a call once it has ended, if this hub exports its trace."""
        if (
            call is None
            or not call.state.ended
            or (before is not None and before.state.ended)
            or not _is_exported_here(call.trace)
        ):
            return
        params = payload.loads_object(call.params, "params")
        name, attributes = mcp.describe_request(call.method, params)
        attributes |= {
            "hubbub.server": call.server,
            "hubbub.call.id": call.id,
            "hubbub.call.state": call.state.value,
            "hubbub.call.detached": call.detached,
            "hubbub.principal": mcp.bounded_text(call.principal),
        }
        if call.task_id is not None:
            attributes["hubbub.task.id"] = mcp.bounded_text(call.task_id)
        if self.tracer.content:
            attributes["gen_ai.tool.call.arguments"] = mcp.bounded_content(call.params)
            attributes["gen_ai.tool.call.result"] = mcp.bounded_content(call.result)
        self._export(
            f"call {name}", call.trace, call.created_at, call.completed_at, attributes, error=_call_error_type(call)
        )

    # Pending requests

    def _export_ended_request(self, before: PendingRequest | None, after: PendingRequest | None) -> None:
        """Export the span of a pending request once the request is over, or is deleted before that."""
        request = after or before
        if (
            request is None
            or (before is not None and core_inbox.is_over(before))
            or not _is_exported_here(request.trace)
        ):
            return
        if after is not None and not core_inbox.is_over(after):
            return
        last = request.moments[-1].at if request.moments else request.created_at
        kind = SpanKind.SERVER if request.origin is Origin.PLAIN else SpanKind.INTERNAL
        self._export(
            "approval" if request.kind is RequestKind.APPROVAL else f"ask {request.kind}",
            request.trace,
            request.created_at,
            last,
            self._request_attributes(request),
            kind=kind,
            error=_request_error_type(request),
            events=[_span_event(moment) for moment in request.moments],
            links=[moment.trace for moment in request.moments if moment.trace],
        )

    def _request_attributes(self, request: PendingRequest) -> Attributes:
        """Return the attributes of a request's span; with question and answer only if `tracer.content` is set."""
        attributes: Attributes = {
            "hubbub.server": request.server,
            "hubbub.request.id": request.id,
            "hubbub.request.kind": request.kind.value,
            "hubbub.request.state": request.state.value,
            "hubbub.request.delivery": request.delivery.value,
        }
        if request.kind is RequestKind.APPROVAL:
            attributes |= _approval_attributes(request)
        else:
            attributes["mcp.method.name"] = METHODS[request.kind]
        if request.call_id:
            attributes["hubbub.call.id"] = request.call_id
        if request.cause_source:
            attributes["hubbub.request.cause_source"] = request.cause_source.value
        if request.task_id:
            attributes["hubbub.task.id"] = mcp.bounded_text(request.task_id)
        if self.tracer.content:
            sampling = request.kind is RequestKind.SAMPLING
            input_key = "gen_ai.input.messages" if sampling else "hubbub.request"
            output_key = "gen_ai.output.messages" if sampling else "hubbub.answer"
            attributes[input_key] = mcp.bounded_content(request.request)
            attributes[output_key] = mcp.bounded_content(request.answer.payload if request.answer else None)
        return attributes

    # Tasks

    def _export_ended_task(self, before: Task | None, after: Task | None) -> None:
        """Export the span of a task once the task has ended, or is deleted before that."""
        task = after or before
        if task is None or (before is not None and before.status.ended) or not _is_exported_here(task.trace):
            return
        if after is not None and not after.status.ended:
            return
        attributes: Attributes = {
            "mcp.method.name": mcp.bounded_text(task.method),
            "hubbub.server": task.server,
            "hubbub.task.id": mcp.bounded_text(task.id),
            "hubbub.task.role": task.role.value,
            "hubbub.task.status": task.status.value,
        }
        if task.call_id:
            attributes["hubbub.call.id"] = task.call_id
        error = None if task.status is TaskStatus.COMPLETED else f"TASK_{task.status.name}"
        self._export(
            f"task {mcp.bounded_text(task.method)}",
            task.trace,
            task.created_at,
            task.last_updated_at,
            attributes,
            error=error,
        )

    def _export(
        self,
        name: str,
        trace: Trace | None,
        start: float,
        end: float | None,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        error: str | None = None,
        events: list[SpanEvent] | None = None,
        links: list[Trace] | None = None,
    ) -> None:
        """Export a span from `start` to `end` (None: to `start`); nothing without a trace."""
        if trace is not None:
            span = Span(name=name, kind=kind, trace=trace, start=start, attributes=attributes)
            self.tracer.export_span(
                span, start if end is None else end, error=error, events=events or (), links=links or ()
            )


@contextmanager
def inbound_request_span(tracer: Tracer, server: str, request: InboundRequest) -> Generator[None]:
    """Export the block as a span: a server's request that is answered without a person, if it belongs to a trace."""
    name, attributes = mcp.describe_request(request.method, request.params)
    trace = tracer.begin(request.trace, name, SpanKind.SERVER) if tracer.on and request.trace else None
    if trace is None:
        yield
        return
    span = Span(
        name=name,
        kind=SpanKind.SERVER,
        trace=trace,
        start=tracer.now(),
        attributes={**attributes, "hubbub.server": server},
    )
    error: str | None = "cancelled"  # stays if the block is cancelled, which none of the clauses below catches
    reply_attributes: Attributes = {}
    try:
        yield
        error = None
    except ReplyError as refusal:
        error = reply_attributes["rpc.response.status_code"] = str(refusal.code)
        raise
    except Exception as exc:
        error = type(exc).__name__
        raise
    finally:
        tracer.export_span(span, tracer.now(), attributes=reply_attributes, error=error)


def _is_exported_here(trace: Trace | None) -> bool:
    """Return whether this hub exports the span of a trace, not only passes it on."""
    return trace is not None and trace.own


def _call_error_type(call: Call) -> str | None:
    """Return `error.type` of an ended call; None for a success."""
    if call.fault is not None:
        return call.fault.code
    # Most results are large and no errors: parse only those that may have isError.
    if call.state is CallState.COMPLETED and b'"isError":true' in (call.result or b""):
        return mcp.TOOL_ERROR if payload.loads(call.result or b"{}").get("isError") is True else None
    return None


def _approval_attributes(request: PendingRequest) -> Attributes:
    """Return the attributes of an approval: its rule, how it ended, and after how many seconds."""
    attributes: Attributes = {
        "hubbub.approval.rule": mcp.bounded_text(payload.loads(request.request)["rule"]["name"]),
        "hubbub.approval.outcome": approval_outcome(request),
    }
    if request.closed_at is not None:
        attributes["hubbub.approval.wait_s"] = round(request.closed_at - request.created_at, 3)
    return attributes


def _request_error_type(request: PendingRequest) -> str | None:
    """Return `error.type` of a pending request that is over, None if it was answered."""
    if request.state is RequestState.EXPIRED:
        return "REQUEST_EXPIRED"
    if request.delivery is Delivery.FAILED:
        return "NOT_DELIVERED"
    return None if request.state is RequestState.ANSWERED else "REQUEST_WITHDRAWN"


def _span_event(moment: RequestEvent) -> SpanEvent:
    """Return a moment in a request's history as an event of its span."""
    attributes: Attributes = {}
    if moment.by is not None:
        attributes = {"hubbub.by": mcp.bounded_text(moment.by), "hubbub.agent": moment.agent}
    return SpanEvent(moment.what.value, moment.at, attributes)
