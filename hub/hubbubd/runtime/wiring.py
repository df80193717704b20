"""Constructors of the hub's parts, called by `Hub._wire`: which part gets which others."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hubbubd.config import HubSettings, LoadedSettings, ServerConfig
from hubbubd.errors import HubError, NotFound
from hubbubd.runtime.alarms import Alarms
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import (
    ApprovalGate,
    CallExchange,
    Calls,
    Causes,
    ClientTasks,
    Consents,
    LiveCalls,
    MultiRound,
    Orphans,
    RememberedApprovals,
    Resumption,
    SpanRecorder,
    TaskSupport,
)
from hubbubd.runtime.catalog import Catalog
from hubbubd.runtime.inbox import Authorizations, Inbox, Notify, Tasks, Work
from hubbubd.runtime.oversight import Ages, Audit, Quotas, Retention
from hubbubd.runtime.ownership import Ownership, owner_changing_error
from hubbubd.runtime.records import Ledger, StoreContent, WatcherLimit
from hubbubd.runtime.servers import (
    Assembly,
    Configuration,
    EventFeed,
    LogLevels,
    Measures,
    Servers,
    SpecSecrets,
    Subscriptions,
)
from hubbubd.runtime.tables import Tables
from hubbubd.store import Store
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.tracer import Tracer
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Connector


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEnvironment:
    """What the constructors of the hub's parts share: the store's tables, the clock, timers, settings and telemetry."""

    ledger: Ledger
    tables: Tables
    clock: Clock
    alarms: Alarms
    background: Background
    settings: HubSettings
    tracer: Tracer
    meter: Meter
    measures: Measures
    telemetry_endpoint: str
    ownership: Ownership


async def load_tables(
    store: Store, settings: HubSettings, meter: Meter, ownership: Ownership, clock: Clock
) -> tuple[Ledger, Tables]:
    """Load the store into tables; return the ledger, which commits their changes, and the tables. Raises StoreError."""
    watcher_limit = WatcherLimit(settings.max_watchers)
    stored = await StoreContent.read(store, watcher_limit)
    tables = Tables(stored, ownership)
    return Ledger(store, tables.all(), stored, meter, now=clock.now, shared=bool(ownership.me)), tables


def build_catalog(env: HubEnvironment, remote_servers: Callable[[], Collection[str]]) -> Catalog:
    """Return the catalog; `remote_servers` returns the names of the servers that other members have."""
    tables = env.tables
    return Catalog(
        env.ledger,
        tables.lists,
        tables.entries,
        env.clock,
        env.background,
        remote_servers=remote_servers,
    )


def build_retention(env: HubEnvironment, audit: Audit) -> Retention:
    """Return the part that deletes ended records when they are old enough, with the `Ages` that tell their age."""
    tables = env.tables
    return Retention(
        env.ledger,
        env.clock,
        env.settings,
        servers=tables.servers,
        calls=tables.calls,
        requests=tables.requests,
        tasks=tables.tasks,
        ages=Ages(env.ledger, tables.upkeep, env.clock, env.ownership),
        audit=audit,
        ownership=env.ownership,
    )


def build_events(env: HubEnvironment, calls: Calls) -> tuple[EventFeed, LogLevels, Subscriptions]:
    """Return the parts that handle what servers notify of: events, log levels, and watched resources."""
    limit = env.ledger.watcher_limit
    return (
        EventFeed(env.clock, limit),
        LogLevels(env.background),
        Subscriptions(calls, env.clock, env.background, limit),
    )


def build_work(env: HubEnvironment, inbox: Inbox) -> Work:
    """Return the dispatcher that assigns open requests of the inbox to workers."""
    return Work(
        inbox=inbox,
        table=env.tables.requests,
        clock=env.clock,
        alarms=env.alarms,
        background=env.background,
        watcher_limit=env.ledger.watcher_limit,
        in_fleet=bool(env.ownership.me),
    )


def build_servers(
    env: HubEnvironment,
    connector: Connector,
    *,
    inbox: Inbox,
    calls: Calls,
    tasks: Tasks,
    catalog: Catalog,
    events: EventFeed,
    subscriptions: Subscriptions,
    log_levels: LogLevels,
    audit: Audit,
) -> Servers:
    """Return the registry of servers, with the factory of their parts."""
    assembly = Assembly(
        connector=connector,
        inbox=inbox,
        calls=calls,
        tasks=tasks,
        client_tasks=calls.exchange.client_tasks,
        consents=calls.exchange.consents,
        authorizations=Authorizations(inbox),
        catalog=catalog,
        events=events,
        subscriptions=subscriptions,
        log_levels=log_levels,
        measures=env.measures,
        audit=audit,
        clock=env.clock,
        background=env.background,
        may_act=env.ownership.may_act,
        me=env.ownership.me,
    )
    return Servers(
        ledger=env.ledger,
        table=env.tables.servers,
        calls=env.tables.calls,
        assembly=assembly,
        secrets=SpecSecrets(connector),
        audit=audit,
        clock=env.clock,
        alarms=env.alarms,
        background=env.background,
        settings=env.settings,
        ownership=env.ownership,
    )


def build_inbox(env: HubEnvironment, quotas: Quotas, config: Callable[[str], ServerConfig]) -> Inbox:
    """Return the inbox. `config` returns a server's options; NotFound if it was removed while requests are open."""

    def timeout_message(server: str) -> str:
        """Return the text that a server gets if nobody answers its question in time; a default if it was removed."""
        try:
            return config(server).timeout_message
        except NotFound:
            return "Nobody answered in time"

    def max_open_bytes(server: str) -> int:
        """Return the most bytes that a server's open requests may have; 0 if the server was removed."""
        try:
            return config(server).max_open_request_bytes
        except NotFound:
            return 0

    return Inbox(
        ledger=env.ledger,
        table=env.tables.requests,
        views=env.tables.request_views,
        clock=env.clock,
        alarms=env.alarms,
        timeout_message=timeout_message,
        max_open_per_server=env.settings.open_requests_per_server,
        max_open_bytes=max_open_bytes,
        claims=quotas.claims,
        ownership=env.ownership,
    )


def build_gate(env: HubEnvironment, inbox: Inbox, catalog: Catalog) -> ApprovalGate:
    """Return the gate that has people approve calls, with the approvals that it remembers."""
    remembered = RememberedApprovals(env.ledger, env.tables.approvals, env.clock)
    return ApprovalGate(
        settings=env.settings.approvals,
        inbox=inbox,
        calls=env.tables.calls,
        catalog=catalog,
        remembered=remembered,
        clock=env.clock,
    )


def build_calls(
    env: HubEnvironment, *, quotas: Quotas, catalog: Catalog, inbox: Inbox, client_tasks: ClientTasks
) -> Calls:
    """Return the registry of calls, with the parts that send them and that resume them after a restart."""
    ledger, tables, clock = env.ledger, env.tables, env.clock
    gate = build_gate(env, inbox, catalog)
    consents = Consents(rounds := MultiRound(inbox, tables.calls, clock), clock)

    def missing_queue_error(server: str) -> HubError:
        """Return the error for a call to a server without a queue here.

        In a fleet a server with a record has no owner at the moment; a server without one does not exist.
        """
        has_record = tables.servers.record(server) is not None
        return owner_changing_error(server) if has_record and env.ownership.me else NotFound("server", server)

    resumption, support = Resumption(gate, rounds, consents, client_tasks), TaskSupport(catalog)
    spans = SpanRecorder(env.tracer, ledger, tables.calls, tables.requests, tables.tasks)
    live = LiveCalls(tables.calls)
    exchange = CallExchange(
        ledger=ledger,
        table=tables.calls,
        live=live,
        clock=clock,
        gate=gate,
        rounds=rounds,
        consents=consents,
        client_tasks=client_tasks,
        resumption=resumption,
        support=support,
        orphans=Orphans(tables.tasks, env.background),
        spans=spans,
        causes=Causes(
            ledger=ledger,
            calls=tables.calls,
            requests=tables.requests,
            inbox=inbox,
            clock=clock,
            alarms=env.alarms,
        ),
    )
    return Calls(
        ledger=ledger,
        table=tables.calls,
        live=live,
        clock=clock,
        background=env.background,
        exchange=exchange,
        resumption=resumption,
        support=support,
        gate=gate,
        quota=quotas.calls,
        spans=spans,
        missing_queue_error=missing_queue_error,
        durable_if_named=bool(env.ownership.me),
    )


def build_tasks(env: HubEnvironment, inbox: Inbox, client_tasks: ClientTasks, notify: Notify) -> Tasks:
    """Return the registry of tasks, in both roles; `notify` sends a notification to a server."""
    return Tasks(
        ledger=env.ledger,
        table=env.tables.tasks,
        inbox=inbox,
        clock=env.clock,
        alarms=env.alarms,
        notify=notify,
        cancel_client=client_tasks.cancel,
        max_per_server=env.settings.receiver_tasks_per_server,
        ownership=env.ownership,
    )


def build_configuration(
    env: HubEnvironment,
    loaded: LoadedSettings,
    load: Callable[[], LoadedSettings],
    servers: Servers,
    audit: Audit,
    events: EventFeed,
) -> Configuration:
    """Return the configuration, which `load` reads again for a reload."""
    return Configuration(
        settings=loaded,
        load=load,
        servers=servers,
        clock=env.clock,
        audit=audit,
        events=events,
        background=env.background,
    )
