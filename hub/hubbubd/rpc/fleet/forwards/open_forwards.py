"""Forwards under way: each ends once its owner has certainly lost the server, or is silent at the end of its time.

A member that is stopped (SIGSTOP), or whose machine is, keeps its connections. What it was sent may never be answered:
the fence lets nothing of it through once another member has the server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from hubbubd.runtime.ownership import Owner, Ownership

HANDED_ON_S = 2.0
"""Seconds in which a member that has handed a server on may respond: by then it has ended all calls of the server."""

ASK_S = 2.0
"""Seconds before the end of a call's own time at which its owner is to show that it lives."""


class Forward(Protocol):
    """An RPC of gRPC."""

    def cancel(self) -> bool: ...


class OpenForwards:
    """The forwards of this member."""

    def __init__(self, ownership: Ownership, answers: Callable[[Owner], Awaitable[bool]]) -> None:
        """`answers` returns within seconds whether a member answers."""
        self._ownership = ownership
        self._answers = answers
        self._forwards: dict[str, dict[Forward, Owner]] = {}
        self._alive_checks: set[asyncio.Task[None]] = set()
        ownership.on_change(self._cancel_if_owner_changed)

    @contextmanager
    def cancel_when_lost(
        self, server: str, owner: Owner, forward: Forward, call_limit_s: float | None = None
    ) -> Generator[None]:
        """Cancel a forward, during the block, once its owner has lost the server.

        `call_limit_s` is the timeout that the forwarded call sets itself; None without a timeout. ASK_S before the end
        of that time the owner is asked whether it lives, and the forward is cancelled if there is no answer.
        """
        forwards = self._forwards.setdefault(server, {})
        forwards[forward] = owner
        asking = None
        if call_limit_s is not None:
            # ASK_S before the end; for a call that takes less than twice as long, in the middle.
            asking = asyncio.get_running_loop().call_later(
                max(call_limit_s - ASK_S, call_limit_s / 2), self._cancel_if_unanswered, owner, forward
            )
        self._cancel_if_owner_changed(server)  # it may have changed hands since its owner was looked up
        try:
            yield
        finally:
            if asking is not None:
                asking.cancel()
            forwards.pop(forward, None)
            if not forwards and self._forwards.get(server) is forwards:
                del self._forwards[server]

    def _cancel_if_owner_changed(self, server: str) -> None:
        """Cancel the forwards to former owners of a server; a member that still lives has HANDED_ON_S to respond."""
        for forward, owner in list(self._forwards.get(server, {}).items()):
            if self._still_owns(server, owner):
                continue
            if any((each.member, each.term) == (owner.member, owner.term) for each in self._ownership.others()):
                asyncio.get_running_loop().call_later(HANDED_ON_S, self._cancel_if_lost, server, forward)
            else:
                forward.cancel()

    def _still_owns(self, server: str, owner: Owner) -> bool:
        """Return whether a server still has this owner; True as well while no member has it for a moment."""
        now = self._ownership.owner(server)
        if now is None:  # of nobody for a moment, or this member's own
            return not self._ownership.owns(server)
        return (now.member, now.term) == (owner.member, owner.term)

    def _cancel_if_lost(self, server: str, forward: Forward) -> None:
        """Cancel a forward whose owner has not got the server back meanwhile."""
        owner = self._forwards.get(server, {}).get(forward)
        if owner is not None and not self._still_owns(server, owner):  # it may have the server again
            forward.cancel()

    def _cancel_if_unanswered(self, owner: Owner, forward: Forward) -> None:
        """Start to ask a member whether it lives, and cancel a forward to it if it does not answer."""

        async def cancel_unless_alive() -> None:
            if not await self._answers(owner):
                forward.cancel()

        task = asyncio.get_running_loop().create_task(cancel_unless_alive())
        self._alive_checks.add(task)
        task.add_done_callback(self._alive_checks.discard)
