"""A server that asks for one choice: `sure` for yes or no, `size` for one of two, without a default.

The question of `sure` tries to call everybody in a chat.
"""

from typing import Annotated, Literal

from mcp.server.mcpserver import Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel

mcp = MCPServer("choices", log_level="WARNING")


class Sure(BaseModel):
    """The only field."""

    sure: bool


async def ask() -> Elicit[Sure]:
    """The question."""
    return Elicit("<!channel> Sure & certain?", Sure)


@mcp.tool()
async def sure(answer: Annotated[ElicitationResult[Sure], Resolve(ask)]) -> str:
    """Returns what was answered."""
    return f"sure: {answer.data.sure}" if answer.action == "accept" else answer.action


class Size(BaseModel):
    """The only field."""

    size: Literal["small", "large"]


async def ask_size() -> Elicit[Size]:
    """The question."""
    return Elicit("Which size?", Size)


@mcp.tool()
async def size(answer: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
    """Returns what was answered."""
    return f"size: {answer.data.size}" if answer.action == "accept" else answer.action


if __name__ == "__main__":
    mcp.run()
