"""A server whose lists change at run time, and which tells: by list_changed to 2025, through listen to 2026-07-28.

changing_server.py stdio | http        (PORT in the environment for the latter)
"""

import os
import sys

from mcp.server.mcpserver import Context, MCPServer

mcp = MCPServer("changing", log_level="WARNING")


@mcp.tool()
async def add(name: str, ctx: Context) -> str:
    """Adds a tool, and tells."""

    offer(name)
    await tell(ctx)
    return f"added {name}"


@mcp.tool()
async def remove(name: str, ctx: Context) -> str:
    """Removes a tool, and tells."""
    mcp.remove_tool(name)
    await tell(ctx)
    return f"removed {name}"


@mcp.tool()
async def storm(times: int, ctx: Context) -> str:
    """Tells of a change many times."""
    for _ in range(times):
        await tell(ctx)
    return "told"


@mcp.resource("note://{name}")
async def note(name: str) -> str:
    """A note."""
    return f"note {name}"


@mcp.resource("note://today")
async def today() -> str:
    """Today's note."""
    return "today"


@mcp.prompt()
async def ask(subject: str) -> str:
    """Asks about a subject."""
    return f"What about {subject}?"


def offer(name: str) -> None:
    async def offered() -> str:
        return name

    mcp.add_tool(offered, name=name, description="Added at run time")


async def tell(ctx: Context) -> None:
    await ctx.notify_tools_changed()
    if ctx.request_context.protocol_version != "2026-07-28":
        await ctx.session.send_tool_list_changed()


if __name__ == "__main__":
    if extra := os.environ.get("TOOL"):
        offer(extra)
    if sys.argv[1] == "http":
        mcp.run("streamable-http", host="127.0.0.1", port=int(os.environ["PORT"]))
    else:
        mcp.run("stdio")
