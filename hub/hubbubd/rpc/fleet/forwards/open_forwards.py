"""Open forwards: each is cancelled once its owner has lost the server, or does not answer near the call's timeout.

A member that is stopped (SIGSTOP), or whose machine is, keeps its connections, but may never respond: the fence
refuses all that it writes once another member has the server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from hubbubd.runtime.ownership import Owner, Ownership

HANDOVER_S = 2.0
"""Seconds for responses of a member that has handed a server over: by then all calls of the server have ended."""

ALIVE_CHECK_S = 2.0
"""Seconds before the timeout of a call at which its owner is asked whether it is alive."""


class Forward(Protocol):
    """An RPC of gRPC."""

    def cancel(self) -> bool: ...


class OpenForwards:
    """The forwards of this member."""

    def __init__(self, ownership: Ownership, is_answering: Callable[[Owner], Awaitable[bool]]) -> None:
        """`is_answering` returns within seconds whether a member answers."""
        self._ownership = ownership
        self._is_answering = is_answering
        self._forwards: dict[str, dict[Forward, Owner]] = {}
        self._alive_checks: set[asyncio.Task[None]] = set()
        ownership.on_change(self._cancel_if_owner_changed)

    @contextmanager
    def cancel_when_lost(
        self, server: str, owner: Owner, forward: Forward, call_limit_s: float | None = None
    ) -> Generator[None]:
        """Cancel a forward, during the block, once its owner has lost the server.

        `call_limit_s` is the timeout that the forwarded call sets itself; None without a timeout. ALIVE_CHECK_S before
        the timeout the owner is asked whether it is alive, and the forward is cancelled if there is no answer.
        """
        forwards = self._forwards.setdefault(server, {})
        forwards[forward] = owner
        alive_check = None
        if call_limit_s is not None:
            # ALIVE_CHECK_S before the end; for a call that takes less than twice as long, in the middle.
            alive_check = asyncio.get_running_loop().call_later(
                max(call_limit_s - ALIVE_CHECK_S, call_limit_s / 2), self._cancel_if_unanswered, owner, forward
            )
        self._cancel_if_owner_changed(server)  # the owner may have changed since it was looked up
        try:
            yield
        finally:
            if alive_check is not None:
                alive_check.cancel()
            forwards.pop(forward, None)
            if not forwards and self._forwards.get(server) is forwards:
                del self._forwards[server]

    def _cancel_if_owner_changed(self, server: str) -> None:
        """Cancel the forwards to former owners of a server; a member that still lives has HANDOVER_S to respond."""
        for forward, owner in list(self._forwards.get(server, {}).items()):
            if self._still_owns(server, owner):
                continue
            if any((each.member, each.term) == (owner.member, owner.term) for each in self._ownership.others()):
                asyncio.get_running_loop().call_later(HANDOVER_S, self._cancel_if_lost, server, forward)
            else:
                forward.cancel()

    def _still_owns(self, server: str, owner: Owner) -> bool:
        """Return whether a server still has this owner; True as well while no member has it for a moment."""
        current_owner = self._ownership.owner(server)
        if current_owner is None:  # no member has the server for a moment, or this one has it
            return not self._ownership.owns(server)
        return (current_owner.member, current_owner.term) == (owner.member, owner.term)

    def _cancel_if_lost(self, server: str, forward: Forward) -> None:
        """Cancel a forward whose owner has not got the server back meanwhile."""
        owner = self._forwards.get(server, {}).get(forward)
        if owner is not None and not self._still_owns(server, owner):  # it may have the server again
            forward.cancel()

    def _cancel_if_unanswered(self, owner: Owner, forward: Forward) -> None:
        """Start a check whether a member is alive, which cancels a forward to it if there is no answer."""

        async def cancel_unless_alive() -> None:
            if not await self._is_answering(owner):
                forward.cancel()

        task = asyncio.get_running_loop().create_task(cancel_unless_alive())
        self._alive_checks.add(task)
        task.add_done_callback(self._alive_checks.discard)
