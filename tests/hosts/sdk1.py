"""The client of the SDK's first generation as a host; see `sdk.py`. It runs in the environment of `mcp1.txt`.

sdk1.py URL PREFIX RESOURCE        (TOKEN in the environment)
"""

import json
import os
import sys
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent
from pydantic import AnyUrl, FileUrl
from tour import ANSWER, take_tour


async def main(url: str, prefix: str, resource: str) -> dict[str, Any]:
    async def answer(_: Any, __: Any) -> ElicitResult:
        return ElicitResult(action="accept", content=dict(ANSWER))

    async def generate(*_: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="Paris"), model="m")

    async def folders(*_: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///srv"))])

    can = {"elicitation_callback": answer, "sampling_callback": generate, "list_roots_callback": folders}
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with (
        streamablehttp_client(url, headers=headers) as (read_stream, write_stream, _),
        ClientSession(read_stream, write_stream, **can) as session,
    ):
        hello = await session.initialize()
        tools = (await session.list_tools()).tools

        async def call(name: str, progress: Any, **arguments: Any) -> Any:
            return await session.call_tool(name, arguments, progress_callback=progress)

        read = await session.read_resource(AnyUrl(resource))
        return {
            "revision": hello.protocolVersion,
            "tools": [tool.name for tool in tools],
            "resource": read.contents[0].text,
            **await take_tour(session, call, prefix),
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:4])))
