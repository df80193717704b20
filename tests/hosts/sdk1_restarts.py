"""The client of the SDK's first generation, in one session for as long as it is given something to do.

sdk1_restarts.py URL        (TOKEN in the environment)

Each line of stdin is a call: a tool and its arguments as JSON. Each line of stdout is what came of it, or before that:
the call has a stream which can be resumed.
"""

import json
import os
import sys
from typing import Any

import anyio
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.message import ClientMessageMetadata
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def outcome(session: ClientSession, call: dict[str, Any]) -> dict[str, Any]:
    begun = iter(range(1))

    async def note(_: str) -> None:
        for _ in begun:  # once: the response has an event, too
            say({"begun": True})

    params = CallToolRequestParams(name=call["tool"], arguments=call["arguments"])
    request = ClientRequest(CallToolRequest(method="tools/call", params=params))
    follow = ClientMessageMetadata(on_resumption_token_update=note)
    try:
        result = await session.send_request(request, CallToolResult, metadata=follow)
    except McpError as exc:
        return {"error": exc.error.data}
    return {"text": [each.text for each in result.content if each.type == "text"]}


async def main(url: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with (
        streamablehttp_client(url, headers=headers) as (read_stream, write_stream, name),
        ClientSession(read_stream, write_stream) as session,
    ):
        hello = await session.initialize()
        say({"session": name(), "revision": hello.protocolVersion})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            say(await outcome(session, json.loads(line)))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
