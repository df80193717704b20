"""The client of the SDK's first generation in many sessions that pause as long as its HTTP client keeps connections.

sdk1_pauses.py URL SESSIONS ROUNDS        (TOKEN in the environment)

It prints which rounds failed, by session, and how many were answered.
"""

import json
import os
import sys
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

AT_ONCE = 20
"""So many sessions begin at a time: a beginning is not what is tried."""

AROUND_S = (4.9, 5.1)
"""The pauses, in seconds. httpx keeps an idle connection for 5."""


async def main(url: str, sessions: int, rounds: int) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    begin = anyio.Semaphore(AT_ONCE)
    failed: dict[int, str] = {}
    answered = 0

    async def live(number: int) -> None:
        nonlocal answered
        shortest_s, longest_s = AROUND_S
        pause_s = shortest_s + (longest_s - shortest_s) * number / sessions
        await begin.acquire()
        async with (
            streamablehttp_client(url, headers=headers) as (read_stream, write_stream, _),
            ClientSession(read_stream, write_stream) as session,
        ):
            await session.initialize()
            begin.release()
            for turn in range(rounds):
                with anyio.fail_after(30):
                    called = await session.call_tool("one__echo", {"text": f"{number} {turn}"})
                answered += called.content[0].text == f"{number} {turn}"
                await anyio.sleep(pause_s)

    async def one(number: int) -> None:
        try:
            await live(number)
        except BaseException as exc:
            failed[number] = repr(exc)[:300]

    async with anyio.create_task_group() as tasks:
        for number in range(sessions):
            tasks.start_soon(one, number)
    return {"answered": answered, "failed": failed}


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
