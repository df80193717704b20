"""An agent of strands; see `way.py`."""

import os

from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient
from way import HEADERS, MODEL, PROMPT, STDIO, URL

bridge = StdioServerParameters(**STDIO)
client = MCPClient(url=URL, headers=HEADERS) if URL else MCPClient(lambda: stdio_client(bridge))
model = OpenAIModel(model_id=MODEL, client_args={"base_url": os.environ["OPENAI_BASE_URL"]})
with client:
    Agent(model=model, tools=client.list_tools_sync(), callback_handler=None)(PROMPT)
