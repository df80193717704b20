"""FastMCP's client as a host; see `sdk.py`. It runs in the environment of `hosts.txt`.

fast.py URL PREFIX RESOURCE legacy|auto        (TOKEN in the environment)
"""

import json
import os
import sys
from typing import Any

import anyio
from fastmcp import Client
from tour import ANSWER, take_tour


async def main(url: str, prefix: str, resource: str, mode: str) -> dict[str, Any]:
    async def answer(*_: Any) -> dict[str, str]:
        return ANSWER

    async def generate(*_: Any) -> str:
        return "Paris"

    can = {"elicitation_handler": answer, "sampling_handler": generate, "roots": ["file:///srv"]}
    async with Client(url, auth=os.environ["TOKEN"], mode=mode, **can) as client:

        async def call(name: str, progress: Any, **arguments: Any) -> Any:
            return await client.call_tool(name, arguments, progress_handler=progress, raise_on_error=False)

        tools = await client.list_tools()
        read = await client.read_resource(resource)
        return {
            "revision": client.session.protocol_version,
            "tools": [tool.name for tool in tools],
            "resource": read[0].text,
            **await take_tour(client, call, prefix),
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:5])))
