"""A server that logs and has a resource that changes, for the second generation of the SDK; over stdio."""

from mcp.server.mcpserver import Context, MCPServer

mcp = MCPServer("telling", log_level="WARNING")
kept = {"note": "old"}


@mcp.resource("note://today")
async def today() -> str:
    """What was written last."""
    return kept["note"]


@mcp.tool()
async def write(text: str, ctx: Context) -> str:
    """Changes the note, and tells."""
    kept["note"] = text
    await ctx.notify_resource_updated("note://today")
    return "written"


@mcp.tool()
async def say(text: str, ctx: Context) -> str:
    """Logs a text."""
    await ctx.info(text)
    return "said"


if __name__ == "__main__":
    mcp.run("stdio")
