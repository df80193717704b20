"""WatchEvents of a fleet: the events of all members, as one stream.

What a member could not say because it was lost counts as one event that is missing (`dropped`), once it is back.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import anyio

from hubbub.v1 import event_pb2
from hubbubd.errors import HubError
from hubbubd.rpc.fleet.changes import Changes, ended, with_each_other
from hubbubd.rpc.fleet.peers import Unreached
from hubbubd.runtime.ownership import Owner, Ownership

T = TypeVar("T")

AGAIN_S = 1.0
"""Seconds after which a lost member is tried again."""

BEGIN_S = 2.0
"""Seconds that the first response waits for the other members."""

ROOM = 64
"""Responses that wait for the watcher; then members are not read any further, and drop what is oldest."""

Responses = AsyncGenerator[bytes, None]
HERE = ""


class MergedEvents:
    """One watch of all members' events."""

    def __init__(self, ownership: Ownership, changes: Changes) -> None:
        self._ownership = ownership
        self._changes = changes
        self._said: asyncio.Queue[tuple[str, bytes | Exception | None]] = asyncio.Queue(ROOM)
        self._dropped: dict[str, int] = {}
        self._missing = 0
        self._begun: dict[str, anyio.Event] = {}

    async def responses(self, here: Responses, at: Callable[[Owner], Awaitable[Responses]]) -> Responses:
        """Yield the responses of this member and of all others; `at` opens those of another one.

        Ends with those of this member. Raises HubError as they do.
        """
        pumps = [asyncio.create_task(with_each_other(self._ownership, self._changes, lambda o: self._listen(o, at)))]
        try:
            await self._all_begun()
            pumps.append(asyncio.create_task(self._own(here)))
            while True:
                member, said = await self._said.get()
                if isinstance(said, Exception):
                    raise said
                if said is None:
                    return
                if (response := self._counted(member, said)) is not None:
                    yield response
        finally:
            await ended(*pumps)

    async def _all_begun(self) -> None:
        with anyio.move_on_after(BEGIN_S):
            for other in self._ownership.others():
                await self._begun.setdefault(other.member, anyio.Event()).wait()

    async def _own(self, here: Responses) -> None:
        end: Exception | None = None
        try:
            async with aclosing(here):
                async for response in here:
                    await self._said.put((HERE, response))
        except Exception as exc:  # noqa: BLE001 - raised by `responses`
            end = exc
        await self._said.put((HERE, end))

    async def _listen(self, owner: Owner, at: Callable[[Owner], Awaitable[Responses]]) -> None:
        begun, heard = self._begun.setdefault(owner.member, anyio.Event()), False
        try:
            while True:
                try:
                    async with aclosing(await at(owner)) as responses:
                        async for response in responses:
                            if not begun.is_set() or not heard:
                                begun.set()
                            heard = True
                            await self._said.put((owner.member, response))
                except (Unreached, HubError):
                    pass
                begun.set()
                if heard:
                    self._lost(owner.member)
                    heard = False
                await anyio.sleep(AGAIN_S)
        finally:
            if heard:
                self._lost(owner.member)

    def _lost(self, member: str) -> None:
        """Note that nobody knows what a member says now."""
        self._missing += self._dropped.pop(member, 0) + 1

    def _counted(self, member: str, response: bytes) -> bytes | None:
        """Return a response with the number of events that are missing in all; None for a sign of life of another."""
        said = event_pb2.WatchEventsResponse.FromString(response)
        self._dropped[member] = said.dropped
        if member != HERE and not said.HasField("event"):
            return None
        missing = self._missing + sum(self._dropped.values())
        if missing == said.dropped:
            return response
        # Of a field that is there twice the last one counts.
        return response + event_pb2.WatchEventsResponse(dropped=missing).SerializeToString()
