"""Constructors of the hub's parts, called by `Hub._wire`: which part gets which others."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hubbubd.config import HubSettings, LoadedSettings, ServerConfig
from hubbubd.errors import HubError, NotFound
from hubbubd.runtime.alarms import Alarms
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import (
    CallExchange,
    Calls,
    Causes,
    ClientTasks,
    Consents,
    LiveCalls,
    MultiRound,
    Orphans,
    Resumption,
    SpanRecorder,
    TaskSupport,
)
from hubbubd.runtime.catalog import Catalog
from hubbubd.runtime.inbox import Authorizations, Inbox, Notify, Tasks, Work
from hubbubd.runtime.oversight import Ages, Audit, Quotas, Retention, Tokens
from hubbubd.runtime.ownership import Ownership, owner_changing_error
from hubbubd.runtime.records import Ledger, Stored, WatcherLimit
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
class Ground:
    """What all parts of the hub are built on."""

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


async def load_tables(store: Store, settings: HubSettings, meter: Meter, ownership: Ownership) -> tuple[Ledger, Tables]:
    """Load the store into tables, and return them with the ledger that keeps them."""
    watcher_limit = WatcherLimit(settings.max_watchers)
    stored = await Stored.read(store, watcher_limit)
    tables = Tables(stored, ownership)
    return Ledger(store, tables.all(), stored, meter), tables


def catalog_of(ground: Ground, remote_servers: Callable[[], Collection[str]]) -> Catalog:
    tables = ground.tables
    return Catalog(
        ground.ledger, tables.lists, tables.entries, ground.clock, ground.background, remote_servers=remote_servers
    )


def retention_of(ground: Ground, audit: Audit) -> Retention:
    tables = ground.tables
    return Retention(
        ground.ledger,
        ground.clock,
        ground.settings,
        servers=tables.servers,
        calls=tables.calls,
        requests=tables.requests,
        tasks=tables.tasks,
        ages=Ages(ground.ledger, tables.upkeep, ground.clock, ground.ownership),
        audit=audit,
        ownership=ground.ownership,
    )


def tokens_of(ground: Ground) -> Tokens:
    tables = ground.tables
    return Tokens(ground.ledger, tables.tokens, tables.minted, ground.clock, max_tokens=ground.settings.max_tokens)


def work_of(ground: Ground, inbox: Inbox) -> Work:
    return Work(
        inbox=inbox,
        table=ground.tables.requests,
        clock=ground.clock,
        alarms=ground.alarms,
        background=ground.background,
        watcher_limit=ground.ledger.watcher_limit,
        in_fleet=bool(ground.ownership.me),
    )


def servers_of(
    ground: Ground,
    connector: Connector,
    *,
    inbox: Inbox,
    calls: Calls,
    tasks: Tasks,
    client_tasks: ClientTasks,
    consents: Consents,
    catalog: Catalog,
    events: EventFeed,
    subscriptions: Subscriptions,
    log_levels: LogLevels,
    audit: Audit,
) -> Servers:
    assembly = Assembly(
        connector=connector,
        inbox=inbox,
        calls=calls,
        tasks=tasks,
        client_tasks=client_tasks,
        consents=consents,
        authorizations=Authorizations(inbox),
        catalog=catalog,
        events=events,
        subscriptions=subscriptions,
        log_levels=log_levels,
        measures=ground.measures,
        audit=audit,
        clock=ground.clock,
        background=ground.background,
        may_act=ground.ownership.may_act,
        me=ground.ownership.me,
    )
    return Servers(
        ledger=ground.ledger,
        table=ground.tables.servers,
        calls=ground.tables.calls,
        assembly=assembly,
        secrets=SpecSecrets(connector),
        audit=audit,
        clock=ground.clock,
        alarms=ground.alarms,
        background=ground.background,
        settings=ground.settings,
        ownership=ground.ownership,
    )


def inbox_of(ground: Ground, quotas: Quotas, config: Callable[[str], ServerConfig]) -> Inbox:
    """Return the inbox. A server may be removed while its requests are open: then `config` raises NotFound."""

    def timeout_message(server: str) -> str:
        try:
            return config(server).timeout_message
        except NotFound:
            return "Nobody answered in time"

    def max_open_bytes(server: str) -> int:
        try:
            return config(server).max_open_request_bytes
        except NotFound:
            return 0

    return Inbox(
        ledger=ground.ledger,
        table=ground.tables.requests,
        shown=ground.tables.shown,
        clock=ground.clock,
        alarms=ground.alarms,
        timeout_message=timeout_message,
        max_open_per_server=ground.settings.open_requests_per_server,
        max_open_bytes=max_open_bytes,
        claims=quotas.claims,
        ownership=ground.ownership,
    )


def calls_of(
    ground: Ground,
    *,
    quotas: Quotas,
    catalog: Catalog,
    inbox: Inbox,
    rounds: MultiRound,
    consents: Consents,
    client_tasks: ClientTasks,
) -> Calls:
    ledger, tables, clock = ground.ledger, ground.tables, ground.clock

    def missing_queue_error(server: str) -> HubError:
        known = tables.servers.record(server) is not None
        return owner_changing_error(server) if known and ground.ownership.me else NotFound("server", server)

    resumption, support = Resumption(rounds, consents, client_tasks), TaskSupport(catalog)
    spans = SpanRecorder(ground.tracer, ledger, tables.calls, tables.requests, tables.tasks)
    live = LiveCalls(tables.calls)
    exchange = CallExchange(
        ledger=ledger,
        table=tables.calls,
        live=live,
        clock=clock,
        rounds=rounds,
        consents=consents,
        client_tasks=client_tasks,
        resumption=resumption,
        support=support,
        orphans=Orphans(tables.tasks, ground.background),
        spans=spans,
        causes=Causes(
            ledger=ledger,
            calls=tables.calls,
            requests=tables.requests,
            inbox=inbox,
            clock=clock,
            alarms=ground.alarms,
        ),
    )
    return Calls(
        ledger=ledger,
        table=tables.calls,
        live=live,
        clock=clock,
        background=ground.background,
        exchange=exchange,
        resumption=resumption,
        support=support,
        quota=quotas.calls,
        spans=spans,
        missing_queue_error=missing_queue_error,
        durable_if_named=bool(ground.ownership.me),
    )


def tasks_of(ground: Ground, inbox: Inbox, client_tasks: ClientTasks, notify: Notify) -> Tasks:
    return Tasks(
        ledger=ground.ledger,
        table=ground.tables.tasks,
        inbox=inbox,
        clock=ground.clock,
        alarms=ground.alarms,
        notify=notify,
        cancel_client=client_tasks.cancel,
        max_per_server=ground.settings.receiver_tasks_per_server,
        ownership=ground.ownership,
    )


def configuration_of(
    ground: Ground,
    *,
    loaded: LoadedSettings,
    load: Callable[[], LoadedSettings],
    servers: Servers,
    audit: Audit,
    events: EventFeed,
) -> Configuration:
    return Configuration(
        settings=loaded,
        load=load,
        servers=servers,
        clock=ground.clock,
        audit=audit,
        events=events,
        background=ground.background,
    )
