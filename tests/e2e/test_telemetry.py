"""Metrics and log lines go where traces go, and a line knows the trace that it belongs to."""

import json
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

import hubbub_client
from hubbubd.telemetry.metrics import METRICS, Shape

from .collector import Collector
from .conftest import RunningHub, running, toml

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"_meta": {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}}


@pytest.fixture
def server(peer_scripts: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(peer_scripts / "asking_server.py"), "stdio"]}


def arguments(folder: Path, **tables: Any) -> list[str]:
    (folder / "hub.toml").write_text(toml(tables))
    return ["--config", str(folder / "hub.toml"), "--data-dir", str(folder / "data"), "--listen", "127.0.0.1:0"]


async def a_host_comes(hub: RunningHub) -> None:
    """An MCP host that opens a session."""
    asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}
    headers = {"authorization": f"Bearer {hub.token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient() as client:
        (await client.post(hub.ready["mcp"], json=message, headers=headers)).raise_for_status()


async def test_metrics_arrive_as_the_table_names_them(
    start_hub: Any, server: dict[str, Any], collector: Collector
) -> None:
    rules = {"rules": [{"tools": ["write"]}]}
    asking = {"asking": server | {"protocol": "2025-11-25"}}
    hub = await start_hub(asking, hub={"mcp_listen": "127.0.0.1:0"}, approvals=rules, connected=True)
    await a_host_comes(hub)
    await hub.client.calls.start("asking", "tools/call", {"name": "write"})
    (approval,) = await hub.asked()
    await hub.client.inbox.deny(approval.id)
    call = await hub.client.start_tool("asking", "ask")
    (request,) = await hub.asked()
    await (await hub.client.inbox.claim(request.id)).accept({"name": "Ada"})
    await hub.call(call.id)
    await hub.terminate()  # what was measured last is sent before it ends, the session too
    alone = [metric for metric in METRICS if not metric.name.startswith("hubbub.fleet.")]
    assert set(collector.metrics) == {metric.name for metric in alone}
    for metric in alone:
        told = collector.metrics[metric.name]
        assert (told.unit, told.description) == (metric.unit, metric.about)
        shape = {"sum": Shape.COUNTER, "gauge": Shape.GAUGE, "histogram": Shape.HISTOGRAM}[told.WhichOneof("data")]
        assert shape is metric.shape
        if shape is Shape.HISTOGRAM:
            assert told.histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            assert all(tuple(point.explicit_bounds) == metric.buckets for point in told.histogram.data_points)
    calls = [
        attributes
        for point in collector.metrics["mcp.client.operation.duration"].histogram.data_points
        if (attributes := {each.key: each.value.string_value for each in point.attributes})["mcp.method.name"]
        == "tools/call"
    ]
    assert calls == [
        {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "ask",
            "network.transport": "pipe",
            "mcp.protocol.version": "2025-11-25",
        }
    ]


async def test_log_lines_arrive_with_what_is_known_of_them(
    start_hub: Any, server: dict[str, Any], collector: Collector
) -> None:
    await start_hub({"asking": server}, connected=True)
    line = await collector.has(
        lambda got: next((each for each in got.logs if each.attributes.get("happened") == "handshake_complete"), None)
    )
    assert (line.service, line.text, line.level) == ("hubbub", "server connected", "info")
    assert line.attributes == {"server": "asking", "happened": "handshake_complete", "state": "connected"}
    assert line.trace_id == ""


async def test_a_line_about_a_call_names_its_trace_on_stderr_and_over_otlp(
    tmp_path: Path, server: dict[str, Any], collector: Collector
) -> None:
    options = arguments(tmp_path, hub={"log_level": "debug", "shutdown_grace_s": 1}, servers={"asking": server})
    async with running(options, stderr=PIPE) as hub:
        await hub.connected("asking")
        params = {"name": "cancelled_calls", "arguments": {}, **PARENT}
        call = await hub.client.calls.call("asking", "tools/call", params)
        assert call.trace_id == TRACE_ID
        sent = await collector.has(lambda got: next((x for x in got.logs if x.attributes.get("call") == call.id), None))
        spans = await collector.until(lambda spans: [s for s in spans if s.name == "call tools/call cancelled_calls"])
        await hub.terminate()
        assert hub.process.stderr is not None
        written = b"".join([chunk async for chunk in hub.process.stderr])
    (span,) = [span for span in spans if span.name == "call tools/call cancelled_calls"]
    assert (sent.text, sent.level, sent.trace_id, sent.span_id) == ("call ended", "debug", TRACE_ID, span.id)
    (line,) = [x for x in map(json.loads, written.splitlines()) if x.get("call") == call.id]
    assert (line["event"], line["trace_id"], line["span_id"]) == ("call ended", TRACE_ID, span.id)


async def test_a_secret_is_in_no_line_no_span_and_no_metric(
    start_hub: Any, server: dict[str, Any], collector: Collector
) -> None:
    hub = await start_hub(
        {"asking": server | {"env": {"APP_KEY": "canary-key"}}}, hub={"log_level": "debug"}, connected=True
    )
    with pytest.raises(hubbub_client.UpstreamError):
        await hub.client.call("asking", "canary-key/list")  # a caller may well repeat one
    line = await collector.has(lambda found: next((x for x in found.logs if x.text == "call ended"), None))
    await collector.until(lambda spans: [s for s in spans if s.name == "call [redacted]/list"])
    await hub.terminate()
    assert line.attributes["method"] == "[redacted]/list"
    told = repr((collector.spans, collector.logs, collector.metrics))
    assert "[redacted]/list" in repr(collector.metrics)
    assert "canary" not in told
