"""An agent of LangChain with langchain-mcp-adapters; see `way.py`."""

import asyncio
from datetime import timedelta

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from way import HEADERS, MODEL, PROMPT, STDIO, TURNS, URL, WAIT_S


async def main() -> None:
    wait = timedelta(seconds=WAIT_S)
    if URL:
        server = {"transport": "streamable_http", "url": URL, "headers": HEADERS, "sse_read_timeout": wait}
    else:
        server = {"transport": "stdio", **STDIO}
    async with MultiServerMCPClient({"hubbub": server}).session("hubbub") as session:
        agent = create_agent(ChatOpenAI(model=MODEL, streaming=True), await load_mcp_tools(session))
        await agent.ainvoke({"messages": [("user", PROMPT)]}, {"recursion_limit": 2 * TURNS})


asyncio.run(main())
