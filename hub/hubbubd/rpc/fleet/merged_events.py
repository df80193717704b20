"""WatchEvents of a fleet: the events of all members, as one stream.

What a member could not say because it was lost counts as one event that is missing (`dropped`), once it is back.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import count

import anyio

from hubbub.v1 import event_pb2
from hubbubd.errors import HubError
from hubbubd.rpc.fleet.changes import OwnershipChanges, cancel_and_wait, work_with_each_member
from hubbubd.rpc.fleet.peers import Unreached
from hubbubd.runtime.ownership import Owner, Ownership

AGAIN_S = 1.0
"""Seconds after which a lost member is tried again."""

BEGIN_S = 2.0
"""Seconds that the first response waits for the other members."""

ROOM = 64
"""Responses that wait for the watcher; then members are not read any further, and drop what is oldest."""

Responses = AsyncGenerator[bytes, None]
HERE = ""
"""Stands for this member among the names of members."""


class MergedEvents:
    """One watch of all members' events."""

    def __init__(self, ownership: Ownership, changes: OwnershipChanges) -> None:
        self._ownership = ownership
        self._changes = changes
        self._queue: asyncio.Queue[tuple[str, int, bytes | Exception | None]] = asyncio.Queue(ROOM)
        self._streams = count(1)
        self._dropped_by_stream: dict[str, tuple[int, int]] = {}
        """By member: the number of the stream heard last, and how many events that has dropped."""
        self._missing = 0
        """Events that streams before those have dropped, and one for each end of one."""
        self._reported = 0
        self._begun: dict[str, anyio.Event] = {}

    async def merge(self, here: Responses, at: Callable[[Owner], Awaitable[Responses]]) -> Responses:
        """Yield the responses of this member (`here`) and of all others; `at` opens the stream of another member.

        Ends when the responses of this member end, and raises their HubError.
        """
        pumps = [
            asyncio.create_task(
                work_with_each_member(self._ownership, self._changes, lambda o: self._queue_member_responses(o, at))
            )
        ]
        try:
            await self._wait_for_members()
            pumps.append(asyncio.create_task(self._queue_own_responses(here)))
            while True:
                member, stream, said = await self._queue.get()
                if isinstance(said, Exception):
                    raise said
                if said is None:
                    return
                if (response := self._correct_dropped(member, stream, said)) is not None:
                    yield response
        finally:
            await cancel_and_wait(*pumps)

    async def _wait_for_members(self) -> None:
        """Wait until each other member has sent its first response, for BEGIN_S at most."""
        with anyio.move_on_after(BEGIN_S):
            for other in self._ownership.others():
                await self._begun.setdefault(other.member, anyio.Event()).wait()

    async def _queue_own_responses(self, here: Responses) -> None:
        """Queue the responses of this member, and at their end what ends the watch: an error, or None without one."""
        end: Exception | None = None
        try:
            async with aclosing(here):
                async for response in here:
                    await self._queue.put((HERE, 0, response))
        except Exception as exc:  # noqa: BLE001 - raised by `merge`
            end = exc
        await self._queue.put((HERE, 0, end))

    async def _queue_member_responses(self, owner: Owner, at: Callable[[Owner], Awaitable[Responses]]) -> None:
        """Queue the responses of another member, over one stream after the other; until cancelled."""
        begun = self._begun.setdefault(owner.member, anyio.Event())
        while True:
            stream = next(self._streams)
            with suppress(Unreached, HubError):
                async with aclosing(await at(owner)) as responses:
                    async for response in responses:
                        begun.set()
                        await self._queue.put((owner.member, stream, response))
            begun.set()  # after a failure, too: the first response of this member is waited for no longer
            await anyio.sleep(AGAIN_S)

    def _correct_dropped(self, member: str, stream: int, response: bytes) -> bytes | None:
        """Return a response with the number of all events that were dropped; None for another member's sign of life."""
        said = event_pb2.WatchEventsResponse.FromString(response)
        before = self._dropped_by_stream.get(member)
        if before is not None and before[0] != stream:
            self._missing += before[1] + 1  # what was said between two streams counts as one event
        self._dropped_by_stream[member] = stream, said.dropped
        missing = self._missing + sum(dropped for _, dropped in self._dropped_by_stream.values())
        if member != HERE and not said.HasField("event") and missing == self._reported:
            return None
        self._reported = missing
        if missing == said.dropped:
            return response
        # Of a field that is there twice the last one counts.
        return response + event_pb2.WatchEventsResponse(dropped=missing).SerializeToString()
