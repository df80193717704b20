"""The servers at work: the parts of each, made, replaced no more than necessary, and dropped."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from hubbubd.config import Confinement
from hubbubd.config.servers.server import needs_connection
from hubbubd.core.calls.call_faults import SHUTTING_DOWN, cancelled_fault
from hubbubd.core.calls.call_states import Call
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import Fault
from hubbubd.frozen import carried_over
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import End, ServerQueue
from hubbubd.runtime.records import Ledger, Table
from hubbubd.runtime.servers.log_levels import METHOD as LOG_LEVEL_METHOD
from hubbubd.runtime.servers.notes import ServerNotes
from hubbubd.runtime.servers.parts import Assembly, ServerParts
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Era

CONNECTED = ("connection", "protocol_version", "server_info", "capabilities", "instructions", "pid", "notes")
"""Fields of a record that its connection sets."""

SOON_S = 0.5
"""Seconds for which changes of a server's call counts and notes are coalesced into one update."""


class ActiveServers:
    """The parts of all servers of this hub's own, by name."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        table: Table[ServerRecord],
        calls: Table[Call],
        assembly: Assembly,
        clock: Clock,
        alarms: Alarms,
        background: Background,
        confined: Callable[[ServerRecord], Confinement | None],
    ) -> None:
        """`confined` returns what a server may do; None is everything."""
        self._ledger = ledger
        self._table = table
        self._assembly = assembly
        self._alarms = alarms
        self._background = background
        self._confined = confined
        self._kept: dict[str, ServerParts] = {}
        self._showing: set[str] = set()
        self._unforgotten: set[str] = set()
        """Names of servers that were replaced, of which something may be left that the new ones must not inherit."""
        calls.follow(self._follow_call)
        clock.follow(self._hasten)

    def get(self, name: str) -> ServerParts | None:
        """Return a server's parts; None if it is not at work here."""
        return self._kept.get(name)

    def __getitem__(self, name: str) -> ServerParts:
        return self._kept[name]

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, record: ServerRecord, queue: ServerQueue | None = None) -> None:
        """Put a server to work; `queue` is one that it takes over."""
        name = record.name
        shown = self._table.record(name)
        confined = self._confined(record)
        show, notes = partial(self.show, name), ServerNotes(name, partial(self._show_soon, name))
        kept = self._kept[name] = self._assembly.make(record, confined, show, notes, queue=queue, shown=shown)
        self.show(name)
        self._background.start_soon(kept.run)
        if record.wanted:
            kept.shell.connect()

    async def take(self, record: ServerRecord) -> None:
        """Put a server to work. What is left of another one under its name is forgotten first; raises Unavailable."""
        if record.name in self._unforgotten:
            await self._assembly.forget_peer(record.name)
            self._unforgotten.discard(record.name)
        self.keep(record)

    async def become(self, record: ServerRecord, why: str, *, anew: bool = False) -> None:
        """Make a server match its record, and replace no more of it than necessary.

        Another server under the name inherits nothing. The same one (by fingerprint) keeps its queue, pending requests
        and tasks, and its connection unless connection options changed or `anew` is set.
        """
        kept = self._kept.get(record.name)
        if kept is None or kept.shell.config.fingerprint != record.fingerprint:
            if kept is not None:
                self._unforgotten.add(record.name)
                await self.drop(record.name, why)
            await self.take(record)
        elif anew or kept.record.source != record.source or needs_connection(kept.shell.config, record.config):
            await self.connect_anew(record, why)
        else:
            told = kept.queue.config.roots
            connection = {each: getattr(kept.record, each) for each in CONNECTED}
            self._assembly.adopt(kept, replace(record, **connection))
            self.show(record.name)
            if record.effective_config.roots != told:
                self.tell_roots(kept)

    async def connect_anew(
        self, record: ServerRecord, why: str, between: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """End a server's connection and begin another one, with the same queue.

        `between` is called with the server's name when there is no connection. Whatever it raises, the server is put
        to work again.
        """
        kept = self._kept.pop(record.name)
        fault = cancelled_fault(f"{record.name} is connected anew: {why}", "SERVER_REMOVED")
        queue = await self._assembly.let_go(kept, fault)
        try:
            if between is not None:
                await between(record.name)
        finally:
            self.keep(record, queue)

    async def drop(self, name: str, why: str) -> None:
        """End a server's work, and its calls."""
        await self._assembly.drop(self._kept.pop(name), cancelled_fault(f"{name} is gone: {why}", "SERVER_REMOVED"))

    async def leave(self, name: str, fault: Fault) -> None:
        """End a server's work here, as it goes on elsewhere, and so do the calls that can."""
        if (kept := self._kept.pop(name, None)) is not None:
            await self._assembly.leave(kept, fault)

    def show(self, name: str) -> None:
        """Pass a server's current connection on to those that use it, and publish its record."""
        if (kept := self._kept.get(name)) is not None:
            self._assembly.follow(kept)
            self._publish(name)

    def _publish(self, name: str) -> None:
        """Publish a server's record with the current state of connection and queue."""
        if (kept := self._kept.get(name)) is not None:
            before, kept.shown = kept.shown, kept.seen()
            self._ledger.later(self._table, name, partial(carried_over, before, kept.shown))

    def tell_roots(self, kept: ServerParts) -> None:
        """Tell a server that its roots have changed."""
        link = kept.shell.link
        if link is not None and link.hello.era is Era.HANDSHAKE:  # a stateless server asks whenever it needs them
            self.notify(kept.record.name, "notifications/roots/list_changed", {})

    def notify(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Send a notification in the background, if the server is connected."""
        kept = self._kept.get(server)
        if kept is not None and kept.shell.link is not None:
            self._background.start_soon(kept.shell.link.notify, method, params)

    async def close(self) -> None:
        """End all connections and calls at shutdown; whether servers are wanted stays as it is."""
        async with anyio.create_task_group() as together:
            for kept in list(self._kept.values()):
                together.start_soon(kept.shell.disconnect, SHUTTING_DOWN, End.SHUTTING_DOWN)
                together.start_soon(kept.queue.wait_idle)

    def _hasten(self, _by_s: float) -> None:
        for kept in self._kept.values():  # the clock jumped, most likely as the computer was suspended
            kept.shell.hasten()

    def _follow_call(self, before: Call | None, after: Call | None) -> None:
        if (call := after or before) is not None:
            self._show_soon(call.server)
        if after is not None and after.method == LOG_LEVEL_METHOD:
            self._assembly.log_levels.note_call(after)

    def _show_soon(self, name: str) -> None:
        """Publish a server's record SOON_S after the first of several changes (coalesced)."""
        if name in self._kept and name not in self._showing:
            self._showing.add(name)

            async def show() -> None:
                self._showing.discard(name)
                self._publish(name)

            self._alarms.after(Due.COUNTS, name, SOON_S, show)
