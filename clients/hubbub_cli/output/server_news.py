"""How each server is, a line each: for the person who has started a hub and looks at it."""

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from hubbub_cli.output.printer import note, say
from hubbub_frontend.display.records import describe_fault

if TYPE_CHECKING:
    from hubbub_client.data.records import Server
    from hubbub_client.hub import Hub


WAIT_LINE_S = 3.0
"""Seconds between lines that say what is waited for, so that a slow start is not taken for a halt."""


async def print_while_waiting(describe_wait: Callable[[], str]) -> None:
    """Print every WAIT_LINE_S, until cancelled, what is waited for; nothing while `describe_wait` returns ""."""
    import asyncio

    started_s = time.monotonic()
    while True:
        await asyncio.sleep(WAIT_LINE_S)
        if wait := describe_wait():
            note(f"  {time.monotonic() - started_s:3.0f} s  {wait}")


async def print_server_states(hub: "Hub") -> None:
    """Print a line when a server is connected, and when it fails, until cancelled. Raises HubbubError.

    While some servers are still connecting for the first time, their names are printed every WAIT_LINE_S.
    """
    import asyncio

    from hubbub_client.data.watch_events import Removed, Upsert  # imported late, since it imports gRPC

    started_s = time.monotonic()
    last_states: dict[str, str] = {}
    connecting: set[str] = set()

    async with asyncio.TaskGroup() as group, aclosing(hub.servers.watch()) as events:
        group.create_task(
            print_while_waiting(lambda: f"connecting: {', '.join(sorted(connecting))}" if connecting else "")
        )
        async for event in events:
            match event:
                case Upsert(record=server) if server.state == "connected":
                    connecting.discard(server.name)
                    if last_states.get(server.name) != "connected":
                        took_s = None if server.name in last_states else time.monotonic() - started_s
                        group.create_task(_print_connected(hub, server, took_s))
                    last_states[server.name] = "connected"
                case Upsert(record=server) if server.error and last_states.get(server.name) != server.error.code:
                    connecting.discard(server.name)
                    last_states[server.name] = server.error.code
                    say(f"{server.name}: not connected: {describe_fault(server.error)}")
                case Upsert(record=server) if server.state == "connecting" and server.name not in last_states:
                    connecting.add(server.name)
                case Removed(id=name):
                    connecting.discard(name)
                    if last_states.pop(name, None):
                        say(f"{name}: removed")
                case _:
                    pass


async def _print_connected(hub: "Hub", server: "Server", took_s: float | None) -> None:
    """Print that a server is connected, how, and after how many seconds; `took_s` is None if that is not known."""
    description = await _describe_connection(hub, server)
    say(f"{server.name}: connected ({description if took_s is None else f'{description}, {took_s:.1f} s'})")


async def _describe_connection(hub: "Hub", server: "Server") -> str:
    """Return how a server is reached, and how many tools it has; wait until the hub has fetched their list.

    If the hub cannot fetch the list, the number is left out.
    """
    from hubbub_client.data.watch_events import Upsert

    if "tools" not in (server.capabilities or {}):
        return f"{server.transport}, no tools"
    async with aclosing(hub.catalog.watch(server=server.name, kinds=["tool"])) as events:
        async for event in events:
            match event:
                case Upsert(record=tools) if tools.freshness in ("fresh", "stale", "empty"):
                    return f"{server.transport}, {tools.count} tool{'' if tools.count == 1 else 's'}"
                case Upsert(record=tools) if tools.error:
                    break
                case _:
                    pass
    return f"{server.transport}"
