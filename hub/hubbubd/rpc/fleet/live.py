"""Progress and log messages of calls at other members, received as long as a client watches calls here."""

import asyncio
from contextlib import suppress

import anyio
import grpc

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbubd.rpc.fleet.changes import LOOK_S, OwnershipChanges, cancel_and_wait, work_with_each_member
from hubbubd.rpc.fleet.peers import Peers, Unreached, read_response
from hubbubd.rpc.methods import EOF
from hubbubd.runtime.calls import LiveCalls, LiveEvent, LogEvent, ProgressEvent
from hubbubd.runtime.ownership import Owner, Ownership

RETRY_S = 1.0
"""Seconds until this hub tries again to listen to a member."""

FIRST_ATTEMPT_S = 1.0
"""Seconds that a watched call waits for the first attempt to listen to its member."""

LINGER_S = 10.0
"""Seconds after the last watcher has left for which members are still listened to."""


class LiveElsewhere:
    """Listens to the other members."""

    def __init__(self, live: LiveCalls, ownership: Ownership, peers: Peers, changes: OwnershipChanges) -> None:
        self._live = live
        self._ownership = ownership
        self._peers = peers
        self._changes = changes
        self._watcher_came = anyio.Event()
        self._attempts: dict[str, anyio.Event] = {}
        """By member: an event that is set after the first attempt to listen to the member."""

    async def run(self) -> None:
        """Listen to all other members while clients watch calls here, and for LINGER_S after that; until cancelled."""
        while True:
            while not self._live.is_watched_here:
                with anyio.move_on_after(LOOK_S):
                    await self._watcher_came.wait()
            listeners = asyncio.create_task(work_with_each_member(self._ownership, self._changes, self._keep_listening))
            try:
                unwatched_s = 0.0
                while unwatched_s < LINGER_S:
                    await anyio.sleep(LOOK_S)
                    unwatched_s = 0.0 if self._live.is_watched_here else unwatched_s + LOOK_S
            finally:
                await cancel_and_wait(listeners)
                self._attempts.clear()
                self._watcher_came = anyio.Event()

    async def wait_until_listening(self, owner: Owner) -> None:
        """Wait until this hub has tried to listen to a member, for FIRST_ATTEMPT_S at most.

        Returns at once if no client watches calls here.
        """
        if not self._live.is_watched_here:
            return
        self._watcher_came.set()
        with anyio.move_on_after(FIRST_ATTEMPT_S):
            await self._attempt_event(owner).wait()

    def _attempt_event(self, owner: Owner) -> anyio.Event:
        """Return the event that is set once this hub has tried to listen to a member."""
        return self._attempts.setdefault(owner.member, anyio.Event())

    async def _keep_listening(self, owner: Owner) -> None:
        """Listen to a member, and again RETRY_S after each break; until cancelled."""
        while True:
            with suppress(Unreached, grpc.aio.AioRpcError):
                await self._listen_once(owner)
            self._attempt_event(owner).set()  # after a failure, too, so that calls wait no longer for this member
            await anyio.sleep(RETRY_S)

    async def _listen_once(self, owner: Owner) -> None:
        """Listen to a member until the connection breaks. Raises Unreached and AioRpcError."""
        stub = await self._peers.reach(owner)
        stream = stub.Live(pb.LiveRequest())
        try:
            while (response := await read_response(stream)) is not EOF:
                self._attempt_event(owner).set()
                if (event := _parse_event(response)) is not None:
                    self._live.publish_remote(event)
        finally:
            stream.cancel()


def _parse_event(response: pb.LiveResponse) -> LiveEvent | None:
    """Return the event in a response of another member; None for a sign of life, or a kind not known here."""
    match response.WhichOneof("told"):
        case "progress":
            progress = response.progress
            total = progress.total if progress.HasField("total") else None
            return ProgressEvent(progress.call_id, progress.progress, total, progress.message or None)
        case "log":
            return LogEvent(response.log.call_id, response.log.params)
        case _:
            return None
