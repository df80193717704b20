"""A server whose tool `sure` asks for yes or no and nothing else. Its question tries to call everybody in a chat."""

from typing import Annotated

from mcp.server.mcpserver import Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel

mcp = MCPServer("yes-no", log_level="WARNING")


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


if __name__ == "__main__":
    mcp.run()
