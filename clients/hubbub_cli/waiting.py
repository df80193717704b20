"""Waiting until a pending request is closed."""

import contextlib

from hubbub_client.hub import Hub
from hubbub_client.records import PendingRequest
from hubbub_client.watch_events import Removed, Reset, Synced, Upsert


async def settled(hub: Hub, request: PendingRequest, *, answered: bool = True) -> PendingRequest | None:
    """Wait until a pending request is no longer open; None if it is gone.

    With `answered` false, an answer does not count.
    """
    seen = False
    watching = hub.inbox.watch(server=request.server, kinds=[request.kind], call_id=request.call_id)
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
