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

ANSWER = {"username": "ada", "email": "ada@example.org"}


async def main(url: str, prefix: str, resource: str, mode: str) -> dict[str, Any]:
    progress: list[float] = []

    async def answer(_: Any, __: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content=dict(ANSWER))

    async def generate(*_: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="Paris"), model="m")

    async def folders(*_: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri="file:///srv")])

    async def note(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(url, http_client=http)
        can = {"elicitation_callback": answer, "sampling_callback": generate, "list_roots_callback": folders}
        async with Client(transport, mode=mode, **can) as client:
            tools = (await client.list_tools()).tools

            async def call(name: str, progress_callback: Any = None, **arguments: Any) -> Any:
                return await client.call_tool(prefix + name, arguments, progress_callback=progress_callback)

            echoed, failed = await call("echo", text="e" * 1024), await call("test_error_handling")
            asked = await call("test_elicitation", message="Who?")
            generated = await call("test_sampling", prompt="Where?")
            roots = await call("test_input_required_result_list_roots")
            await call("test_tool_with_progress", note)
            read = await client.read_resource(resource)
            prompt = await client.get_prompt(f"{prefix}test_prompt_with_arguments", {"arg1": "1", "arg2": "2"})
            return {
                "revision": client.protocol_version,
                "tools": [tool.name for tool in tools],
                "echo": echoed.content[0].text,
                "failed": failed.content[0].text if failed.is_error else None,
                "asked": asked.content[0].text,
                "generated": generated.content[0].text,
                "roots": roots.content[0].text,
                "progress": progress,
                "resource": read.contents[0].text,
                "prompt": prompt.messages[0].content.text,
            }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:5])))
