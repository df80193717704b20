"""What operators see of hosts: durations, sessions, one trace from the host through the hub to the server."""

from pathlib import Path

import anyio
import pytest

from hubbubd.errors import PeerError
from hubbubd.telemetry import metrics
from hubbubd.telemetry.trace import SpanKind

from ..runtime.noted import Noted
from ..runtime.peer import Outcome, Sent, never
from ..runtime.test_measures import Seen
from .conftest import until
from .mcp_host import NEW, OLD, Host, request, stage, tool

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


async def fails(_: Sent) -> Outcome:
    """A tool that does not work."""
    return {"content": [], "isError": True}


async def refuses(_: Sent) -> Outcome:
    """A server that does not know the tool."""
    raise PeerError(-32602, "Unknown tool")


async def test_each_request_is_measured_by_method_revision_and_outcome(tmp_path: Path) -> None:
    seen = Seen()
    async with stage(tmp_path, meter=seen.meter) as made:
        old = await made.host().begin()
        await old.post(request(1, "ping"))
        await old.post(request(2, "no/such"))
        for behaviour in (fails, refuses):
            made.peers["one"].behaviour = behaviour
            await made.host().new(tool(3))
        about = {"mcp.method.name": "tools/call", "mcp.protocol.version": NEW, "network.transport": "tcp"}
        errors = [point.attributes["error.type"] for point in seen.points(metrics.SERVED, **about)]
        assert sorted(errors) == ["-32602", "tool_error"]
        (ping,) = seen.points(metrics.SERVED, **{"mcp.method.name": "ping", "mcp.protocol.version": OLD})
        assert "error.type" not in ping.attributes
        (unknown,) = seen.points(metrics.SERVED, **{"error.type": "-32601"})
        assert unknown.count == 1


async def test_open_sessions_are_counted(tmp_path: Path) -> None:
    seen = Seen()
    async with stage(tmp_path, meter=seen.meter) as made:
        assert seen.value(metrics.HOST_SESSIONS) == 0
        host, _ = await made.host().begin(), await made.host().begin()
        assert seen.value(metrics.HOST_SESSIONS) == 2
        await host.send("DELETE")
        assert seen.value(metrics.HOST_SESSIONS) == 1


@pytest.mark.parametrize("new", [False, True], ids=[OLD, NEW])
@pytest.mark.parametrize("in_header", [False, True], ids=["in _meta", "in a header"])
async def test_one_trace_goes_from_the_host_through_the_hub_to_the_server(
    tmp_path: Path, new: bool, in_header: bool
) -> None:
    noted = Noted()
    async with stage(tmp_path, tracer=noted) as made:
        made.peers["one"].tracer = noted
        host = made.host() if new else await made.host().begin()
        noted.told.clear()
        message = tool(1) if in_header else tool(1, traceparent=PARENT)
        headers = {"traceparent": PARENT} if in_header else {}
        await (send_new(host, message, headers) if new else host.post(message, **headers))
        await until(lambda: len(noted.told) >= 3)
    told = {each.span.trace.span_id: each for each in noted.told}
    assert {each.span.trace.trace_id for each in noted.told} == {TRACE}
    (served,) = [each for each in noted.told if each.span.kind is SpanKind.SERVER]
    assert served.span.name == "tools/call t"
    assert served.span.trace.parent_id == "b7ad6b7169203331"
    assert served.span.attributes["hubbub.principal"] == "local"
    below = [each for each in told.values() if each.span.trace.parent_id == served.span.trace.span_id]
    assert below


async def send_new(host: Host, message: dict[str, object], headers: dict[str, str]) -> None:
    """A request without a session."""
    await host.new(message, **headers)


async def test_a_request_that_its_host_cancels_is_measured_as_such(tmp_path: Path) -> None:
    seen = Seen()
    async with stage(tmp_path, meter=seen.meter) as made:
        made.peers["one"].behaviour = never
        host = await made.host().begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.post, tool(7))
            await made.arrived()
            await host.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        assert seen.points(metrics.SERVED, **{"error.type": "CANCELLED"})
