"""An agent of Pydantic AI whose tools go through the hub.

    HUBBUB_MCP=http://127.0.0.1:7881/mcp TOKEN=hbt_... python agent.py "Deploy shop 1.4.2"

Its model here follows a script, so that it runs without a provider. Put another one in its place, such as
`Agent("openai:gpt-5", ...)`, and the rest stays.
"""

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

SERVICE, VERSION = "shop", "1.4.2"


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """First call the tool, then say what came of it."""
    returned = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returned:
        return ModelResponse(parts=[TextPart(f"The hub says: {returned[0]}")])
    tool = next(each.name for each in info.function_tools if each.name.endswith("__deploy"))
    return ModelResponse(parts=[ToolCallPart(tool, {"service": SERVICE, "version": VERSION})])


async def main(task: str) -> str:
    """Do one task; return what the agent says in the end."""
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    agent = Agent(FunctionModel(script), toolsets=[MCPToolset(os.environ["HUBBUB_MCP"], headers=headers)])
    async with agent:
        return (await agent.run(task)).output


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "Deploy")))
