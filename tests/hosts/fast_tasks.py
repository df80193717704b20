"""FastMCP's client as a host that follows tasks (tasks extension). It runs in the environment of `hosts.txt`.

fast_tasks.py URL PREFIX RESOURCE        (TOKEN in the environment)
"""

import json
import os
import sys
from typing import Any

import anyio
from fastmcp import Client
from fastmcp_tasks.client import call_tool_task
from tour import ANSWER


async def main(url: str, prefix: str, _resource: str) -> dict[str, Any]:
    async def answer(*_: Any) -> dict[str, str]:
        return ANSWER

    async with Client(url, auth=os.environ["TOKEN"], mode="auto", elicitation_handler=answer) as client:
        task = await call_tool_task(client, f"{prefix}test_elicitation", {"message": "Who?"})
        result = await task.result()
        return {"asked": result.content[0].text, "status": (await task.status()).status}


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:4])))
