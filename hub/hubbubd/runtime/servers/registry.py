"""The registry of servers: those of files and of the API, wanted or not. Changes of one server are serialized."""

import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import InitVar, dataclass, replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple
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
from hubbubd.runtime.servers.config import revisions
from hubbubd.runtime.servers.config.confinement import ConfinementCheck
from hubbubd.runtime.servers.config.record import ServerDiff, lasting_roots, new_record, without_connection
from hubbubd.runtime.servers.config.secrets import SpecSecrets
from hubbubd.runtime.servers.parts import Assembly, ServerParts
from hubbubd.store import WriteConflict
from hubbubd.timing.clock import Clock

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
P = ParamSpec("P")

log = structlog.get_logger(__name__)


def _exclusively(
    change: Callable[Concatenate["Servers", str, P], Awaitable[R]],
) -> Callable[Concatenate["Servers", str, P], Coroutine[Any, Any, R]]:
    """Decorate a method of `Servers` whose first argument is a server's name: run it by `Servers.run_exclusively`."""

    @wraps(change)
    async def run_exclusively(servers: "Servers", name: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the method once other changes of the server are done."""
        return await servers.run_exclusively(name, partial(change, servers, name, *args, **kwargs))

    return run_exclusively


@dataclass(kw_only=True, eq=False, repr=False)
class Servers:
    """All servers: those at work here (`_active`), and in a fleet those of other members, or of no member."""

    ledger: Ledger
    table: Table[ServerRecord]
    calls: InitVar[Table[Call]]
    assembly: Assembly
    secrets: SpecSecrets
    audit: Audit
    clock: InitVar[Clock]
    alarms: InitVar[Alarms]
    background: Background
    settings: InitVar[HubSettings]
    ownership: Ownership

    def __post_init__(self, calls: Table[Call], clock: Clock, alarms: Alarms, settings: HubSettings) -> None:
        self._confinement_check = ConfinementCheck(settings, self.ownership.me)
        self._configured: Mapping[str, ServerConfig] = {}
        self._active = ActiveServers(
            ledger=self.ledger,
            table=self.table,
            calls=calls,
            assembly=self.assembly,
            clock=clock,
            alarms=alarms,
            background=self.background,
            find_confinement=self._confinement_check.find_confinement,
        )
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def get(self, name: str) -> ServerRecord:
        """Return a server's record. Raises NotFound."""
        if (record := self.find(name)) is None:
            raise NotFound("server", name)
        return record

    def find(self, name: str) -> ServerRecord | None:
        """Return a server's record; None if there is no such server (any more)."""
        parts = self._active.get(name)
        if parts is not None:
            return replace(parts.record, counts=parts.queue.counts())
        # Without a fleet all servers are at work here: any other record is left over from a removal.
        return self.table.record(name) if self.ownership.me else None

    def config(self, name: str) -> ServerConfig:
        """Return a server's configuration. Raises NotFound."""
        if (parts := self._active.get(name)) is not None:
            return parts.record.config  # without counting its calls
        return self.get(name).config

    def protocol_version(self, name: str) -> str | None:
        """Return the revision of MCP that a server used last; None if that is not known."""
        if (parts := self._active.get(name)) is not None:
            return parts.record.protocol_version
        return record.protocol_version if (record := self.find(name)) is not None else None

    def all(self) -> list[ServerRecord]:
        """Return all servers, by name."""
        return [self.get(name) for name in self.names()]

    def names(self) -> list[str]:
        """Return the names of all servers, sorted."""
        return sorted({*self._active, *self.names_elsewhere()})

    def names_elsewhere(self) -> list[str]:
        """Return the names of the servers that other members of a fleet have, or no member yet; unsorted."""
        return [each.name for each in self.table if each.name not in self._active] if self.ownership.me else []

    def watch(self, chosen: ServerFilter, token: str = "") -> Watch[ServerRecord]:
        """Watch the servers: snapshot, then changes. A resume `token` continues an earlier watch."""
        return self.table.feed.watch(chosen, token)

    def set_configured(self, configured: Mapping[str, ServerConfig]) -> None:
        """Set the servers of the files, by name, and warn of missing commands. `take_over` starts the servers."""
        self._confinement_check.warn_of_missing_commands()
        self._configured = configured

    @property
    def candidates(self) -> CandidateServers:
        """The servers that this member of a fleet may take, and after which other members."""
        return CandidateServers(
            table=self.table,
            active=self._active,
            confinement_check=self._confinement_check,
            configured=lambda: self._configured,
            ownership=self.ownership,
            is_at_work=self.is_at_work,
        )

    async def refresh_secrets(self, takeover: Takeover) -> None:
        """Read the secrets again of servers that another member of the fleet has had. Raises Unavailable."""
        if not takeover.is_only_hub:
            await self.secrets.refresh(self._owned_names(takeover))

    def _owned_names(self, takeover: Takeover) -> list[str]:
        """Return the names of the servers that this hub takes over: those added over the API, then those of files."""
        added = [record.name for record in self.table if record.name not in self._configured]
        return list(filter(takeover.owns, (*added, *self._configured)))

    async def take_over(self, takeover: Takeover) -> None:
        """Start the servers of a takeover, those of files and of the API, and connect those that are wanted."""
        for name in self._owned_names(takeover):
            # Not in the background: calls that go on read their answers before any answer may be deleted.
            async with self._lock_for(name):
                if takeover.owns(name):  # it may have gone to another member meanwhile
                    await self._take_over_one(name)
        await self.ledger.flush()  # so that the first snapshot of a watch is whole

    async def _take_over_one(self, name: str) -> None:
        """Start a server that is taken over; without a fleet, forget a server of a file that is in no file any more."""
        record = self.table.record(name)
        if name in self._active:
            return  # started by an earlier attempt, which failed later
        if (config := self._configured.get(name)) is not None:
            await self._apply_configured(config)
        elif record is not None and record.source == "file":
            if not self.ownership.me:  # the file of another member may still have it
                await self._forget(record)
        elif record is not None:
            config = await self.secrets.add_secrets(record)
            home = record.home or self.ownership.me
            record = replace(record, config=config, connection=ServerConnection(), pid=None, home=home)
            await self._active.start_new(record)

    async def release(self, name: str, fault: Fault) -> None:
        """Stop a server that another member of the fleet takes over; its calls end here, and some are resumed there."""
        await self.run_exclusively(name, self._active.release, name, fault)

    def is_at_work(self, server: str) -> bool:
        """Return whether a server is at work here, or is being changed, when it may be missing for a moment."""
        return server in self._active or ((lock := self._locks.get(server)) is not None and lock.locked())

    async def adopt(self, configured: Mapping[str, ServerConfig], settings: HubSettings) -> ServerDiff:
        """Apply reloaded files and live settings; return which servers changed. Raises Unavailable: then repeat it."""
        await self._apply_settings(settings)
        self._configured = configured
        owned = {name: config for name, config in configured.items() if self.ownership.owns(name)}
        stored = [record for record in self.table if record.source == "file" and self.ownership.owns(record.name)]
        diff = ServerDiff(
            added=tuple(name for name in owned if name not in self._active),
            changed=tuple(name for name, config in owned.items() if self._differs(config)),
            # In a fleet such a server goes to a member whose files still have it.
            removed=() if self.ownership.me else tuple(each.name for each in stored if each.name not in configured),
        )
        errors: list[HubError] = []

        async def apply_one(name: str) -> None:
            """Apply a server of the files, or remove one that is in no file; add an error to `errors`."""
            try:
                if name in configured:
                    await self.run_exclusively(name, self._reapply_configured, configured[name])
                else:
                    await self.run_exclusively(name, self._remove_configured, name)
            except HubError as exc:
                errors.append(exc)

        async with anyio.create_task_group() as tasks:
            for name in (*diff.removed, *diff.changed, *diff.added):
                tasks.start_soon(apply_one, name)
        if errors:
            raise errors[0]
        return diff

    async def add(self, config: ServerConfig, *, trusted: bool = False) -> ServerRecord:
        """Add a server and start connecting; `trusted` if the owner of the hub's machine adds it.

        Raises AlreadyExists, InvalidArgument, PermissionDenied, ResourceExhausted and Unavailable.
        """
        self._confinement_check.confinement_if(trusted).check(config, os.environ)
        return await self.run_exclusively(config.name, self._add_locked, config, trusted)

    @_exclusively
    async def change(
        self,
        name: str,
        edit: Callable[[ServerConfig], ServerConfig],
        *,
        expected: int | None = None,
        decide_trust: Callable[[bool], bool] = lambda _: False,
    ) -> ServerRecord:
        """Change a server's configuration, and reconnect where needed. `edit` returns the new one for the old.

        `decide_trust` gets whether the server was trusted, and returns whether it is trusted from now on; by default it
        is not. The settings must allow what an untrusted server does. `expected` is the revision that the server must
        have (optimistic concurrency). Raises NotFound, FailedPrecondition, StaleRevision, what `edit` raises, and as
        `add`.
        """
        before = self._find_changeable(name, expected)
        config = edit(before.config).with_unknown(before.config.unknown)
        was_trusted = self._confinement_check.trusts(before)
        is_trusted = decide_trust(was_trusted)
        home = self.ownership.me if is_trusted else before.home
        self._confinement_check.confinement_if(is_trusted).check(config, os.environ)
        roots = lasting_roots(before, config)
        revision = revisions.next_revision(self.table.feed.revision, before)
        await self.secrets.store(config)
        try:
            changes = {"config": config, "fingerprint": config.fingerprint, "roots": roots, "trusted": is_trusted}
            await self._change_record(name, revision=revision, home=home, bound=False, **changes)
        except HubError as exc:
            await self.secrets.restore(name, before.config, exc)
            raise
        record = new_record(config, "api", wanted=before.wanted, revision=revision, trusted=is_trusted, home=home)
        reconnects = is_trusted is not was_trusted and config.url is not None  # the server may reach other hosts now
        why = "its configuration was changed"
        await self._active.match_record(replace(record, roots=roots), why, reconnects=reconnects)
        return self.get(name)

    @_exclusively
    async def remove(self, name: str, *, expected: int | None = None) -> None:
        """Disconnect and forget a server. Raises NotFound, FailedPrecondition and StaleRevision."""
        if name not in self._active and self.ownership.is_free(name):
            record = revisions.require_revision(self.get(name), expected)  # no member of the fleet can have it
        else:
            record = self._find_changeable(name, expected)
            await self._active.drop(name, "it was removed")
        await self._forget(record)

    @_exclusively
    async def connect(self, name: str) -> ServerRecord:
        """Note that a server is wanted, and start to connect it; return before it is connected. Raises NotFound."""
        self._require_parts(name)
        await self._change_record(name, wanted=True)
        self._active[name].shell.connect()
        return self.get(name)

    @_exclusively
    async def disconnect(self, name: str) -> ServerRecord:
        """Note that a server is not wanted, disconnect it, and end its receiver tasks. Raises NotFound."""
        self._require_parts(name)
        await self._change_record(name, wanted=False)
        await self._active[name].shell.disconnect(cancelled_fault(f"{name} was disconnected", "SERVER_DISCONNECTED"))
        await self.assembly.end_receiver_tasks(name)
        return self.get(name)

    @_exclusively
    async def log_out(self, name: str) -> ServerRecord:
        """Forget a server's tokens and registered client, and connect it again. Raises NotFound, FailedPrecondition."""
        record = without_connection(self._require_parts(name).record)
        if record.config.transport == "stdio":
            raise FailedPrecondition(f"{name} is a process of the hub's; nobody logs in there")
        await self._active.reconnect(record, "its log-in was forgotten", self.assembly.forget_login)
        return self.get(name)

    @_exclusively
    async def set_roots(self, name: str, roots: Roots | None, *, expected: int | None = None) -> ServerRecord:
        """Override the roots of a server (None: as configured), and notify it. Raises NotFound and StaleRevision."""
        self._require_parts(name)
        before = revisions.require_revision(self.get(name), expected)
        revision = revisions.next_revision(self.table.feed.revision, before)
        await self._change_record(name, roots=roots, revision=revision)
        parts = self._active[name]
        parts.queue.adopt(parts.record.effective_config)
        self._active.notify_of_roots(parts)
        return self.get(name)

    async def run_exclusively(self, name: str, change: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
        """Run `change` with the server's lock, once earlier changes are done; it goes on if the caller is cancelled."""

        async def run_locked() -> R:
            """Make the change while the server's lock is held."""
            async with self._lock_for(name):
                return await change(*args)

        return await self.background.run_shielded(run_locked)

    def _lock_for(self, name: str) -> anyio.Lock:
        """Return the lock of a server. The same lock is returned as long as any task uses it."""
        return self._locks.setdefault(name, anyio.Lock(fast_acquire=True))

    async def _add_locked(self, config: ServerConfig, trusted: bool) -> ServerRecord:
        """Store a new server, and start it if it is this hub's own. The caller holds its lock. Raises as `add`."""
        if self.find(config.name) is not None:
            raise revisions.exists_error(config.name)
        if len(self.names()) >= (limit := self._confinement_check.settings.max_servers):
            raise ResourceExhausted(f"at most {limit} servers", reason="TOO_MANY_SERVERS")
        revision = revisions.next_revision(self.table.feed.revision)
        record = new_record(config, "api", wanted=True, revision=revision, trusted=trusted, home=self.ownership.me)
        # Not `table.new`: a removal that the store refused may have left a record.
        added = self.table.change(record.name, record)
        await self.secrets.store(config)
        try:
            await self.ledger.commit([added])
        except WriteConflict:
            raise revisions.exists_error(config.name) from None
        except HubError as exc:
            await self.secrets.restore(config.name, None, exc)
            raise
        if self.ownership.owns(config.name):  # otherwise the member that takes it starts it
            self._active.start(record)
        return self.get(config.name)

    def _differs(self, config: ServerConfig) -> bool:
        """Return whether the server at work under this name has another configuration, or was added over the API."""
        parts = self._active.get(config.name)
        return parts is not None and (parts.record.source == "api" or parts.record.config != config)

    async def _apply_configured(self, config: ServerConfig) -> None:
        """Apply a server of the files: it replaces any server of its name, also one that was added over the API."""
        name, before = config.name, self.table.record(config.name)
        if name not in self._active and before is not None and before.fingerprint != config.fingerprint:
            await self.assembly.forget_peer(name)  # another server had this name
        if before is not None and before.source == "api":
            log.warning("server of the API replaced by one of a configuration file", server=name)
            self.audit.note("TakeOverServer", name)
            await self.secrets.drop(name)
        wanted = before.wanted if before is not None else True
        roots = lasting_roots(before, config) if before is not None else None
        record = replace(new_record(config, "file", wanted=wanted), roots=roots)
        newest = self.table.feed.revision
        differs = self._differs(config)
        revision = (
            revisions.next_revision(newest, before) if differs else revisions.file_revision(before, record, newest)
        )
        await self._active.match_record(replace(record, revision=revision), "its configuration was changed")

    async def _reapply_configured(self, config: ServerConfig) -> None:
        """Apply a server of reloaded files; in a fleet, a server that is not at work here is left to a takeover."""
        if config.name in self._active or not self.ownership.me:
            await self._apply_configured(config)

    async def _remove_configured(self, name: str) -> None:
        """Remove a server that is no longer in any file; do nothing if it has been added over the API meanwhile."""
        record = self.table.record(name)
        if record is None or record.source != "file":
            return
        if name in self._active:
            await self._active.drop(name, "it is in no configuration file any more")
        await self._forget(record)

    async def _apply_settings(self, settings: HubSettings) -> None:
        """Apply the settings; reconnect the servers of the API that may be confined otherwise now."""
        if changed := self._confinement_check.adopt(settings):
            for name in self._active:
                await self.run_exclusively(name, self._apply_confinement, name, changed)

    async def _apply_confinement(self, name: str, changed: frozenset[str]) -> None:
        """Reconnect a server of the API, whose lock is held, if the `changed` settings may affect it."""
        parts = self._active.get(name)
        if parts is None or parts.record.source != "api":
            return
        if self._confinement_check.may_affect(parts.record, parts.shell.confinement, changed):
            record = without_connection(parts.record)
            await self._active.match_record(record, "what it may do was changed", reconnects=True)
        else:
            parts.shell.confinement = self._confinement_check.find_confinement(parts.record)

    async def _change_record(self, name: str, **changes: Any) -> None:
        """Change a record durably. Raises NotFound, Unavailable; StaleRevision if another change was first."""
        before = self.get(name)
        await self.ledger.change(self.table, name, partial(revisions.with_changes, before, changes))
        parts = self._active[name]
        parts.record, parts.published = (replace(each, **changes) for each in (parts.record, parts.published or before))

    def _require_parts(self, name: str) -> ServerParts:
        """Return the parts of a server of this hub's own. Raises NotFound, and Unavailable (OWNER_CHANGING)."""
        if (parts := self._active.get(name)) is None:
            self.get(name)  # raises NotFound
            raise owner_changing_error(name)
        return parts

    def _find_changeable(self, name: str, expected: int | None) -> ServerRecord:
        """Return a server's record if the API may change it. Raises as `change`, and Unavailable."""
        self._require_parts(name)
        record = self.get(name)
        if record.source == "file":
            raise FailedPrecondition(
                f"{name} comes from a configuration file; change it there", reason="SERVER_READ_ONLY"
            )
        return revisions.require_revision(record, expected)

    def notify(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Send a notification in the background, if the server is connected."""
        self._active.notify(server, method, params)

    async def close(self) -> None:
        """End all connections and calls at shutdown; whether servers are wanted stays as it is."""
        await self._active.close()

    async def _forget(self, record: ServerRecord) -> None:
        """Delete all that the hub has of a server: tasks, lists, tokens, secrets and its record. Raises Unavailable."""
        self.assembly.forget(record.name)
        await self.assembly.forget_peer(record.name)
        await self.ledger.change(self.table, record.name, delete)
        await self.secrets.drop(record.name)
