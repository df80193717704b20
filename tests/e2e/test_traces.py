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

import hubbub_client

from .collector import Collector, TraceOf

CALL_METHOD = "hubbub.v1.CallService/CallMethod"
CANARY = "canary-7f3a"


class Switched(trace.TracerProvider):
    """The tracers of this process, which can be set once: those of the test that wants some, none for the others."""

    inner: trace.TracerProvider = trace.NoOpTracerProvider()

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        return self.inner.get_tracer(*args, **options)


@pytest.fixture(scope="session")
def _switched() -> Switched:
    provider = Switched()
    trace.set_tracer_provider(provider)
    return provider


@pytest.fixture
def tracer(_switched: Switched, collector: Collector) -> Iterator[Any]:
    """A tracer of the caller's, which the client library has too."""
    provider = TracerProvider(resource=Resource({"service.name": "test"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=collector.endpoint)))
    _switched.inner = provider
    yield provider.get_tracer("test")
    _switched.inner = Switched.inner
    provider.shutdown()


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, peer_scripts: Path, http_peer: Any, collector: Collector) -> dict[str, Any]:
    """The configuration of the traced server, over each transport."""
    script = str(peer_scripts / "traced_server.py")
    if request.param == "http":
        return {"url": f"{http_peer([sys.executable, script, 'http']).url}/mcp"}
    return stdio(peer_scripts, collector)


def stdio(peer_scripts: Path, collector: Collector) -> dict[str, Any]:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    env |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {"command": sys.executable, "args": [str(peer_scripts / "traced_server.py"), "stdio"], "env": env}


async def answered(hub: Any, tracer: Any, tool: str) -> tuple[Any, str]:
    """Calls a tool that asks, in a turn of an agent, and answers from elsewhere: the call, and the turn's trace."""
    outcome: list[Any] = []

    async def turn() -> None:
        with tracer.start_as_current_span("agent turn") as root:
            call = await hub.client.calls.call("traced", "tools/call", {"name": tool, "arguments": {}})
            outcome.extend([call, f"{root.get_span_context().trace_id:032x}"])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        (request,) = await hub.asked()
        claimed = await hub.client.inbox.claim(request.id)
        await claimed.accept({"name": CANARY})
    return outcome[0], outcome[1]


async def told(hub: Any, collector: Collector, tracer: Any, tool: str, *names: str) -> TraceOf:
    """The trace of a call with a question."""
    await hub.connected("traced")
    call, trace_id = await answered(hub, tracer, tool)
    assert CANARY in call.result["content"][0]["text"]
    found = await collector.trace(trace_id, "agent turn", CALL_METHOD, f"call tools/call {tool}", *names)
    found.require_sound()
    assert call.trace_id == trace_id
    return found


def line(found: TraceOf, tool: str) -> list[str]:
    """What stands above the first exchange of a call."""
    return ["agent turn", CALL_METHOD, CALL_METHOD, f"call tools/call {tool}"]


async def require_asked(collector: Collector, span: Any) -> None:
    """The question's own story; what answered it is another one's, and both know of each other."""
    assert span.happened == ["shown", "claimed", "answered", "delivered"]
    assert not span.failed
    assert span.attributes["hubbub.request.state"] == "answered"
    assert span.attributes["hubbub.request.delivery"] == "delivered"
    assert dict(span.events[2][1]) == {"hubbub.by": "local", "hubbub.agent": False}
    # Of another trace, which may be sent later than the question's.
    answer = await collector.has(
        lambda got: next(
            (s for s in got.spans if s.name.endswith("/AnswerPendingRequest") and s.service == "hubbub"), None
        )
    )
    assert answer.trace_id != span.trace_id
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
    await require_asked(collector, asked)
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
    await require_asked(collector, asked)
    assert found.one("task elicitation/create").attributes["hubbub.task.status"] == "completed"
    assert found.one("tasks/result").kind == "SERVER"
    assert not [span for span in collector.spans if CANARY in span.raw]


async def test_rounds_are_told_with_one_exchange_for_each(
    start_hub: Any, server: dict[str, Any], collector: Collector, tracer: Any
) -> None:
    hub = await start_hub({"traced": server})
    exchanges = ("tools/call rounds",) * 4  # the server tells of its two by itself
    found = await told(hub, collector, tracer, "rounds", "queue", "queue", "ask elicitation_form", *exchanges)
    above = line(found, "rounds")
    first, second = (s for s in found.all("tools/call rounds") if s.service == "hubbub")
    assert found.above(first) == found.above(second) == above
    assert first.attributes["mcp.protocol.version"] == "2026-07-28"
    assert len([s for s in found.all("tools/call rounds") if s.service == "traced-server"]) == 2
    asked = found.one("ask elicitation_form")
    assert asked.parent_id == first.id
    await require_asked(collector, asked)
    assert [found.above(queue) for queue in found.all("queue")] == [above, above]
    # Delivered is what the server has replied to.
    assert first.end <= asked.start <= second.start <= second.end <= asked.end
    assert not [span for span in collector.spans if CANARY in span.raw]


def require_once_each(collector: Collector, trace_id: str) -> TraceOf:
    """Every span of a trace came once, and everybody's parent is there."""
    found = TraceOf([span for span in collector.spans if span.trace_id == trace_id])
    found.require_sound()
    return found


async def started(hub: Any, tool: str, **arguments: Any) -> Any:
    return (await hub.client.start_tool("traced", tool, arguments)).started


async def test_a_call_tells_how_it_ended_and_nothing_of_what_was_said(
    start_hub: Any, peer_scripts: Path, collector: Collector, tracer: Any
) -> None:
    hub = await start_hub({"traced": stdio(peer_scripts, collector) | {"max_in_flight": 2}}, connected=True)
    with tracer.start_as_current_span("agent turn"):
        failed = await started(hub, "fail", text=CANARY)
        late = await hub.client.start_tool("traced", "hang", timeout_s=0.5)
        queued = await started(hub, "echo")
        assert (await hub.call(late.id)).error.code == "CALL_TIMEOUT"
        hanging = await started(hub, "hang")
        await hub.call(hanging.id, "in_progress")
        await hub.client.calls.cancel(hanging.id, abort=True)
    ended = {"fail": (failed, "tool_error"), "echo": (queued, "tool_error")}
    for tool, (call, error) in ended.items():
        await hub.call(call.id)
        names = (f"call tools/call {tool}", f"tools/call {tool}", f"tools/call {tool}", *["queue"] * 4)
        found = await collector.trace(call.trace_id, "agent turn", *names)
        span = found.one(f"call tools/call {tool}")
        assert (span.attributes["error.type"], span.failed) == (error, True)
        (wire,) = [s for s in found.all(f"tools/call {tool}") if s.service == "hubbub"]
        assert wire.attributes["error.type"] == error
    found = await collector.trace(hanging.trace_id, "call tools/call hang", "call tools/call hang")
    endings = {s.attributes["hubbub.call.id"]: s.attributes["error.type"] for s in found.all("call tools/call hang")}
    assert endings == {late.id: "CALL_TIMEOUT", hanging.id: "CALL_CANCELLED"}
    require_once_each(collector, hanging.trace_id)
    assert not [s for s in collector.spans if CANARY in s.raw and s.service == "hubbub"]


@pytest.mark.parametrize("ends", ["terminate", "kill"])
async def test_the_next_hub_tells_what_the_last_one_began(
    start_hub: Any, peer_scripts: Path, collector: Collector, tracer: Any, ends: str
) -> None:
    servers = {"traced": stdio(peer_scripts, collector) | {"max_in_flight": 2}}
    first = await start_hub(servers, connected=True)
    with tracer.start_as_current_span("agent turn"):
        asking = await started(first, "rounds")
        lost = await started(first, "hang")
    (request,) = await first.asked()
    await first.call(lost.id, "in_progress")
    # What an exporter has not sent yet a killed hub takes with it.
    await collector.until(
        lambda spans: (
            [s.name for s in spans].count("queue") == 2
            and [s.kind for s in spans if s.name.endswith("/StartCall")].count("SERVER") == 2
            and any(s.service == "hubbub" and s.name == "tools/call rounds" for s in spans)
        )
    )
    await first.client.store.compact()  # writes at once what is in memory only, and would go with a hub that is killed
    await getattr(first, ends)()
    second = await start_hub(servers, connected=True)
    await second.client.inbox.answer(request.id, accept={"name": CANARY})
    assert (await second.call(asking.id)).state == "completed"
    assert (await second.call(lost.id)).state in ("failed", "cancelled")
    names = ("call tools/call rounds", "call tools/call hang", "ask elicitation_form", "tools/call hang")
    await collector.trace(asking.trace_id, *names)
    found = require_once_each(collector, asking.trace_id)
    # Who was shown a question is remembered with whatever comes next, and the end of the hub is something.
    shown = ["shown"] if ends == "terminate" else []
    assert found.one("ask elicitation_form").happened == [*shown, "answered", "delivered"]
    assert found.one("call tools/call rounds").attributes["hubbub.call.state"] == "completed"
    hung = next(s for s in found.all("tools/call hang") if s.service == "hubbub")
    assert hung.failed
    assert found.above(hung)[-1] == "call tools/call hang"


async def test_a_hub_that_is_killed_tells_of_the_rpc_that_waited_for_a_call(
    start_hub: Any, peer_scripts: Path, collector: Collector, tracer: Any
) -> None:
    servers = {"traced": stdio(peer_scripts, collector)}
    first = await start_hub(servers, connected=True)
    with tracer.start_as_current_span("agent turn") as root:
        trace_id = f"{root.get_span_context().trace_id:032x}"
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                with pytest.raises(hubbub_client.Unavailable):
                    await first.client.calls.call("traced", "tools/call", {"name": "rounds"}, call_id="waited-for")

            tasks.start_soon(call)
            (request,) = await first.asked()
            await collector.until(
                lambda spans: any(s.kind == "CLIENT" and s.name == "tools/call rounds" for s in spans)
            )
            await first.kill()
    second = await start_hub(servers, connected=True)
    await second.client.inbox.answer(request.id, decline=True)
    await second.call("waited-for")
    await collector.trace(trace_id, "agent turn", CALL_METHOD, CALL_METHOD, "call tools/call rounds")
    found = require_once_each(collector, trace_id)
    rpc = next(s for s in found.all(CALL_METHOD) if s.service == "hubbub")
    assert (rpc.attributes["error.type"], rpc.attributes["rpc.method"]) == ("HUB_RESTARTED", CALL_METHOD)


async def test_a_trace_that_the_environment_names_goes_on_from_the_command_line(
    start_hub: Any, peer_scripts: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = await start_hub(
        {"plain": {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}}, connected=True
    )
    monkeypatch.setenv("TRACEPARENT", f"00-{'ab' * 16}-{'cd' * 8}-01")
    assert (await hub.hubbub("send", "plain", "tools/list")).status == 0
    spans = await collector.until(lambda spans: any(s.name == "call tools/list" for s in spans))
    assert {s.trace_id for s in spans if s.name in ("call tools/list", CALL_METHOD)} == {"ab" * 16}
