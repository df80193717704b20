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
"""Seconds that responses of a member get that has handed a server on: it has ended all its calls by then."""

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
        ownership.on_change(self._check_owner)

    @contextmanager
    def watched(self, server: str, owner: Owner, forward: Forward, own_s: float | None = None) -> Generator[None]:
        """Cancel a forward of the block once nothing can come of it. `own_s` is its own time, if it has one."""
        forwards = self._forwards.setdefault(server, {})
        forwards[forward] = owner
        asking = None
        if own_s is not None:
            asking = asyncio.get_running_loop().call_later(
                max(own_s - ASK_S, own_s / 2), self._check_alive, owner, forward
            )
        self._check_owner(server)  # it may have changed hands since its owner was looked up
        try:
            yield
        finally:
            if asking is not None:
                asking.cancel()
            forwards.pop(forward, None)
            if not forwards and self._forwards.get(server) is forwards:
                del self._forwards[server]

    def _check_owner(self, server: str) -> None:
        for forward, owner in list(self._forwards.get(server, {}).items()):
            if self._still_owns(server, owner):
                continue
            if any((each.member, each.life) == (owner.member, owner.life) for each in self._ownership.others()):
                asyncio.get_running_loop().call_later(HANDED_ON_S, self._cancel_if_lost, server, forward)
            else:
                forward.cancel()

    def _still_owns(self, server: str, owner: Owner) -> bool:
        now = self._ownership.owner(server)
        if now is None:  # of nobody for a moment, or this member's own
            return not self._ownership.owns(server)
        return (now.member, now.life) == (owner.member, owner.life)

    def _cancel_if_lost(self, server: str, forward: Forward) -> None:
        owner = self._forwards.get(server, {}).get(forward)
        if owner is not None and not self._still_owns(server, owner):  # it may have the server again
            forward.cancel()

    def _check_alive(self, owner: Owner, forward: Forward) -> None:
        async def cancel_unless_alive() -> None:
            if not await self._answers(owner):
                forward.cancel()

        task = asyncio.get_running_loop().create_task(cancel_unless_alive())
        self._alive_checks.add(task)
        task.add_done_callback(self._alive_checks.discard)
