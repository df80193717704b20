"""A host with the first generation of the SDK: mcp1_host.py COMMAND ARGS...

It prints the names of the tools and what `echo` returns, as JSON.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    command, *arguments = sys.argv[1:]
    async with (
        stdio_client(StdioServerParameters(command=command, args=arguments)) as streams,
        ClientSession(*streams) as host,
    ):
        about = await host.initialize()
        tools = (await host.list_tools()).tools
        said = await host.call_tool("echo", {"text": "hi"})
        print(json.dumps([about.protocolVersion, [tool.name for tool in tools], said.content[0].text]))


if __name__ == "__main__":
    asyncio.run(main())
