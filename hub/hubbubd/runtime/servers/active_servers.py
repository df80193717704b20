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
from hubbubd.frozen import carry_over_changes
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import End, ServerQueue
from hubbubd.runtime.records import Ledger, Table
from hubbubd.runtime.servers.log_levels import METHOD as LOG_LEVEL_METHOD
from hubbubd.runtime.servers.notes import ServerNotes
from hubbubd.runtime.servers.parts import Assembly, ServerParts
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Era

CONNECTION_FIELDS = ("connection", "protocol_version", "server_info", "capabilities", "instructions", "pid", "notes")
"""Fields of a record that its connection sets."""

SOON_S = 0.5
"""Seconds for which changes of a server's call counts and notes are coalesced into one update."""


class ActiveServers:
    """The parts of the servers that are at work here, by name."""

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
        find_confinement: Callable[[ServerRecord], Confinement | None],
    ) -> None:
        """`find_confinement` returns what a server may do; None is everything."""
        self._ledger = ledger
        self._table = table
        self._assembly = assembly
        self._alarms = alarms
        self._background = background
        self._find_confinement = find_confinement
        self._parts: dict[str, ServerParts] = {}
        self._publishing_soon: set[str] = set()  # names of servers whose record is published within SOON_S
        self._replaced_names: set[str] = set()
        """Names of replaced servers: a new server must not inherit the catalogs and tokens left under them."""
        calls.follow(self._follow_call)
        clock.on_jump(self._hasten_reconnects)

    def get(self, name: str) -> ServerParts | None:
        """Return a server's parts; None if it is not at work here."""
        return self._parts.get(name)

    def __getitem__(self, name: str) -> ServerParts:
        return self._parts[name]

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._parts))

    def __len__(self) -> int:
        return len(self._parts)

    def start(self, record: ServerRecord, queue: ServerQueue | None = None) -> None:
        """Make the parts of a server, and connect it if it is wanted; `queue` is that of its last connection."""
        name = record.name
        published = self._table.record(name)
        confinement = self._find_confinement(record)
        on_change, notes = partial(self.pass_on_link, name), ServerNotes(name, partial(self._publish_soon, name))
        parts = self._parts[name] = self._assembly.make(
            record, confinement, on_change, notes, queue=queue, published=published
        )
        self.pass_on_link(name)
        self._background.start_soon(parts.run)
        if record.wanted:
            parts.shell.connect()

    async def start_new(self, record: ServerRecord) -> None:
        """Start a server; first forget what another server has left under its name. Raises Unavailable."""
        if record.name in self._replaced_names:
            await self._assembly.forget_peer(record.name)
            self._replaced_names.discard(record.name)
        self.start(record)

    async def match_record(self, record: ServerRecord, why: str, *, reconnects: bool = False) -> None:
        """Bring a server in step with its new record, and replace no more of it than necessary.

        Another server under the name inherits nothing. The same one (by fingerprint) keeps its queue, pending requests
        and tasks. It keeps its connection, too, unless connection options have changed or `reconnects` is set. `why`
        is a text for the errors of calls that end.
        """
        parts = self._parts.get(record.name)
        if parts is None or parts.shell.config.fingerprint != record.fingerprint:
            if parts is not None:
                self._replaced_names.add(record.name)
                await self.drop(record.name, why)
            await self.start_new(record)
        elif reconnects or parts.record.source != record.source or needs_connection(parts.shell.config, record.config):
            await self.reconnect(record, why)
        else:
            roots_before = parts.queue.config.roots
            connection = {each: getattr(parts.record, each) for each in CONNECTION_FIELDS}
            self._assembly.adopt(parts, replace(record, **connection))
            self.pass_on_link(record.name)
            if record.effective_config.roots != roots_before:
                self.notify_of_roots(parts)

    async def reconnect(
        self, record: ServerRecord, why: str, while_closed: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """End a server's connection and begin another one, with the same queue.

        Calls that were sent fail with `why`. `while_closed` is called with the server's name after the old connection
        has ended and before the new one begins; also if it raises, the server is started again.
        """
        parts = self._parts.pop(record.name)
        # The code stands for a replaced server, too: here its configuration was replaced, or its log-in was forgotten.
        fault = cancelled_fault(f"{record.name} is reconnected: {why}", "SERVER_REMOVED")
        queue = await self._assembly.detach_queue(parts, fault)
        try:
            if while_closed is not None:
                await while_closed(record.name)
        finally:
            self.start(record, queue)

    async def drop(self, name: str, why: str) -> None:
        """End the connection and the calls of a server that is removed or replaced; `why` is for their errors."""
        await self._assembly.drop(self._parts.pop(name), cancelled_fault(f"{name} is gone: {why}", "SERVER_REMOVED"))

    async def release(self, name: str, fault: Fault) -> None:
        """Stop a server here, if it is at work: another member of the fleet takes it over, with its resumable calls."""
        if (parts := self._parts.pop(name, None)) is not None:
            await self._assembly.release(parts, fault)

    def pass_on_link(self, name: str) -> None:
        """Give a server's current connection to all parts that send over it, and publish the server's record."""
        if (parts := self._parts.get(name)) is not None:
            self._assembly.pass_on_link(parts)
            self._publish(name)

    def _publish(self, name: str) -> None:
        """Publish a server's record with the current state of connection and queue, write-behind."""
        if (parts := self._parts.get(name)) is not None:
            before, parts.published = parts.published, parts.update_record()
            self._ledger.change_later(self._table, name, partial(carry_over_changes, before, parts.published))

    def notify_of_roots(self, parts: ServerParts) -> None:
        """Notify a connected server that its roots have changed."""
        link = parts.shell.link
        if (
            link is not None and link.hello.era is Era.HANDSHAKE
        ):  # a stateless server requests the roots whenever it needs them
            self.notify(parts.record.name, "notifications/roots/list_changed", {})

    def notify(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Send a notification in the background, if the server is connected."""
        parts = self._parts.get(server)
        if parts is not None and parts.shell.link is not None:
            self._background.start_soon(parts.shell.link.notify, method, params)

    async def close(self) -> None:
        """End all connections and calls at shutdown; whether servers are wanted stays as it is."""
        async with anyio.create_task_group() as tasks:
            for parts in list(self._parts.values()):
                tasks.start_soon(parts.shell.disconnect, SHUTTING_DOWN, End.SHUTTING_DOWN)
                tasks.start_soon(parts.queue.wait_idle)

    def _hasten_reconnects(self, _jumped_s: float) -> None:
        """Let all servers that wait for their next attempt reconnect at once, after the clock has jumped."""
        for parts in self._parts.values():  # the clock jumped, most likely as the computer was suspended
            parts.shell.hasten()

    def _follow_call(self, before: Call | None, after: Call | None) -> None:
        """Publish the record of a call's server soon, as its counts change; note a log level that the call has set."""
        if (call := after or before) is not None:
            self._publish_soon(call.server)
        if after is not None and after.method == LOG_LEVEL_METHOD:
            self._assembly.log_levels.note_call(after)

    def _publish_soon(self, name: str) -> None:
        """Publish a server's record SOON_S after the first of several changes (coalesced)."""
        if name in self._parts and name not in self._publishing_soon:
            self._publishing_soon.add(name)

            async def publish() -> None:
                """Publish the record, and let the next change start another wait."""
                self._publishing_soon.discard(name)
                self._publish(name)

            self._alarms.set_after(Due.COUNTS, name, SOON_S, publish)
