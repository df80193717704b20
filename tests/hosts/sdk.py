"""The client of the SDK's second generation as a host: uses all that a server offers, and tells what came back.

sdk.py URL PREFIX RESOURCE legacy|REVISION        (TOKEN in the environment)
"""

import json
import os
import sys
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CreateMessageResult, ElicitRequestParams, ElicitResult, ListRootsResult, Root, TextContent
from tour import ANSWER, take_tour


async def main(url: str, prefix: str, resource: str, mode: str) -> dict[str, Any]:
    async def answer(_: Any, __: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content=dict(ANSWER))

    async def generate(*_: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="Paris"), model="m")

    async def folders(*_: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri="file:///srv")])

    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(url, http_client=http)
        can = {"elicitation_callback": answer, "sampling_callback": generate, "list_roots_callback": folders}
        async with Client(transport, mode=mode, **can) as client:
            tools = (await client.list_tools()).tools

            async def call(name: str, progress: Any, **arguments: Any) -> Any:
                return await client.call_tool(name, arguments, progress_callback=progress)

            read = await client.read_resource(resource)
            return {
                "revision": client.protocol_version,
                "tools": [tool.name for tool in tools],
                "resource": read.contents[0].text,
                **await take_tour(client, call, prefix),
            }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:5])))
