"""A server that traces itself, as any other with OpenTelemetry's SDK set up. For the second generation of the SDK.

traced_server.py stdio | http      (PORT in the environment for the latter, OTEL_EXPORTER_OTLP_ENDPOINT for both)

plain   asks on the wire (to 2025-11-25)        task    asks as a task (2025-11-25)
rounds  asks by its result (2026-07-28)         echo    asks nothing
hang    never ends                              fail    ends with a result that says that it has failed
"""

import os
import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider(resource=Resource({"service.name": "traced-server"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

mcp = MCPServer("traced", log_level="WARNING")

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@mcp.tool()
async def plain(ctx: Context) -> str:
    """Asks on the wire."""
    answer = await ctx.session.elicit_form("Who are you?", FORM, ctx.request_id)
    return f"Hello {(answer.content or {}).get('name')}"


@mcp.tool()
async def task(ctx: Context) -> str:
    """Asks as a task, and waits for its result."""
    # The SDK has no tasks for servers any more; messages that it does not know go the same way as its own.
    send = ctx.session._request_outbound.send_raw_request
    question = {"message": "Who are you?", "requestedSchema": FORM, "task": {"ttl": 600_000}}
    created = await send("elicitation/create", question)
    answer = await send("tasks/result", {"taskId": created["task"]["taskId"]})
    return f"Hello {answer['content']['name']}"


@mcp.tool()
async def rounds(ctx: Context) -> str | InputRequiredResult:
    """Asks by its result."""
    if ctx.input_responses is None:
        question = ElicitRequest(params=ElicitRequestFormParams(message="Who are you?", requested_schema=FORM))
        return InputRequiredResult(input_requests={"who": question})
    answer = ctx.input_responses["who"]
    assert isinstance(answer, ElicitResult)
    return f"Hello {(answer.content or {}).get('name')}"


@mcp.tool()
async def echo(text: str) -> str:
    """Returns the text."""
    return text


@mcp.tool()
async def hang() -> str:
    """Never ends."""
    await anyio.sleep_forever()
    return ""


@mcp.tool()
async def fail(text: str) -> str:
    """Fails."""
    raise ValueError(text)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        mcp.run("streamable-http", host="127.0.0.1", port=int(os.environ["PORT"]))
    else:
        mcp.run("stdio")
