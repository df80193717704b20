"""WatchEvents of a fleet: the events of all members, as one stream.

The events of a lost member while it was away count as one missing event (`dropped`), once the member is back.
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

RETRY_S = 1.0
"""Seconds after which a lost member is tried again."""

FIRST_RESPONSES_S = 2.0
"""Seconds that the first response waits for the other members."""

MAX_QUEUED = 64
"""While as many responses wait for the watcher, members are not read any further, and drop their oldest events."""

Responses = AsyncGenerator[bytes, None]
THIS_MEMBER = ""
"""Stands for this member among the names of members."""


class MergedEvents:
    """One watch of all members' events."""

    def __init__(self, ownership: Ownership, changes: OwnershipChanges) -> None:
        self._ownership = ownership
        self._changes = changes
        self._queue: asyncio.Queue[tuple[str, int, bytes | Exception | None]] = asyncio.Queue(MAX_QUEUED)
        self._streams = count(1)
        self._dropped_by_stream: dict[str, tuple[int, int]] = {}
        """By member: the number of its latest stream, and how many events that stream has dropped."""
        self._missing_before = 0
        """Events that earlier streams have dropped, and one more for each of these streams."""
        self._reported_missing = 0
        self._first_responses: dict[str, anyio.Event] = {}  # by member: set after its first response, or failure

    async def merge(self, own: Responses, open_at: Callable[[Owner], Awaitable[Responses]]) -> Responses:
        """Yield the responses of this member (`own`) and of all others; `open_at` opens the stream of another member.

        Ends when the responses of this member end, and raises their HubError.
        """
        pumps = [
            asyncio.create_task(
                work_with_each_member(
                    self._ownership, self._changes, lambda o: self._queue_member_responses(o, open_at)
                )
            )
        ]
        try:
            await self._wait_for_members()
            pumps.append(asyncio.create_task(self._queue_own_responses(own)))
            while True:
                member, stream, item = await self._queue.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    return
                if (response := self._correct_dropped(member, stream, item)) is not None:
                    yield response
        finally:
            await cancel_and_wait(*pumps)

    async def _wait_for_members(self) -> None:
        """Wait until each other member has sent its first response, for FIRST_RESPONSES_S at most."""
        with anyio.move_on_after(FIRST_RESPONSES_S):
            for other in self._ownership.others():
                await self._first_responses.setdefault(other.member, anyio.Event()).wait()

    async def _queue_own_responses(self, own: Responses) -> None:
        """Queue the responses of this member, and then the end of the watch: an error, or None."""
        end: Exception | None = None
        try:
            async with aclosing(own):
                async for response in own:
                    await self._queue.put((THIS_MEMBER, 0, response))
        except Exception as exc:  # noqa: BLE001 - raised by `merge`
            end = exc
        await self._queue.put((THIS_MEMBER, 0, end))

    async def _queue_member_responses(self, owner: Owner, open_at: Callable[[Owner], Awaitable[Responses]]) -> None:
        """Queue the responses of another member, over one stream after the other; until cancelled."""
        has_responded = self._first_responses.setdefault(owner.member, anyio.Event())
        while True:
            stream = next(self._streams)
            with suppress(Unreached, HubError):
                async with aclosing(await open_at(owner)) as responses:
                    async for response in responses:
                        has_responded.set()
                        await self._queue.put((owner.member, stream, response))
            has_responded.set()  # after a failure, too, so that `merge` waits no longer for this member
            await anyio.sleep(RETRY_S)

    def _correct_dropped(self, member: str, stream: int, response: bytes) -> bytes | None:
        """Return a response with the number of all events that were dropped; None for another member's sign of life."""
        message = event_pb2.WatchEventsResponse.FromString(response)
        previous = self._dropped_by_stream.get(member)
        if previous is not None and previous[0] != stream:
            self._missing_before += previous[1] + 1  # the events between two streams count as one
        self._dropped_by_stream[member] = stream, message.dropped
        missing = self._missing_before + sum(dropped for _, dropped in self._dropped_by_stream.values())
        if member != THIS_MEMBER and not message.HasField("event") and missing == self._reported_missing:
            return None
        self._reported_missing = missing
        if missing == message.dropped:
            return response
        # Of a field that is there twice the last one counts.
        return response + event_pb2.WatchEventsResponse(dropped=missing).SerializeToString()
