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

ANSWER = {"username": "ada", "email": "ada@example.org"}


async def main(url: str, prefix: str, resource: str) -> dict[str, Any]:
    progress: list[float] = []

    async def answer(_: Any, __: Any) -> ElicitResult:
        return ElicitResult(action="accept", content=dict(ANSWER))

    async def generate(*_: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="Paris"), model="m")

    async def folders(*_: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///srv"))])

    async def note(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    can = {"elicitation_callback": answer, "sampling_callback": generate, "list_roots_callback": folders}
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with (
        streamablehttp_client(url, headers=headers) as (read_stream, write_stream, _),
        ClientSession(read_stream, write_stream, **can) as session,
    ):
        hello = await session.initialize()
        tools = (await session.list_tools()).tools

        async def call(name: str, progress_callback: Any = None, **arguments: Any) -> Any:
            return await session.call_tool(prefix + name, arguments, progress_callback=progress_callback)

        echoed, failed = await call("echo", text="e" * 1024), await call("test_error_handling")
        asked = await call("test_elicitation", message="Who?")
        generated = await call("test_sampling", prompt="Where?")
        roots = await call("test_input_required_result_list_roots")
        await call("test_tool_with_progress", note)
        read = await session.read_resource(AnyUrl(resource))
        prompt = await session.get_prompt(f"{prefix}test_prompt_with_arguments", {"arg1": "1", "arg2": "2"})
        return {
            "revision": hello.protocolVersion,
            "tools": [tool.name for tool in tools],
            "echo": echoed.content[0].text,
            "failed": failed.content[0].text if failed.isError else None,
            "asked": asked.content[0].text,
            "generated": generated.content[0].text,
            "roots": roots.content[0].text,
            "progress": progress,
            "resource": read.contents[0].text,
            "prompt": prompt.messages[0].content.text,
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:4])))
