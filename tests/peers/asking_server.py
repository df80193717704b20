"""A server that asks in the middle of a call, for the second generation of the SDK.

asking_server.py stdio | http | sse        (PORT in the environment for the latter two)
"""

import os
import sys

import anyio
from journal import note
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

mcp = MCPServer("asking", log_level="WARNING", instructions="Ask away")
sleeping: list[str] = []
cancelled: list[str] = []


class Person(BaseModel):
    name: str


@mcp.tool()
async def ask(ctx: Context, message: str = "Who are you?") -> str:
    """Asks one question and says what came back."""
    answer = await ctx.elicit(message, Person)
    note("asking", answer.model_dump(mode="json"))
    return f"{answer.action} {answer.data.name}" if answer.action == "accept" else answer.action


@mcp.tool()
async def count(ctx: Context, steps: int) -> str:
    """Tells its progress, and logs, at each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await ctx.info(f"logged {step}")
    return "done"


@mcp.tool()
async def sleep(name: str) -> str:
    """Never returns by itself; `sleeping_calls` and a line on stderr tell that it has begun, `cancelled_calls` whether
    it was cancelled. What is cancelled before it has begun is in neither."""
    sleeping.append(name)
    print(f"sleeping {name}", file=sys.stderr, flush=True)
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.append(name)
    return name


@mcp.tool()
async def impatient(ctx: Context) -> str:
    """Asks, and takes the question back at once."""
    with anyio.move_on_after(0.2):
        await ctx.elicit("Quick!", Person)
    return "gave up"


@mcp.tool()
async def sleeping_calls() -> str:
    """The names of the calls of `sleep` that have begun."""
    return ",".join(sleeping)


@mcp.tool()
async def cancelled_calls() -> str:
    """The names of the calls of `sleep` that were cancelled."""
    return ",".join(cancelled)


def main() -> None:
    """Serves over the transport that the command line names."""
    port = int(os.environ.get("PORT", "0"))
    match sys.argv[1]:
        case "http":
            mcp.run("streamable-http", host="127.0.0.1", port=port)
        case "sse":
            mcp.run("sse", host="127.0.0.1", port=port)
        case _:
            mcp.run("stdio")


if __name__ == "__main__":
    main()
