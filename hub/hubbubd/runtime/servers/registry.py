"""The registry of servers: those of files and of the API, wanted or not, with their parts.

Changes of one server are serialized and run to their end even if the caller is cancelled.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import anyio
import structlog

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.servers.server import Roots
from hubbubd.core.calls.call_faults import cancelled_fault
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import ServerFilter
from hubbubd.core.servers.connection_states import ServerConnection
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import FailedPrecondition, Fault, HubError, NotFound, ResourceExhausted
from hubbubd.runtime.alarms import Alarms
from hubbubd.runtime.background import Background
from hubbubd.runtime.oversight import Audit
from hubbubd.runtime.ownership import Ownership, Takeover, owner_changing_error
from hubbubd.runtime.records import Ledger, Table, Watch, delete
from hubbubd.runtime.servers.active_servers import ActiveServers
from hubbubd.runtime.servers.candidates import CandidateServers
from hubbubd.runtime.servers.config.confinement import ConfinementCheck
from hubbubd.runtime.servers.config.record import ServerDiff, afresh, lasting_roots, new_record
from hubbubd.runtime.servers.config.revisions import changed, exists, expect, following, kept_revision
from hubbubd.runtime.servers.config.secrets import SpecSecrets
from hubbubd.runtime.servers.parts import Assembly, ServerParts
from hubbubd.store import WriteConflict
from hubbubd.timing.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger(__name__)


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
        self._background = background
        self._confining = ConfinementCheck(settings, ownership.me)
        self._ownership = ownership
        self._configured: Mapping[str, ServerConfig] = {}
        self._running = ActiveServers(
            ledger=ledger,
            table=table,
            calls=calls,
            assembly=assembly,
            clock=clock,
            alarms=alarms,
            background=background,
            confined=self._confining.of,
        )
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    # Reading

    def get(self, name: str) -> ServerRecord:
        """Return a server's record. Raises NotFound."""
        if (record := self.find(name)) is None:
            raise NotFound("server", name)
        return record

    def find(self, name: str) -> ServerRecord | None:
        """Return a server's record; None if there is no such server, or no more: its lists may outlast it."""
        kept = self._running.get(name)
        if kept is not None:
            return replace(kept.record, counts=kept.queue.counts())
        return self._table.record(name) if self._ownership.me else None

    def config(self, name: str) -> ServerConfig:
        """Return a server's configuration. Raises NotFound."""
        if (kept := self._running.get(name)) is not None:
            return kept.record.config  # without counting its calls
        return self.get(name).config

    def protocol_version(self, name: str) -> str | None:
        """Return the revision that a server spoke last; None if that is not known."""
        if (kept := self._running.get(name)) is not None:
            return kept.record.protocol_version
        return record.protocol_version if (record := self.find(name)) is not None else None

    def all(self) -> list[ServerRecord]:
        """Return all servers, by name."""
        return [self.get(name) for name in self.names()]

    def names(self) -> list[str]:
        """Return the names of all servers, sorted."""
        return sorted({*self._running, *self.elsewhere()})

    def elsewhere(self) -> list[str]:
        """Return the names of the servers that other members of a fleet have, or none yet, in no particular order."""
        return [each.name for each in self._table if each.name not in self._running] if self._ownership.me else []

    def watch(self, chosen: ServerFilter, token: str = "") -> Watch[ServerRecord]:
        """Watch the servers: snapshot, then changes; `token` resumes."""
        return self._table.feed.watch(chosen, token)

    # Changing

    def start(self, configured: Mapping[str, ServerConfig]) -> None:
        """Note the servers of the files."""
        self._confining.warn()
        self._configured = configured

    @property
    def candidates(self) -> CandidateServers:
        """Which of them this member of a fleet may have."""
        return CandidateServers(
            table=self._table,
            running=self._running,
            confining=self._confining,
            configured=lambda: self._configured,
            ownership=self._ownership,
            is_at_work=self.is_at_work,
        )

    async def refresh(self, taking: Takeover) -> None:
        """Read anew the secrets of servers that another member has had. Raises Unavailable."""
        if not taking.alone:
            await self._secrets.refresh(self._of(taking))

    def _of(self, taking: Takeover) -> list[str]:
        added = [record.name for record in self._table if record.name not in self._configured]
        return list(filter(taking.owns, (*added, *self._configured)))

    async def take(self, taking: Takeover) -> None:
        """Load these servers: those of the files, and of the API those with other names; connect the wanted ones."""
        for name in self._of(taking):
            async with self._turn(name):  # at once: calls that go on read their answers before any may be deleted
                if taking.owns(name):  # still, after it has waited
                    await self._take(name)
        await self._ledger.flush()  # so that the first snapshot of a watch is whole

    async def _take(self, name: str) -> None:
        record = self._table.record(name)
        if name in self._running:
            return  # since it was tried before, and failed half way
        if (config := self._configured.get(name)) is not None:
            await self._take_up(config)
        elif record is not None and record.source == "file":
            if not self._ownership.me:  # the file of another member may still have it
                await self._forget(record)
        elif record is not None:
            config = await self._secrets.complete(record)
            home = record.home or self._ownership.me
            await self._running.take(replace(record, config=config, connection=ServerConnection(), pid=None, home=home))

    async def leave(self, name: str, fault: Fault) -> None:
        """Let go of a server that another member will have; its calls end, but for those that go on there."""
        await self._one_at_a_time(name, self._leave, (name, fault))

    async def _leave(self, about: tuple[str, Fault]) -> None:
        await self._running.leave(*about)

    def is_at_work(self, server: str) -> bool:
        """Return whether a server is at work here, or is being changed: then it may be away for a moment."""
        return server in self._running or ((turn := self._turns.get(server)) is not None and turn.locked())

    async def adopt(self, configured: Mapping[str, ServerConfig], settings: HubSettings) -> ServerDiff:
        """Apply the servers of reloaded files and the live settings. Unchanged servers are not touched.

        Raises Unavailable when some could not be applied; then it must be repeated.
        """
        await self._confine(settings)
        self._configured = configured
        own = {name: config for name, config in configured.items() if self._ownership.owns(name)}
        left = [record for record in self._table if record.source == "file" and self._ownership.owns(record.name)]
        diff = ServerDiff(
            added=tuple(name for name in own if name not in self._running),
            changed=tuple(name for name, config in own.items() if self._differs(config)),
            # In a fleet such a server goes to a member whose files still have it.
            removed=() if self._ownership.me else tuple(each.name for each in left if each.name not in configured),
        )
        troubles: list[HubError] = []

        async def turn(name: str) -> None:
            try:
                if name in configured:
                    await self._one_at_a_time(name, self._renew, configured[name])
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
        self._confining.trusting(trusted).check(config, os.environ)
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

    async def log_out(self, name: str) -> ServerRecord:
        """Forget a server's tokens and registered client, and connect it again. Raises NotFound, FailedPrecondition."""
        return await self._one_at_a_time(name, self._log_out, name)

    async def set_roots(self, name: str, roots: Roots | None, *, expected: int | None = None) -> ServerRecord:
        """Override the roots of a server (None: as configured), and notify it. Raises NotFound and Stale."""
        return await self._one_at_a_time(name, self._set_roots, (name, roots, expected))

    async def _one_at_a_time(self, name: str, change: Callable[[T], Awaitable[R]], about: T) -> R:
        """Serialize changes of a server; run each to its end even if the caller is cancelled."""

        async def in_turn() -> R:
            async with self._turn(name):
                return await change(about)

        return await self._background.run_shielded(in_turn)

    def _turn(self, name: str) -> anyio.Lock:
        return self._turns.setdefault(name, anyio.Lock(fast_acquire=True))

    async def _add(self, about: tuple[ServerConfig, bool]) -> ServerRecord:
        config, trusted = about
        if self.find(config.name) is not None:
            raise exists(config.name)
        if len(self.names()) >= self._confining.settings.max_servers:
            raise ResourceExhausted(
                f"at most {self._confining.settings.max_servers} servers", reason="TOO_MANY_SERVERS"
            )
        revision = following(self._table.feed.revision)
        record = new_record(config, "api", wanted=True, revision=revision, trusted=trusted, home=self._ownership.me)
        added = self._table.change(record.name, record)  # over what a removal left that the store refused
        await self._secrets.keep(config)
        try:
            await self._ledger.commit([added])
        except WriteConflict:
            raise exists(config.name) from None
        except HubError as exc:
            await self._secrets.undo(config.name, None, exc)
            raise
        if self._ownership.owns(config.name):  # otherwise whoever gets it puts it to work
            self._running.keep(record)
        return self.get(config.name)

    async def _update(
        self, about: tuple[str, Callable[[ServerConfig], ServerConfig], int | None, Callable[[bool], bool]]
    ) -> ServerRecord:
        name, how, expected, trust = about
        before = self._changeable(name, expected)
        config = how(before.config).with_unknown(before.config.unknown)
        held = self._confining.trusts(before)
        trusted = trust(held)
        home = self._ownership.me if trusted else before.home
        self._confining.trusting(trusted).check(config, os.environ)
        roots = lasting_roots(before, config)
        revision = following(self._table.feed.revision, before)
        await self._secrets.keep(config)
        try:
            changes = {"config": config, "fingerprint": config.fingerprint, "roots": roots, "trusted": trusted}
            await self._write(name, revision=revision, home=home, bound=False, **changes)
        except HubError as exc:
            await self._secrets.undo(name, before.config, exc)
            raise
        record = new_record(config, "api", wanted=before.wanted, revision=revision, trusted=trusted, home=home)
        moved = trusted is not held and config.url is not None  # other hosts may be reached
        await self._running.become(replace(record, roots=roots), "its configuration was changed", anew=moved)
        return self.get(name)

    async def _remove(self, about: tuple[str, int | None]) -> None:
        name, expected = about
        if name not in self._running and self._ownership.is_free(name):
            record = expect(self.get(name), expected)  # no member of the fleet can have it
        else:
            record = self._changeable(name, expected)
            await self._running.drop(name, "it was removed")
        await self._forget(record)

    def _differs(self, config: ServerConfig) -> bool:
        """Return whether a server of the files exists with another configuration or from the API."""
        kept = self._running.get(config.name)
        return kept is not None and (kept.record.source == "api" or kept.record.config != config)

    async def _take_up(self, config: ServerConfig) -> None:
        """Apply a server of the files, whatever had its name before."""
        name, before = config.name, self._table.record(config.name)
        if name not in self._running and before is not None and before.fingerprint != config.fingerprint:
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
        await self._running.become(replace(record, revision=revision), "its configuration was changed")

    async def _renew(self, config: ServerConfig) -> None:
        """Apply a server of reloaded files; in a fleet one that is not at work is put to work by being taken."""
        if config.name in self._running or not self._ownership.me:
            await self._take_up(config)

    async def _let_go(self, name: str) -> None:
        """Remove a server that is no longer in any file."""
        record = self._table.record(name)
        if record is None or record.source != "file":
            return
        if name in self._running:
            await self._running.drop(name, "it is in no configuration file any more")
        await self._forget(record)

    async def _confine(self, settings: HubSettings) -> None:
        """Apply the settings; servers of the API are connected anew if they may do something else now."""
        if changed := self._confining.adopt(settings):
            for name in self._running:
                await self._one_at_a_time(name, self._confine_anew, (name, changed))

    async def _confine_anew(self, about: tuple[str, frozenset[str]]) -> None:
        name, changed = about
        kept = self._running.get(name)
        if kept is None or kept.record.source != "api":
            return
        if self._confining.concerns(kept.record, kept.shell.confinement, changed):
            await self._running.become(afresh(kept.record), "what it may do was changed", anew=True)
        else:
            kept.shell.confinement = self._confining.of(kept.record)

    async def _connect(self, name: str) -> ServerRecord:
        self._own(name)
        await self._write(name, wanted=True)
        self._running[name].shell.connect()
        return self.get(name)

    async def _disconnect(self, name: str) -> ServerRecord:
        self._own(name)
        await self._write(name, wanted=False)
        await self._running[name].shell.disconnect(cancelled_fault(f"{name} was disconnected", "SERVER_DISCONNECTED"))
        await self._assembly.end_tasks(name)
        return self.get(name)

    async def _log_out(self, name: str) -> ServerRecord:
        record = self._own(name).record
        if record.config.transport == "stdio":
            raise FailedPrecondition(f"{name} is a process of the hub's; nobody logs in there")
        await self._running.connect_anew(afresh(record), "its log-in was forgotten", self._assembly.forget_login)
        return self.get(name)

    async def _set_roots(self, change: tuple[str, Roots | None, int | None]) -> ServerRecord:
        name, roots, expected = change
        self._own(name)
        before = expect(self.get(name), expected)
        await self._write(name, roots=roots, revision=following(self._table.feed.revision, before))
        kept = self._running[name]
        kept.queue.adopt(kept.record.effective_config)
        self._running.tell_roots(kept)
        return self.get(name)

    async def _write(self, name: str, **changes: Any) -> None:
        """Make a change of a server's record durable. Raises NotFound, Unavailable; Stale if it was reconfigured."""
        before = self.get(name)
        await self._ledger.change(self._table, name, partial(changed, before, changes))
        kept = self._running[name]
        kept.record, kept.shown = (replace(each, **changes) for each in (kept.record, kept.shown or before))

    def _own(self, name: str) -> ServerParts:
        """Return the parts of a server of this hub's own. Raises NotFound, and Unavailable (OWNER_CHANGING)."""
        if (kept := self._running.get(name)) is None:
            self.get(name)
            raise owner_changing_error(name)
        return kept

    def _changeable(self, name: str, expected: int | None) -> ServerRecord:
        self._own(name)
        record = self.get(name)
        if record.source == "file":
            raise FailedPrecondition(
                f"{name} comes from a configuration file; change it there", reason="SERVER_READ_ONLY"
            )
        return expect(record, expected)

    def notify(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Send a notification in the background, if the server is connected."""
        self._running.notify(server, method, params)

    async def close(self) -> None:
        """End all connections and calls at shutdown; whether servers are wanted stays as it is."""
        await self._running.close()

    async def _forget(self, record: ServerRecord) -> None:
        self._assembly.forget(record.name)
        await self._assembly.forget_peer(record.name)
        await self._ledger.change(self._table, record.name, delete)
        await self._secrets.drop(record.name)
