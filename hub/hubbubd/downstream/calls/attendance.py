"""Which hosts still wait for their calls. A call may go on without one; then perhaps nobody hears of its result.

request ──> here ──┬──> response: it knows how its call goes on
                   └──> connection gone ──> a while later, or at once where it cannot come back: left
"""

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from hubbubd.core.inbox.request_states import caller_noted
from hubbubd.downstream.hosts.host import RequestToHost
from hubbubd.runtime.hub import Hub

RETURN_S: Final = 5.0
"""Seconds in which a host whose connection broke may resume its stream, before it has left: clients try after one."""


class Attendance:
    """The hosts that wait for the calls of one endpoint."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waiting = Counter[str]()

    @contextmanager
    def waiting(self, exchange: RequestToHost, call_id: str) -> Generator[None]:
        """Note during the block that a host waits for a call, until it hangs up: then the block may be cancelled."""
        host = _WaitingHost(self, call_id)
        with exchange.presence.listened(lambda: host.back() if exchange.presence.here else host.gone()):
            host.back()
            try:
                yield
            except asyncio.CancelledError:
                host.leave()
                raise
            finally:
                host.end()

    def arrive(self, call_id: str) -> None:
        """Note that one more host waits for a call."""
        self._waiting[call_id] += 1
        if self._waiting[call_id] == 1:
            self._note(call_id, left=False)

    def part(self, call_id: str, *, left: bool) -> None:
        """Note that one host less waits for a call; `left` says that it does not know how the call goes on."""
        self._waiting[call_id] -= 1
        if not self._waiting[call_id]:
            del self._waiting[call_id]
            if left and not self._hub.calls.draining:  # the hub leaves, and hosts come back to the next one
                self._note(call_id, left=True)

    def _note(self, call_id: str, *, left: bool) -> None:
        inbox = self._hub.inbox
        left_at = self._hub.clock.now() if left else None
        inbox.reserved.note_caller(call_id, left_at)
        call = self._hub.calls.find(call_id)
        for request in map(inbox.find, call.pending_ids if call is not None else ()):
            if request is not None and caller_noted(request, left_at) is not request:
                inbox.note(request.id, lambda there: caller_noted(there, left_at))


class _WaitingHost:
    """One host that waits for one call."""

    def __init__(self, attendance: Attendance, call_id: str) -> None:
        self._attendance = attendance
        self._call_id = call_id
        self._here = False
        self._leaving: asyncio.TimerHandle | None = None

    def back(self) -> None:
        """Note that the host is there."""
        self._stay()
        if not self._here:
            self._here = True
            self._attendance.arrive(self._call_id)

    def gone(self) -> None:
        """Note that its connection is gone: it may come back."""
        self._stay()
        self._leaving = asyncio.get_running_loop().call_later(RETURN_S, self.leave)

    def leave(self) -> None:
        """Note that it has left."""
        self._part(left=True)

    def end(self) -> None:
        """Note that it has its response, or has left."""
        self._part(left=False)

    def _part(self, *, left: bool) -> None:
        self._stay()
        if self._here:
            self._here = False
            self._attendance.part(self._call_id, left=left)

    def _stay(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
