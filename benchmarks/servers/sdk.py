"""The same tools as most servers have them, written with the SDK. Arguments: stdio, or http with PORT."""

import os
import sys
from time import perf_counter

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("echo", log_level="WARNING")


class Person(BaseModel):
    """The form of `ask`."""

    name: str


@server.tool()
def echo(text: str) -> str:
    """Returns its text."""
    return text


@server.tool()
async def ask(ctx: Context) -> str:
    """Asks a form question and returns when it did so, by the machine's monotonic clock."""
    asked = perf_counter()
    await ctx.elicit("Who are you?", Person)
    return repr(asked)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(os.environ["PORT"]))
    else:
        server.run("stdio")
