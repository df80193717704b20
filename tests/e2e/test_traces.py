"""One trace tells a call's whole story: its caller's span, the hub's, and those of a server that traces itself."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from .collector import Collector, TraceOf, collecting

CALL_METHOD = "hubbub.v1.CallService/CallMethod"
CANARY = "canary-7f3a"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that hubs and servers started from now on send their spans to."""
    with collecting() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield running


@pytest.fixture(scope="session")
def _provider() -> TracerProvider:
    """The tracer of this process, for the client library. It can be set once."""
    provider = TracerProvider(resource=Resource({"service.name": "test"}))
    trace.set_tracer_provider(provider)
    return provider


@pytest.fixture
def tracer(_provider: TracerProvider, collector: Collector) -> Iterator[Any]:
    """A tracer of the caller's."""
    processor = SimpleSpanProcessor(OTLPSpanExporter(endpoint=collector.endpoint))
    _provider.add_span_processor(processor)
    yield _provider.get_tracer("test")
    processor.shutdown()


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, peer_scripts: Path, http_peer: Any, collector: Collector) -> dict[str, Any]:
    """The configuration of the traced server, over each transport."""
    script = str(peer_scripts / "traced_server.py")
    if request.param == "http":
        return {"url": f"{http_peer([sys.executable, script, 'http']).url}/mcp"}
    return stdio(peer_scripts, collector)


def stdio(peer_scripts: Path, collector: Collector) -> dict[str, Any]:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return {"command": sys.executable, "args": [str(peer_scripts / "traced_server.py"), "stdio"], "env": env}


async def answered(hub: Any, call: dict[str, Any], tool: str, name: str = CANARY) -> None:
    """Calls a tool that asks, and answers."""

    async def ask() -> None:
        call["record"] = await hub.client.calls.call("traced", "tools/call", {"name": tool, "arguments": {}})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        (request,) = await hub.asked()
        claimed = await hub.client.inbox.claim(request.id)
        await claimed.accept({"name": name})


async def told(hub: Any, collector: Collector, tracer: Any, tool: str, *names: str) -> TraceOf:
    """The trace of a call with a question."""
    await hub.connected("traced")
    call: dict[str, Any] = {}
    with tracer.start_as_current_span("agent turn") as root:
        # What answers is no part of the turn.
        trace_id = f"{root.get_span_context().trace_id:032x}"
        await answered(hub, call, tool)
    assert CANARY in call["record"].result["content"][0]["text"]
    found = await collector.trace(trace_id, "agent turn", CALL_METHOD, f"call tools/call {tool}", *names)
    found.require_sound()
    assert call["record"].trace_id == trace_id
    return found


def line(found: TraceOf, tool: str) -> list[str]:
    """What stands above the first exchange of a call."""
    return ["agent turn", CALL_METHOD, CALL_METHOD, f"call tools/call {tool}"]


def require_asked(found: TraceOf, span: Any) -> None:
    """The question's own story."""
    assert span.happened == ["shown", "claimed", "answered", "delivered"]
    assert not span.failed
    assert span.attributes["hubbub.request.state"] == "answered"
    assert span.attributes["hubbub.request.delivery"] == "delivered"
    assert dict(span.events[2][1]) == {"hubbub.by": "local", "hubbub.agent": False}
    answer = next(s for s in found.spans if s.name.endswith("/AnswerRequest") and s.service == "hubbub")
    assert answer.id in span.links
    assert span.id in answer.links


async def test_a_plain_question_is_told_from_the_caller_to_the_server_and_back(
    start_hub: Any, server: dict[str, Any], collector: Collector, tracer: Any
) -> None:
    hub = await start_hub({"traced": server | {"protocol": "2025-11-25"}})
    found = await told(hub, collector, tracer, "plain", "queue", "ask elicitation_form", "MCP send elicitation/create")
    above = line(found, "plain")
    wire = next(s for s in found.all("tools/call plain") if s.kind == "CLIENT")
    assert found.above(wire) == above
    assert found.above(found.one("queue")) == above
    asked = found.one("ask elicitation_form")
    assert found.above(asked) == [*above, "tools/call plain", "tools/call plain", "MCP send elicitation/create"]
    assert asked.kind == "SERVER"
    require_asked(found, asked)
    tcp = "url" in server
    assert wire.attributes["mcp.method.name"] == "tools/call"
    assert wire.attributes["gen_ai.tool.name"] == "plain"
    assert wire.attributes["gen_ai.operation.name"] == "execute_tool"
    assert wire.attributes["mcp.protocol.version"] == "2025-11-25"
    assert wire.attributes["network.transport"] == ("tcp" if tcp else "pipe")
    assert ("mcp.session.id" in wire.attributes) is tcp
    assert wire.attributes.get("server.address") == ("127.0.0.1" if tcp else None)
    below = next(s for s in found.spans if s.service == "traced-server" and s.name == "tools/call plain")
    assert below.attributes["jsonrpc.request.id"] == wire.attributes["jsonrpc.request.id"]
    rpc = next(s for s in found.all(CALL_METHOD) if s.kind == "SERVER")
    assert rpc.attributes["rpc.system.name"] == "grpc"
    assert rpc.attributes["rpc.method"] == CALL_METHOD
    assert rpc.attributes["rpc.response.status_code"] == "OK"
    assert not [span for span in collector.spans if CANARY in span.raw]
    assert not [span for span in collector.spans if "Watch" in span.name]


async def test_a_question_that_is_a_task_is_told_with_its_task(
    start_hub: Any, server: dict[str, Any], collector: Collector, tracer: Any
) -> None:
    hub = await start_hub({"traced": server | {"protocol": "2025-11-25"}})
    names = ("task elicitation/create", "ask elicitation_form", "tasks/result", "elicitation/create")
    found = await told(hub, collector, tracer, "task", *names)
    above = [*line(found, "task"), "tools/call task", "tools/call task", "MCP send elicitation/create"]
    assert found.above(found.one("task elicitation/create")) == above
    asked = found.one("ask elicitation_form")
    assert found.above(asked) == [*above, "task elicitation/create"]
    require_asked(found, asked)
    assert found.one("task elicitation/create").attributes["hubbub.task.status"] == "completed"
    assert found.one("tasks/result").kind == "SERVER"
    assert not [span for span in collector.spans if CANARY in span.raw]


async def test_rounds_are_told_with_one_exchange_for_each(
    start_hub: Any, server: dict[str, Any], collector: Collector, tracer: Any
) -> None:
    hub = await start_hub({"traced": server})
    found = await told(hub, collector, tracer, "rounds", "queue", "queue", "ask elicitation_form")
    above = line(found, "rounds")
    first, second = (s for s in found.all("tools/call rounds") if s.service == "hubbub")
    assert found.above(first) == found.above(second) == above
    assert first.attributes["mcp.protocol.version"] == "2026-07-28"
    assert len([s for s in found.all("tools/call rounds") if s.service == "traced-server"]) == 2
    asked = found.one("ask elicitation_form")
    assert asked.parent_id == first.id
    require_asked(found, asked)
    assert [found.above(queue) for queue in found.all("queue")] == [above, above]
    assert first.end <= asked.end <= second.end
    assert not [span for span in collector.spans if CANARY in span.raw]
