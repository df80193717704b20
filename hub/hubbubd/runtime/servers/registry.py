"""The registry of servers: those of files and of the API, wanted or not, with their parts.

Changes of one server are serialized and run to their end even if the caller is cancelled.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import anyio
import structlog

from hubbubd.clock import Clock
from hubbubd.config import Confinement, HubSettings, ServerConfig
from hubbubd.config.hub import CONFINING
from hubbubd.config.mcp import PROFILES
from hubbubd.config.options import needs_connection
from hubbubd.config.server import Roots
from hubbubd.core.call_faults import SHUTTING_DOWN, cancelled
from hubbubd.core.calls import Call
from hubbubd.core.connection import Connection
from hubbubd.core.filters import ServerFilter
from hubbubd.core.server import ServerRecord
from hubbubd.errors import FailedPrecondition, Fault, HubError, NotFound, ResourceExhausted
from hubbubd.frozen import carried_over
from hubbubd.runtime.alarms import Alarms, Due
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import End, ServerQueue
from hubbubd.runtime.oversight import Audit
from hubbubd.runtime.ownership import Ownership, Taking
from hubbubd.runtime.records import Ledger, Table, Watch, gone
from hubbubd.runtime.servers.configured import lasting_roots, new_record
from hubbubd.runtime.servers.parts import Assembly, ServerParts
from hubbubd.runtime.servers.revisions import changed, exists, expect, following, kept_revision
from hubbubd.runtime.servers.server_secrets import SpecSecrets
from hubbubd.store import Conflict
from hubbubd.upstream.ports import Era

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger(__name__)

CONNECTED = ("connection", "protocol_version", "server_info", "capabilities", "instructions", "pid")
"""Fields of a record that its connection sets."""

COUNTS_S = 0.5
"""Seconds for which changes of a server's call counts are coalesced into one update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDiff:
    """Names of the servers that a reload added, changed and removed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Servers:
    """All servers."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        table: Table[ServerRecord],
        calls: Table[Call],
        assembly: Assembly,
        secrets: SpecSecrets,
        audit: Audit,
        clock: Clock,
        alarms: Alarms,
        background: Background,
        settings: HubSettings,
        ownership: Ownership,
    ) -> None:
        self._ledger = ledger
        self._table = table
        self._assembly = assembly
        self._secrets = secrets
        self._audit = audit
        self._alarms = alarms
        self._background = background
        self._settings = settings
        self._confinement = Confinement.of(settings, os.environ)
        self._ownership = ownership
        self._configured: Mapping[str, ServerConfig] = {}
        self._kept: dict[str, ServerParts] = {}
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._counting: set[str] = set()
        calls.follow(self._follow_call)
        clock.follow(self._hasten)

    # Reading

    def get(self, name: str) -> ServerRecord:
        """Return a server's record. Raises NotFound."""
        if (record := self.find(name)) is None:
            raise NotFound("server", name)
        return record

    def find(self, name: str) -> ServerRecord | None:
        """Return a server's record; None if there is no such server, or no more: its lists may outlast it."""
        kept = self._kept.get(name)
        if kept is not None:
            return replace(kept.record, counts=kept.queue.counts())
        return None if self._ownership.owns(name) else self._table.record(name)

    def protocol_version(self, name: str) -> str | None:
        """Return the revision that a server spoke last; None if that is not known."""
        if (kept := self._kept.get(name)) is not None:
            return kept.record.protocol_version
        return record.protocol_version if (record := self.find(name)) is not None else None

    def all(self) -> list[ServerRecord]:
        """Return all servers, by name."""
        return [self.get(name) for name in self.names()]

    def names(self) -> list[str]:
        """Return the names of all servers, sorted."""
        return sorted({*self._kept, *self.elsewhere()})

    def elsewhere(self) -> list[str]:
        """Return the names of the servers that are not this hub's own, in no particular order."""
        return [record.name for record in self._table if not self._ownership.owns(record.name)]

    def watch(self, chosen: ServerFilter, token: str = "") -> Watch[ServerRecord]:
        """Watch the servers: snapshot, then changes; `token` resumes."""
        return self._table.feed.watch(chosen, token)

    # Changing

    def start(self, configured: Mapping[str, ServerConfig]) -> None:
        """Note the servers of the files."""
        self._warn_of_missing_commands()
        self._configured = configured

    async def take(self, taking: Taking) -> None:
        """Load these servers: those of the files, and of the API those with other names; connect the wanted ones."""
        added = [record.name for record in self._table if record.name not in self._configured]
        for name in filter(taking.owns, (*added, *self._configured)):
            async with self._turn(name):  # at once: calls that go on read their answers before any may be deleted
                await self._take(name)
        await self._ledger.flush()  # so that the first snapshot of a watch is whole

    async def _take(self, name: str) -> None:
        record = self._table.record(name)
        if (config := self._configured.get(name)) is not None:
            await self._take_up(config)
        elif record is not None and record.source == "file":
            await self._forget(record)
        elif record is not None:
            config = await self._secrets.complete(record)
            self._keep(replace(record, config=config, connection=Connection(), pid=None))

    async def leave(self, name: str, fault: Fault) -> None:
        """Let go of a server that another member will have; its calls end, but for those that go on there."""
        await self._one_at_a_time(name, self._leave, (name, fault))

    async def _leave(self, about: tuple[str, Fault]) -> None:
        name, fault = about
        if (kept := self._kept.pop(name, None)) is not None:
            await self._assembly.leave(kept, fault)

    async def adopt(self, configured: Mapping[str, ServerConfig], settings: HubSettings) -> ServerDiff:
        """Apply the servers of reloaded files and the live settings. Unchanged servers are not touched.

        Raises Unavailable when some could not be applied; then it must be repeated.
        """
        await self._confine(settings)
        self._configured = configured
        own = {name: config for name, config in configured.items() if self._ownership.owns(name)}
        left = [record for record in self._table if record.source == "file" and self._ownership.owns(record.name)]
        diff = ServerDiff(
            added=tuple(name for name in own if name not in self._kept),
            changed=tuple(name for name, config in own.items() if self._differs(config)),
            removed=tuple(record.name for record in left if record.name not in configured),
        )
        troubles: list[HubError] = []

        async def turn(name: str) -> None:
            try:
                if name in configured:
                    await self._one_at_a_time(name, self._take_up, configured[name])
                else:
                    await self._one_at_a_time(name, self._let_go, name)
            except HubError as exc:
                troubles.append(exc)

        async with anyio.create_task_group() as together:
            for name in (*diff.removed, *diff.changed, *diff.added):
                together.start_soon(turn, name)
        if troubles:
            raise troubles[0]
        return diff

    async def add(self, config: ServerConfig, *, trusted: bool = False) -> ServerRecord:
        """Add a server and start connecting; `trusted` if the owner of the hub's machine adds it.

        Raises AlreadyExists, InvalidArgument, PermissionDenied, ResourceExhausted and Unavailable.
        """
        self._confinement.trusting(trusted).check(config, os.environ)
        return await self._one_at_a_time(config.name, self._add, (config, trusted))

    async def change(
        self,
        name: str,
        how: Callable[[ServerConfig], ServerConfig],
        *,
        expected: int | None = None,
        trusted: Callable[[bool], bool] = lambda _: False,
    ) -> ServerRecord:
        """Change a server's configuration, and reconnect where needed. `how` maps the current one to the new one.

        `trusted` maps whether it was trusted to whether it is; by default it is no more, so it must be allowed anew.
        With `expected` the change is guarded by that revision (optimistic concurrency). Raises NotFound,
        FailedPrecondition, Stale, what `how` raises, and as `add`.
        """
        return await self._one_at_a_time(name, self._update, (name, how, expected, trusted))

    async def remove(self, name: str, *, expected: int | None = None) -> None:
        """Disconnect and forget a server. Raises NotFound, FailedPrecondition and Stale."""
        await self._one_at_a_time(name, self._remove, (name, expected))

    async def connect(self, name: str) -> ServerRecord:
        """Want a server connected; returns at once. Raises NotFound."""
        return await self._one_at_a_time(name, self._connect, name)

    async def disconnect(self, name: str) -> ServerRecord:
        """Want a server disconnected, and wait for it; ends its receiver tasks, too. Raises NotFound."""
        return await self._one_at_a_time(name, self._disconnect, name)

    async def set_roots(self, name: str, roots: Roots | None, *, expected: int | None = None) -> ServerRecord:
        """Override the roots of a server (None: as configured), and notify it. Raises NotFound and Stale."""
        return await self._one_at_a_time(name, self._set_roots, (name, roots, expected))

    async def _one_at_a_time(self, name: str, change: Callable[[T], Awaitable[R]], about: T) -> R:
        """Serialize changes of a server; run each to its end even if the caller is cancelled."""

        async def in_turn() -> R:
            async with self._turn(name):
                return await change(about)

        return await self._background.finish(in_turn)

    def _turn(self, name: str) -> anyio.Lock:
        return self._turns.setdefault(name, anyio.Lock(fast_acquire=True))

    async def _add(self, about: tuple[ServerConfig, bool]) -> ServerRecord:
        config, trusted = about
        if config.name in self._kept:
            raise exists(config.name)
        if len(self._kept) >= self._settings.max_servers:
            raise ResourceExhausted(f"at most {self._settings.max_servers} servers", reason="TOO_MANY_SERVERS")
        revision = following(self._table.feed.revision)
        record = new_record(config, "api", wanted=True, revision=revision, trusted=trusted)
        added = self._table.change(record.name, record)  # over what a removal left that the store refused
        await self._secrets.keep(config)
        try:
            await self._ledger.commit([added])
        except Conflict:
            raise exists(config.name) from None
        except HubError:
            await self._secrets.drop(config.name)
            raise
        self._keep(record)
        return self.get(config.name)

    async def _update(
        self, about: tuple[str, Callable[[ServerConfig], ServerConfig], int | None, Callable[[bool], bool]]
    ) -> ServerRecord:
        name, how, expected, trust = about
        before = self._changeable(name, expected)
        config = how(before.config)
        trusted = trust(before.trusted)
        self._confinement.trusting(trusted).check(config, os.environ)
        roots = lasting_roots(before, config)
        revision = following(self._table.feed.revision, before)
        await self._secrets.keep(config)
        try:
            changes = {"config": config, "fingerprint": config.fingerprint, "roots": roots, "trusted": trusted}
            await self._write(name, revision=revision, **changes)
        except HubError:
            await self._secrets.keep(before.config)
            raise
        record = new_record(config, "api", wanted=before.wanted, revision=revision, trusted=trusted)
        moved = trusted is not before.trusted and config.url is not None  # other hosts may be reached
        await self._become(replace(record, roots=roots), "its configuration was changed", anew=moved)
        return self.get(name)

    async def _remove(self, about: tuple[str, int | None]) -> None:
        name, expected = about
        record = self._changeable(name, expected)
        await self._drop(name, "it was removed")
        await self._forget(record)

    def _differs(self, config: ServerConfig) -> bool:
        """Return whether a server of the files exists with another configuration or from the API."""
        kept = self._kept.get(config.name)
        return kept is not None and (kept.record.source == "api" or kept.record.config != config)

    async def _take_up(self, config: ServerConfig) -> None:
        """Apply a server of the files, whatever had its name before."""
        name, before = config.name, self._table.record(config.name)
        if name not in self._kept and before is not None and before.fingerprint != config.fingerprint:
            await self._assembly.forget_peer(name)
        if before is not None and before.source == "api":
            log.warning("server of the API replaced by one of a configuration file", server=name)
            self._audit.note("TakeOverServer", name)
            await self._secrets.drop(name)
        wanted = before.wanted if before is not None else True
        roots = lasting_roots(before, config) if before is not None else None
        record = replace(new_record(config, "file", wanted=wanted), roots=roots)
        newest = self._table.feed.revision
        revision = following(newest, before) if self._differs(config) else kept_revision(before, record, newest)
        await self._become(replace(record, revision=revision), "its configuration was changed")

    async def _let_go(self, name: str) -> None:
        """Remove a server that is no longer in any file."""
        record = self._table.record(name)
        if record is None or record.source != "file":
            return
        if name in self._kept:
            await self._drop(name, "it is in no configuration file any more")
        await self._forget(record)

    async def _confine(self, settings: HubSettings) -> None:
        """Apply the settings; servers of the API are checked again if their confinement changed."""
        before, self._settings = self._settings, settings
        changed = {name for name in CONFINING if getattr(before, name) != getattr(settings, name)}
        if not changed:
            return
        if changed <= {PROFILES}:  # only names: what was found of commands stays
            self._confinement = replace(self._confinement, hub=settings)
        else:
            self._confinement = Confinement.of(settings, os.environ)
        self._warn_of_missing_commands()
        for name, kept in list(self._kept.items()):
            if kept.record.source == "api":
                await self._one_at_a_time(name, self._confine_anew, (name, changed))

    async def _confine_anew(self, about: tuple[str, set[str]]) -> None:
        """Reconnect if the new policy changes what this server may reach or run."""
        name, changed = about
        kept = self._kept.get(name)
        if kept is None or kept.record.source != "api":
            return
        known, before = kept.record, kept.shell.confinement
        config, now = known.config, self._confinement.trusting(known.trusted)
        rules = {"allow_hosts", "deny_hosts", *(("trust_local",) if known.trusted else ())}
        moved = config.url is not None and changed & rules
        if before and not moved and before.refusal(config, os.environ) == now.refusal(config, os.environ):
            kept.shell.confinement = now
            return
        record = new_record(config, "api", wanted=known.wanted, revision=known.revision, trusted=known.trusted)
        await self._become(replace(record, roots=known.roots), "what it may do was changed", anew=True)

    def _warn_of_missing_commands(self) -> None:
        for command in self._confinement.commands.missing:
            log.warning("allowed command not found or not executable", command=command)

    async def _connect(self, name: str) -> ServerRecord:
        await self._write(name, wanted=True)
        self._kept[name].shell.connect()
        return self.get(name)

    async def _disconnect(self, name: str) -> ServerRecord:
        await self._write(name, wanted=False)
        await self._kept[name].shell.disconnect(cancelled(f"{name} was disconnected", "SERVER_DISCONNECTED"))
        await self._assembly.end_tasks(name)
        return self.get(name)

    async def _set_roots(self, change: tuple[str, Roots | None, int | None]) -> ServerRecord:
        name, roots, expected = change
        before = expect(self.get(name), expected)
        await self._write(name, roots=roots, revision=following(self._table.feed.revision, before))
        kept = self._kept[name]
        kept.queue.adopt(kept.record.effective)
        self._tell_roots(kept)
        return self.get(name)

    def _tell_roots(self, kept: ServerParts) -> None:
        link = kept.shell.link
        if link is not None and link.hello.era is Era.HANDSHAKE:  # a stateless server asks whenever it needs them
            self.notify(kept.record.name, "notifications/roots/list_changed", {})

    async def close(self) -> None:
        """End all connections and calls at shutdown; whether servers are wanted stays as it is."""
        async with anyio.create_task_group() as together:
            for kept in list(self._kept.values()):
                together.start_soon(kept.shell.disconnect, SHUTTING_DOWN, End.SHUTTING_DOWN)
                together.start_soon(kept.queue.wait_idle)

    def notify(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Send a notification in the background, if the server is connected."""
        kept = self._kept.get(server)
        if kept is not None and kept.shell.link is not None:
            self._background.start_soon(kept.shell.link.notify, method, params)

    async def _write(self, name: str, **changes: Any) -> None:
        """Make a change of a server's record durable. Raises NotFound, Unavailable; Stale if it was reconfigured."""
        before = self.get(name)
        await self._ledger.change(self._table, name, partial(changed, before, changes))
        kept = self._kept[name]
        kept.record, kept.shown = (replace(each, **changes) for each in (kept.record, kept.shown or before))

    def _changeable(self, name: str, expected: int | None) -> ServerRecord:
        record = self.get(name)
        if record.source == "file":
            raise FailedPrecondition(
                f"{name} comes from a configuration file; change it there", reason="SERVER_READ_ONLY"
            )
        return expect(record, expected)

    def _keep(self, record: ServerRecord, queue: ServerQueue | None = None) -> None:
        name = record.name
        confined = self._confinement.trusting(record.trusted) if record.source == "api" else None
        shown = self._table.record(name)
        kept = self._kept[name] = self._assembly.make(record, confined, lambda: self._show(name), queue, shown)
        self._show(name)
        self._background.start_soon(kept.run)
        if record.wanted:
            kept.shell.connect()

    async def _become(self, record: ServerRecord, why: str, *, anew: bool = False) -> None:
        """Make a server match its record, and replace no more of it than necessary.

        Another server under the name inherits nothing. The same one (by fingerprint) keeps its queue, pending requests
        and tasks, and its connection unless connection options changed or `anew` is set.
        """
        kept = self._kept.get(record.name)
        if kept is None or kept.shell.config.fingerprint != record.fingerprint:
            if kept is not None:
                await self._drop(record.name, why)
                await self._assembly.forget_peer(record.name)
            self._keep(record)
        elif anew or kept.record.source != record.source or needs_connection(kept.shell.config, record.config):
            del self._kept[record.name]
            fault = cancelled(f"{record.name} is connected anew: {why}", "SERVER_REMOVED")
            self._keep(record, await self._assembly.let_go(kept, fault))
        else:
            told = kept.queue.config.roots
            connection = {each: getattr(kept.record, each) for each in CONNECTED}
            self._assembly.adopt(kept, replace(record, **connection))
            self._show(record.name)
            if record.effective.roots != told:
                self._tell_roots(kept)

    async def _drop(self, name: str, why: str) -> None:
        await self._assembly.drop(self._kept.pop(name), cancelled(f"{name} is gone: {why}", "SERVER_REMOVED"))

    async def _forget(self, record: ServerRecord) -> None:
        self._assembly.forget(record.name)
        await self._assembly.forget_peer(record.name)
        await self._ledger.change(self._table, record.name, gone)
        await self._secrets.drop(record.name)

    def _show(self, name: str) -> None:
        """Publish a server's record with the current state of connection and queue."""
        if (kept := self._kept.get(name)) is not None:
            self._assembly.follow(kept)
            before, kept.shown = kept.shown, kept.seen()
            self._ledger.later(self._table, name, partial(carried_over, before, kept.shown))

    def _hasten(self, _by_s: float) -> None:
        for kept in self._kept.values():  # the clock jumped, most likely as the computer was suspended
            kept.shell.hasten()

    def _follow_call(self, before: Call | None, after: Call | None) -> None:
        """Publish a server's counts COUNTS_S after the first of several changes of its calls (coalesced)."""
        call = after or before
        if call is not None and call.server in self._kept and call.server not in self._counting:
            self._counting.add(call.server)
            name = call.server

            async def count() -> None:
                self._counting.discard(name)
                self._show(name)

            self._alarms.after(Due.COUNTS, name, COUNTS_S, count)
