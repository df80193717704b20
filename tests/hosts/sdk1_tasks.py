"""The client of the SDK's first generation as a host that requests a task. It runs in the environment of `mcp1.txt`.

sdk1_tasks.py URL PREFIX RESOURCE        (TOKEN in the environment)
"""

import json
import os
import sys
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CallToolResult, ElicitResult
from tour import ANSWER


async def main(url: str, prefix: str, _resource: str) -> dict[str, Any]:
    async def answer(_: Any, __: Any) -> ElicitResult:
        return ElicitResult(action="accept", content=dict(ANSWER))

    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with (
        streamablehttp_client(url, headers=headers) as (read_stream, write_stream, _),
        ClientSession(read_stream, write_stream, elicitation_callback=answer) as session,
    ):
        await session.initialize()
        tasks = session.experimental
        made = await tasks.call_tool_as_task(f"{prefix}test_elicitation", {"message": "Who?"})
        result = await tasks.get_task_result(made.task.taskId, CallToolResult)
        ended = await tasks.get_task(made.task.taskId)
        listed = await tasks.list_tasks()
        return {
            "asked": result.content[0].text,
            "status": ended.status,
            "listed": made.task.taskId in [task.taskId for task in listed.tasks],
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, *sys.argv[1:4])))
