"""Calls at the other members of a fleet: the port that `rpc/fleet/` implements."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio

from hubbubd.core.calls.call_states import Call
from hubbubd.runtime.calls.spec import CallSpec


class RemoteCalls(Protocol):
    """Makes calls where their servers are. All raise as `Calls` does, and Unavailable (OWNER_CHANGING, OWNER_LOST)."""

    def has(self, server: str) -> bool:
        """Return whether another member has a server, and is to be asked."""
        ...

    def may(self) -> bool:
        """Return whether what is asked for now may be asked of another member: it was not sent by one."""
        ...

    async def call(self, spec: CallSpec, principal: str, *, detached: bool) -> Call:
        """Make a call, wait for its end, and return it, whatever the outcome. Cancelling this cancels that."""
        ...

    async def start(self, spec: CallSpec, principal: str) -> Call:
        """Queue a detached call; it is durable on return, and known here."""
        ...

    async def cancel(self, call: Call, *, abort: bool) -> Call:
        """End a call."""
        ...

    async def give_up(self, call: Call) -> None:
        """End a call, even a detached one, unless a caller waits for it here."""
        ...

    def following(
        self, server: str, uri: str, principal: str, tell: Callable[[str], None]
    ) -> AbstractAsyncContextManager[anyio.Event]:
        """Tell of each change of a resource during the block; as `Subscriptions.following`."""
        ...
