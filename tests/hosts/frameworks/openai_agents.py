"""An agent of openai-agents; see `way.py`."""

import asyncio

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from way import HEADERS, MODEL, PROMPT, STDIO, TURNS, URL, WAIT_S


async def main() -> None:
    set_tracing_disabled(True)
    if URL:
        params = {"url": URL, "headers": HEADERS, "timeout": WAIT_S, "sse_read_timeout": WAIT_S}
        server = MCPServerStreamableHttp(params=params, client_session_timeout_seconds=WAIT_S)
    else:
        server = MCPServerStdio(params=STDIO, client_session_timeout_seconds=WAIT_S)
    async with server:
        agent = Agent(name="tour", model=MODEL, mcp_servers=[server])
        async for _ in Runner.run_streamed(agent, PROMPT, max_turns=TURNS).stream_events():
            pass


asyncio.run(main())
