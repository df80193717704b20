"""An agent of google-adk; see `way.py`. Its model is asked by generateContent (GOOGLE_GEMINI_BASE_URL)."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from google.genai import types
from mcp import StdioServerParameters
from way import HEADERS, PROMPT, STDIO, TURNS, URL, WAIT_S


async def main() -> None:
    if URL:
        server = StreamableHTTPConnectionParams(url=URL, headers=HEADERS, timeout=WAIT_S, sse_read_timeout=WAIT_S)
    else:
        server = StdioConnectionParams(server_params=StdioServerParameters(**STDIO), timeout=WAIT_S)
    agent = LlmAgent(name="tour", model="gemini-2.5-flash", tools=[McpToolset(connection_params=server)])
    runner = InMemoryRunner(agent, app_name="tour")
    session = await runner.session_service.create_session(app_name="tour", user_id="ada")
    config = RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=TURNS)
    message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
    async for _ in runner.run_async(user_id="ada", session_id=session.id, new_message=message, run_config=config):
        pass


asyncio.run(main())
