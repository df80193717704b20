"""An agent of pydantic-ai; see `way.py`."""

import asyncio

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from way import ARGUMENTS, COMMAND, ENVIRONMENT, HEADERS, MODEL, PROMPT, TURNS, URL, WAIT_S


async def main() -> None:
    if URL:
        tools = MCPToolset(URL, headers=HEADERS, read_timeout=WAIT_S, tool_error_behavior="failed")
    else:
        stdio = StdioTransport(COMMAND, ARGUMENTS, env=ENVIRONMENT)
        tools = MCPToolset(stdio, read_timeout=WAIT_S, tool_error_behavior="failed")
    limits = UsageLimits(request_limit=TURNS)
    async with (
        Agent(OpenAIChatModel(MODEL), toolsets=[tools]) as agent,
        agent.run_stream_events(PROMPT, usage_limits=limits) as events,
    ):
        async for _ in events:
            pass


asyncio.run(main())
