"""What it costs that a call's server is another member's: the same call at its owner, and at a member that forwards."""

import json
import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from measure import TEXT, Figure, in_turns
from processes import HERE, START_LIMIT_S, ended_after

import hubbub_client
from hubbub_frontend.certs import Authority

MORE_MS = 2.0
"""The most that a forwarded call should take more."""


async def forwards(directory: Path, *, rounds: int, calls: int) -> Sequence[Figure]:
    """Unary calls at the owner and at the other member, in turns."""
    Authority.open(directory)
    async with AsyncExitStack() as open_:
        owner = await open_.enter_async_context(_member("owner", directory))
        other = await open_.enter_async_context(_member("other", directory, owner["forward"]))
        clients = [
            await open_.enter_async_context(hubbub_client.connect(each["grpc"], token="bench"))
            for each in (owner, other)
        ]
        found: list[Figure] = []
        for in_flight in (1, 32):
            works = [_echo(client) for client in clients]
            here, there = await in_turns(works, rounds=rounds, calls=calls, in_flight=in_flight)
            more = statistics.median(b.median_ms - a.median_ms for a, b in zip(here.rounds, there.rounds, strict=True))
            about = f"{in_flight} in flight"
            found += [
                Figure(f"at the owner, {about}", here.median_ms, "ms"),
                Figure(f"forwarded, {about}", there.median_ms, "ms"),
                Figure(f"more by the forward, {about}", more, "ms", MORE_MS if in_flight == 1 else None),
            ]
    return found


def _echo(client: hubbub_client.Hub) -> Any:
    return lambda: client.call_tool("light", "echo", {"text": TEXT})


@asynccontextmanager
async def _member(name: str, directory: Path, *owner: str) -> AsyncGenerator[dict[str, str]]:
    """A member, and where it is reached."""
    command = [sys.executable, str(HERE / "member.py"), name, str(directory), *owner]
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None)
    async with ended_after(process):
        assert process.stdout is not None
        with anyio.fail_after(START_LIMIT_S):
            ready = json.loads(await process.stdout.receive())
        yield ready
