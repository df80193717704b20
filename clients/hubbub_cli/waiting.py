"""Waiting until a pending request is closed, or servers are connected."""

import contextlib
from typing import get_args

import anyio

from hubbub_client.hub import Hub
from hubbub_client.records import PendingRequest, RequestKind
from hubbub_client.watch_events import Removed, Reset, Synced, Upsert

FIRST_LOOK_S = 30.0
"""Longest wait for the hub's snapshot of servers, before the timeout begins; seconds."""


async def settled(hub: Hub, request: PendingRequest, *, answered: bool = True) -> PendingRequest | None:
    """Wait until a pending request is no longer open; None if it is gone.

    With `answered` false, an answer does not count.
    """
    seen = False
    # A newer hub may name a kind that no filter of ours can.
    kinds: list[RequestKind] = [kind for kind in get_args(RequestKind) if kind == request.kind]
    watching = hub.inbox.watch(server=request.server, kinds=kinds, call_id=request.call_id)
    async with contextlib.aclosing(watching) as events:
        async for event in events:
            match event:
                case Upsert(record=now) if now.id == request.id:
                    seen = True
                    if now.state != "open" and (answered or now.state != "answered"):
                        return now
                case Removed(id=request.id):
                    return None
                case Reset():
                    seen = False
                case Synced() if not seen:
                    return None
                case _:
                    pass
    return None


async def not_connected(hub: Hub, timeout_s: float) -> list[str]:
    """Wait for the wanted servers; return the names of those that are not connected in time.

    The time begins with the hub's snapshot, so that a timeout of 0 still learns the states.
    """
    missing: set[str] = set()
    with anyio.move_on_after(timeout_s + FIRST_LOOK_S) as wait:
        async with contextlib.aclosing(hub.servers.watch()) as events:
            synced = False
            async for event in events:
                match event:
                    case Upsert(record=server) if server.desired_state == "connected" != server.state:
                        missing.add(server.name)
                    case Upsert(record=server):
                        missing.discard(server.name)
                    case Removed(id=name):
                        missing.discard(name)
                    case Reset():
                        missing.clear()
                        synced = False
                    case Synced():
                        synced = True
                        wait.deadline = min(wait.deadline, anyio.current_time() + timeout_s)
                    case _:
                        pass
                if synced and not missing:
                    return []
    return sorted(missing) or ["(the hub did not say)"]
