"""Propagates the caller's trace to the hub, in the metadata of each RPC.

A program with OpenTelemetry's SDK also gets a client span for each RPC with one response. This module does not import
OpenTelemetry itself: a program that has not loaded it has no span.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from hubbub_client.errors import HubbubError
from hubbub_client.numbers import LAST_PORT, whole_text

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message
    from opentelemetry.trace import Span

Metadata = list[tuple[str, str]]

ENVIRONMENT_TRACE: ContextVar[Metadata | None] = ContextVar("hubbub_client_around", default=None)
"""Trace context from the environment, for a program without a tracer; None if it was not read."""


def continue_environment_trace() -> None:
    """Continue the trace of TRACEPARENT and TRACESTATE, for commands in traced scripts; ignore unusable values."""
    headers = ((name, os.environ.get(name.upper(), "")) for name in ("traceparent", "tracestate"))
    ENVIRONMENT_TRACE.set(
        [(name, value) for name, value in headers if value.isascii() and value.isprintable() and value]
    )


def metadata() -> Metadata:
    """Return the current trace context as metadata of an RPC: of OpenTelemetry's current span, if there is one.

    Else return the context that `continue_environment_trace` has read; an empty list if that was not called.
    """
    if (trace := _loaded_opentelemetry()) is None or not trace.get_current_span().get_span_context().is_valid:
        return ENVIRONMENT_TRACE.get() or []
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return list(carrier.items())


@contextmanager
def trace_rpc(request: Message, address: str) -> Generator[None]:
    """Record the block as the client span of an RPC; do nothing in a program without a tracer."""
    if (trace := _loaded_opentelemetry()) is None:
        yield
        return
    name = _find_method_name(request.DESCRIPTOR)
    attributes: dict[str, str | int] = {"rpc.system.name": "grpc", "rpc.method": name, **_server_attributes(address)}
    with trace.get_tracer("hubbub_client").start_as_current_span(
        name, kind=trace.SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except HubbubError as failure:
            _mark_failed(trace, span, failure.code.name)
            raise
        except Exception as failure:
            _mark_failed(trace, span, type(failure).__name__)
            raise
        except BaseException:
            _mark_failed(trace, span, "CANCELLED")
            raise
        span.set_attribute("rpc.response.status_code", "OK")


def _mark_failed(trace: ModuleType, span: Span, code: str) -> None:
    """Set the status of a span of a failed RPC."""
    span.set_attributes({"rpc.response.status_code": code, "error.type": code})
    span.set_status(trace.StatusCode.ERROR)


def _loaded_opentelemetry() -> ModuleType | None:
    """Return OpenTelemetry's API if the program has imported it, else None."""
    return sys.modules.get("opentelemetry.trace")


def _server_attributes(address: str) -> dict[str, str | int]:
    """Return a hub's address as attributes of a span."""
    host, _, port = address.removeprefix("unix:").removeprefix("dns:///").rpartition(":")
    number = whole_text(port, LAST_PORT)
    if address.startswith("unix:") or number is None:
        return {"server.address": address.removeprefix("unix:")}
    return {"server.address": host.strip("[]"), "server.port": number}


@cache
def _find_method_name(request: Descriptor) -> str:
    """Return the RPC of a request type as `package.Service/Method`."""
    methods = (method for service in request.file.services_by_name.values() for method in service.methods)
    found = next((method for method in methods if method.input_type is request), None)
    return f"{found.containing_service.full_name}/{found.name}" if found else request.full_name
