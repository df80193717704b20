"""An agent of Pydantic AI as a host, with a model that follows a script. It runs in the environment of `hosts.txt`.

agent.py URL PREFIX        (TOKEN in the environment)

The model is shown the tools, calls `echo`, then one that fails, and ends with what it saw of both.
"""

import json
import os
import sys
from typing import Any

import anyio
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def main(url: str, prefix: str) -> dict[str, Any]:
    script = [
        ToolCallPart(f"{prefix}echo", {"text": "e" * 1024}),
        ToolCallPart(f"{prefix}test_error_handling", {}),
    ]
    shown: list[str] = []
    told: list[Any] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        shown[:] = [tool.name for tool in info.function_tools]
        told.extend(part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart | RetryPromptPart))
        return ModelResponse(parts=[script.pop(0) if script else TextPart("done")])

    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    agent = Agent(FunctionModel(model), toolsets=[MCPToolset(url, headers=headers)])
    async with agent:
        ended = await agent.run("Do what the script says")
    return {"ended": ended.output, "tools": shown, "echo": told[0], "failed": told[1]}


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:3])))
