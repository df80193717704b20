"""The hub: its parts wired over a store and a connector, started, reconfigured and shut down in order."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import InitVar, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import structlog

from hubbubd.config import HubSettings, LoadedSettings, ServerConfig
from hubbubd.core.calls.call_faults import cancelled_fault
from hubbubd.core.calls.call_states import Call
from hubbubd.core.hosts.host_sessions import HostSession
from hubbubd.errors import Unavailable
from hubbubd.runtime.alarms import Alarms
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import (
    HOST,
    ApprovalGate,
    Calls,
    ClientTasks,
    open_people_queue,
    people_config,
)
from hubbubd.runtime.catalog import Catalog
from hubbubd.runtime.inbox import Inbox, Tasks, Work
from hubbubd.runtime.oversight import Audit, ConnectedHosts, HostSessions, Logins, Quotas, Retention, Tokens, Visitors
from hubbubd.runtime.ownership import Ownership, SoleOwnership, Takeover
from hubbubd.runtime.servers import MAX_NAMES, Configuration, EventFeed, LogLevels, Measures, Servers, Subscriptions
from hubbubd.runtime.wiring import (
    HubEnvironment,
    build_calls,
    build_catalog,
    build_configuration,
    build_events,
    build_inbox,
    build_retention,
    build_servers,
    build_tasks,
    build_work,
    load_tables,
)
from hubbubd.store import Store, StoreUnavailable
from hubbubd.telemetry import meter as metering
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.tracer import OFF, Tracer
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Connector

if TYPE_CHECKING:
    from hubbubd.runtime.fleet.member import FleetOwnership

log = structlog.get_logger(__name__)

SHUTDOWN_S = 15.0
"""Seconds connections get to close at shutdown; a stdio server gets about 5 s of it."""

DATABASE_PROBE_S = 10.0
"""Seconds between probes whether a database that others use as well can be written."""

DRAIN_NOTICE_S = 1.0
"""Seconds for which a member that ends reports in its health check that it takes no new calls, but still takes them.
Meanwhile callers that watch its health go to other members."""


@dataclass(kw_only=True, eq=False)
class Hub:
    """All that the API serves: servers, inbox, calls, tasks, catalog, and the oversight of who may use them."""

    env: InitVar[HubEnvironment]
    servers: Servers
    inbox: Inbox
    work: Work
    calls: Calls
    approvals: ApprovalGate
    tasks: Tasks
    events: EventFeed
    subscriptions: Subscriptions
    log_levels: LogLevels
    catalog: Catalog
    retention: Retention
    tokens: Tokens
    logins: Logins
    host_sessions: HostSessions
    visitors: Visitors
    audit: Audit
    quotas: Quotas
    configuration: Configuration

    def __post_init__(self, env: HubEnvironment) -> None:
        self.tracer, self.meter, self.clock = env.tracer, env.meter, env.clock
        self.telemetry_endpoint = env.telemetry_endpoint
        """Where traces, metrics or logs are exported; empty when nowhere."""
        self.ownership = env.ownership
        self.fleet: FleetOwnership | None = None
        self.ages = self.retention.ages
        self.hosts = ConnectedHosts(self.clock.now)
        self.started_at = self.clock.now()
        self._ledger = env.ledger
        self.store, self.health = env.ledger.store, env.ledger.health
        self._alarms = env.alarms
        self.grace_cut = anyio.Event()
        """Set to end the grace time of `drain` early."""
        self._grace_ends_at = 0.0  # monotonic seconds
        self.configuration.on_adopted(self._adopt)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: Store,
        connector: Connector,
        configured: Mapping[str, ServerConfig],
        settings: HubSettings,
        *,
        clock: Clock | None = None,
        tracer: Tracer = OFF,
        meter: Meter = metering.OFF,
        files: tuple[Path, ...] = (),
        load: Callable[[], LoadedSettings] | None = None,
        telemetry_endpoint: str = "",
        ownership: Ownership = SoleOwnership(),  # noqa: B008 - has no state
        fleet: "FleetOwnership | None" = None,
    ) -> AsyncGenerator["Hub"]:
        """Yield a running hub. It reconnects the wanted servers; at the end it closes connections, not the store.

        `clock` defaults to the system's time. The configuration came from `files`, and `load` reads it again; without
        `load` a reload changes nothing. `telemetry_endpoint` is only shown. A `fleet` takes the place of `ownership`.
        """
        ownership, clock = fleet or ownership, clock or Clock(asyncio.get_running_loop().time)
        ledger, tables = await load_tables(store, settings, meter, ownership, clock)
        async with aclosing(ledger), Background.open() as background:
            measures = Measures(
                meter=meter,
                ledger=ledger,
                clock=clock,
                servers=tables.servers,
                calls=tables.calls,
                requests=tables.requests,
                max_names=MAX_NAMES if settings.metrics_server_names else 0,
            )
            env = HubEnvironment(
                ledger=ledger,
                tables=tables,
                clock=clock,
                alarms=Alarms(clock, background),
                background=background,
                settings=settings,
                tracer=tracer,
                meter=meter,
                measures=measures,
                telemetry_endpoint=telemetry_endpoint,
                ownership=ownership,
            )
            loaded = LoadedSettings(hub=settings, servers=tuple(configured.values()), files=files)
            hub = cls._wire(env, connector, loaded, load or (lambda: loaded))
            if fleet is not None:
                fleet.join(ledger, tables.leases, hub.servers.candidates, hub, meter=meter, note=hub.audit.note)
                hub.fleet = fleet
            try:
                await hub._recover(configured, background)
                if meter.on:
                    background.start_soon(measures.run)
                yield hub
            finally:
                with anyio.CancelScope(shield=True):
                    await hub._wind_down()

    @classmethod
    def _wire(
        cls, env: HubEnvironment, connector: Connector, loaded: LoadedSettings, load: Callable[[], LoadedSettings]
    ) -> "Hub":
        """Construct the parts, and return the hub; a part gets what it needs of a later part as a function.

        Nothing runs yet. `load` reads the configuration again.
        """
        ledger, tables, clock = env.ledger, env.tables, env.clock
        quotas = Quotas(env.settings, clock.steady)
        audit = Audit(ledger, tables.audit, clock, env.settings)
        tokens = Tokens(ledger, tables.tokens, tables.newest_token, clock, max_tokens=env.settings.max_tokens)
        inbox = build_inbox(env, quotas, lambda name: people_config() if name == HOST else servers.config(name))
        catalog = build_catalog(env, lambda: servers.names_elsewhere())
        client_tasks = ClientTasks(ledger, tables.tasks, tables.calls, inbox, clock)
        calls = build_calls(env, quotas=quotas, catalog=catalog, inbox=inbox, client_tasks=client_tasks)
        tasks = build_tasks(env, inbox, client_tasks, lambda name, method, params: servers.notify(name, method, params))
        events, log_levels, subscriptions = build_events(env, calls)
        servers = build_servers(
            env,
            connector,
            inbox=inbox,
            calls=calls,
            tasks=tasks,
            catalog=catalog,
            events=events,
            subscriptions=subscriptions,
            log_levels=log_levels,
            audit=audit,
        )
        return cls(
            env=env,
            servers=servers,
            inbox=inbox,
            work=build_work(env, inbox),
            calls=calls,
            approvals=calls.gate,
            tasks=tasks,
            events=events,
            subscriptions=subscriptions,
            log_levels=log_levels,
            catalog=catalog,
            retention=build_retention(env, audit),
            tokens=tokens,
            logins=Logins(ledger, tables.codes, tables.login_decisions, tables.login_keys, tokens, clock),
            host_sessions=HostSessions(ledger, tables.host_sessions, tokens, env.background),
            visitors=Visitors(ledger, tables.login_codes, tables.visits, tokens, clock),
            audit=audit,
            quotas=quotas,
            configuration=build_configuration(env, loaded, load, servers, audit, events),
        )

    def defects(self) -> dict[str, str]:
        """Return what did not fit in records that were repaired or left out when the store was read, by record key."""
        return self._ledger.defects()

    async def is_record_current(self, noun: str, name: str) -> bool:
        """Return whether this hub has a record as the store has it. If not, this hub has the newer state on return.

        A record that neither hub nor store has is current. Raises Unavailable.
        """
        is_current = await self._ledger.is_record_current(noun, name)
        # Tokens are stored by id, not by name, so the store's answer does not concern this token. But the look at the
        # store has loaded the tokens that others have made: a token with this name is newer than what the caller saw.
        return is_current and not (noun == "token" and self.tokens.has_name(name))

    async def catch_up(self) -> None:
        """Apply all that other members have committed until now. Raises Unavailable."""
        await self._ledger.catch_up()

    async def find_call(self, call_id: str) -> Call:
        """Return a call, also one that another member has just made. Raises NotFound and Unavailable."""
        if not self.calls.has_call(call_id):
            await self.catch_up()
        return self.calls.get(call_id)

    async def find_host_session(self, record_id: str) -> HostSession | None:
        """Return a host's session, also one that another member has just started; None if there is none.

        Raises Unavailable.
        """
        if self.host_sessions.get(record_id) is None:
            await self.catch_up()
        return self.host_sessions.get(record_id)

    def watcher_count(self) -> int:
        """Return how many watches are open."""
        return self._ledger.watcher_limit.count

    def count_dropped_watch(self) -> None:
        """Count a watch that was ended because its client read nothing (backpressure)."""
        self._ledger.watcher_limit.note_drop()

    def end_watches(self) -> None:
        """End all watches, each with its last resume token; new ones end at once."""
        self.health.close()
        self._ledger.close_feeds()
        self.events.close()
        self.subscriptions.close()
        self.work.close()

    async def drain(self, grace_s: float | None = None) -> None:
        """Shut the API down in order: end the watches, refuse new calls, let calls finish, then end the rest.

        Calls under way have `grace_s` seconds (by default the current setting), or until `grace_cut` is set. Meanwhile
        the hub still accepts what these calls need, such as an answer. A call that takes longer is ended, and its
        caller is notified. A member of a fleet first hands its servers to other members, and takes calls of remote
        servers until its ports close.
        """
        if self.fleet is not None:
            async with cancel_on(self.grace_cut):
                with suppress(Unavailable, StoreUnavailable):  # without the database no server can be handed over
                    await self.fleet.drain()
        self.end_watches()
        if grace_s is None:
            grace_s = self.configuration.settings.shutdown_grace_s
        self._grace_ends_at = self.clock.steady() + grace_s
        async with cancel_on(self.grace_cut):
            with anyio.move_on_after(grace_s):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.calls.drain)
                    if self.calls.remote is not None:
                        tasks.start_soon(anyio.sleep, DRAIN_NOTICE_S)  # others still send calls here
        self.calls.shut_down()

    def remaining_grace_s(self) -> float:
        """Return the seconds left of the grace of `drain`; 0 before `drain`."""
        return max(0.0, self._grace_ends_at - self.clock.steady())

    async def _recover(self, configured: Mapping[str, ServerConfig], background: Background) -> None:
        """Load what must continue after a restart, start background loops, and take the servers over.

        In a fleet the member takes servers over later, by their leases. The order counts: calls are resumed last, once
        there are servers.
        """
        self.tokens.recover()
        self.host_sessions.recover()
        clock_moved_s = self.retention.recover()
        self.inbox.recover()
        self.inbox.deadlines.postpone(clock_moved_s)
        self.tasks.postpone(clock_moved_s)
        background.start_soon(self._ledger.run)
        if self.fleet is not None or self.configuration.settings.store.url:  # others may fill the database
            self.health.probe_interval_s = DATABASE_PROBE_S
        background.start_soon(self.health.run)
        background.start_soon(self.clock.run)
        background.start_soon(self.retention.run)
        if self.fleet is not None:
            background.start_soon(self.fleet.run)
        self.servers.set_configured(configured)
        self._serve_people(self.configuration.settings)
        if self.fleet is None:  # otherwise the fleet takes them over, one by one
            await self.take_over(Takeover(self.ownership.owns))
        if self.configuration.state.files:
            background.start_soon(self.configuration.watch_files)

    async def take_over(self, takeover: Takeover) -> None:
        """Connect these servers, and act on their requests, tasks and calls from now on.

        Requests, tasks and calls that cannot go on are ended, as `takeover` says. Raises Unavailable; then the takeover
        may be tried again.
        """
        await self.servers.refresh_secrets(takeover)
        # Read before any server connects: what a server asks from here on is not left over from its earlier hub.
        takeover = replace(takeover, requests=self.inbox.request_ids(takeover.owns))
        self.tasks.take_over(takeover)
        # Requests over a connection of this hub stay open: only those of servers not at work here are orphaned.
        orphaned = self.inbox.request_ids(lambda server: takeover.owns(server) and not self.servers.is_at_work(server))
        await self.inbox.take_over(replace(takeover, requests=orphaned))
        await self.servers.take_over(takeover)
        await self.calls.end_unresumed(takeover)

    async def hand_over(self, server: str, timeout_s: float) -> None:
        """Let a server's calls end within `timeout_s` seconds, then disconnect it and act on it no longer.

        New calls are refused meanwhile. Calls that take longer are ended. On return all changes are durable. Raises
        Unavailable.
        """
        with self.calls.refuse_calls(server):
            with anyio.move_on_after(timeout_s):
                await self.calls.drain_server(server)
            # Not MOVED, which says that nothing was carried out: a caller that gets MOVED sends its call again.
            fault = cancelled_fault(f"{server} was handed on to another member of the fleet", "OWNER_LOST")
            await self.servers.release(server, fault)
        if not await self._ledger.flush():
            raise Unavailable("the store cannot be written", reason="STORE_UNAVAILABLE")

    async def _wind_down(self) -> None:
        """End watches and alarms, close connections, write what waits for write-behind, and leave the fleet."""
        self.end_watches()
        with anyio.move_on_after(SHUTDOWN_S):
            await self.servers.close()
        self._alarms.close()
        self.inbox.store_views()
        self.ages.close()
        await self._ledger.flush()
        if self.fleet is not None:
            await self.fleet.quit()

    def _serve_people(self, settings: HubSettings) -> None:
        """Open the queue for questions of hosts to people, once a profile has tools for such questions.

        Never in a fleet. An open queue stays open when no profile has such tools any more.
        """
        has_people_tools = any(profile.people for profile in settings.mcp_profiles.values())
        if has_people_tools and self.fleet is None and not self.calls.has_queue(HOST):
            open_people_queue(self.calls)

    def _adopt(self, settings: HubSettings) -> None:
        """Apply changed settings that need no restart to each part."""
        self._serve_people(settings)
        self._ledger.watcher_limit.limit = settings.max_watchers
        self.inbox.max_open_per_server = settings.open_requests_per_server
        self.tasks.max_per_server = settings.receiver_tasks_per_server
        self.approvals.adopt(settings.approvals)
        self.tokens.max_tokens = settings.max_tokens
        self.quotas.adopt(settings)
        self.tracer.content = self.tracer.on and settings.trace_content
        self.audit.adopt(settings)
        self.retention.adopt(settings)
        self.catalog.notify_all()  # profiles may show something else


@asynccontextmanager
async def cancel_on(event: anyio.Event) -> AsyncGenerator[None]:
    """Cancel the block when an event is set; the code after the block goes on."""

    async def cancel_block() -> None:
        """Wait for the event, then cancel the block."""
        await event.wait()
        block.cancel_scope.cancel()

    async with anyio.create_task_group() as block:
        block.start_soon(cancel_block)
        yield
        block.cancel_scope.cancel()
