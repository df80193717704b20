"""FastMCP's client as a host; see `sdk.py`. It runs in the environment of `hosts.txt`.

fast.py URL PREFIX RESOURCE legacy|auto        (TOKEN in the environment)
"""

import json
import os
import sys
from typing import Any

import anyio
from fastmcp import Client

ANSWER = {"username": "ada", "email": "ada@example.org"}


async def main(url: str, prefix: str, resource: str, mode: str) -> dict[str, Any]:
    progress: list[float] = []

    async def answer(*_: Any) -> dict[str, str]:
        return ANSWER

    async def generate(*_: Any) -> str:
        return "Paris"

    async def note(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    can = {"elicitation_handler": answer, "sampling_handler": generate, "roots": ["file:///srv"]}
    async with Client(url, auth=os.environ["TOKEN"], mode=mode, **can) as client:

        async def call(name: str, progress_handler: Any = None, **arguments: Any) -> Any:
            return await client.call_tool(
                prefix + name, arguments, progress_handler=progress_handler, raise_on_error=False
            )

        tools = await client.list_tools()
        echoed, failed = await call("echo", text="e" * 1024), await call("test_error_handling")
        asked = await call("test_elicitation", message="Who?")
        generated = await call("test_sampling", prompt="Where?")
        roots = await call("test_input_required_result_list_roots")
        await call("test_tool_with_progress", note)
        read = await client.read_resource(resource)
        prompt = await client.get_prompt(f"{prefix}test_prompt_with_arguments", {"arg1": "1", "arg2": "2"})
        return {
            "revision": client.session.protocol_version,
            "tools": [tool.name for tool in tools],
            "echo": echoed.content[0].text,
            "failed": failed.content[0].text if failed.is_error else None,
            "asked": asked.content[0].text,
            "generated": generated.content[0].text,
            "roots": roots.content[0].text,
            "progress": progress,
            "resource": read[0].text,
            "prompt": prompt.messages[0].content.text,
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:5])))
