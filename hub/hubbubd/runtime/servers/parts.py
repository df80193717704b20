"""The parts of one server (record, queue, connection, catalog), and the factory that makes them."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from urllib.parse import urlsplit

import anyio
import structlog

from hubbubd import payload
from hubbubd.config import Confinement
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import Fault, Unavailable
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import Calls, ClientTasks, Consents, End, ServerQueue
from hubbubd.runtime.catalog import Catalog, ServerCatalog
from hubbubd.runtime.inbox import Authorizations, Inbox, ReceiverTasks, Tasks
from hubbubd.runtime.oversight import Audit
from hubbubd.runtime.servers.connections.inbound import ServerInbound
from hubbubd.runtime.servers.connections.shell import ConnectionShell, ConnectLimits
from hubbubd.runtime.servers.events import EventFeed
from hubbubd.runtime.servers.log_levels import LogLevels
from hubbubd.runtime.servers.measures import Measures
from hubbubd.runtime.servers.notes import ServerNotes
from hubbubd.runtime.servers.subscriptions import Subscriptions
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Connector

NEEDS_TRUST = frozenset({"HOST_NOT_ALLOWED", "VARIABLE_NOT_ALLOWED"})
"""Codes of faults of servers that need trust: often only an attempt to connect shows that they do."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ServerParts:
    """What the hub has at run time for one server. `published` is its record as the table has it.

    `is_away_from_home` says that another member of the fleet is its home: the trust of that machine's owner does not
    count here.
    """

    record: ServerRecord
    queue: ServerQueue
    shell: ConnectionShell
    catalog: ServerCatalog
    notes: ServerNotes
    _: KW_ONLY
    published: ServerRecord | None
    is_away_from_home: bool
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def run(self) -> None:
        """Run the connection until the server is dropped."""
        with self.scope:
            await self.shell.run()

    def update_record(self) -> ServerRecord:
        """Bring the record up to date with connection, queue and notes, and return it.

        If this member refuses a server whose home is another member, it binds the server to that home.
        """
        hello = self.shell.hello
        self.record = replace(
            self.record,
            connection=self.shell.connection,
            protocol_version=hello.protocol_version if hello else None,
            server_info=payload.dumps(hello.server_info) if hello else None,
            capabilities=payload.dumps(hello.capabilities) if hello else None,
            instructions=hello.instructions if hello else None,
            pid=hello.pid if hello and self.shell.link else None,
            counts=self.queue.counts(),
            notes=self.notes.texts,
        )
        if self.is_away_from_home and self.record.trusted and not self.record.bound and self._is_refused():
            log.warning("server goes home for good: it is refused here", server=self.record.name, home=self.record.home)
            self.record = replace(self.record, bound=True)
        return self.record

    def _is_refused(self) -> bool:
        """Return whether this member refuses the server's configuration, and not just a host to which it redirects."""
        fault, url = self.shell.connection.fault, self.record.config.url
        if fault is None or fault.code not in NEEDS_TRUST:
            return False
        return "host" not in fault.details or (url is not None and fault.details["host"] == urlsplit(url).hostname)


@dataclass(kw_only=True, eq=False, repr=False)
class Assembly:
    """Factory of ServerParts: holds what all servers share, and dismantles the parts again.

    `me` is this member's name; empty without a fleet.
    """

    connector: Connector
    inbox: Inbox
    calls: Calls
    tasks: Tasks
    client_tasks: ClientTasks
    consents: Consents
    authorizations: Authorizations
    catalog: Catalog
    events: EventFeed
    subscriptions: Subscriptions
    log_levels: LogLevels
    measures: Measures
    audit: Audit
    clock: Clock
    background: Background
    may_act: Callable[[], bool]
    me: str

    def __post_init__(self) -> None:
        self._connect_limits = ConnectLimits()

    def make(
        self,
        record: ServerRecord,
        confinement: Confinement | None,
        on_change: Callable[[], None],
        notes: ServerNotes,
        *,
        queue: ServerQueue | None,
        published: ServerRecord | None,
    ) -> ServerParts:
        """Make a server's parts, and open its catalog, log and, without a `queue`, its queue.

        `queue` is that of the server's last connection; `published` is its record in the table, if any.
        """
        config = record.config
        if queue is None:
            queue = self.calls.open_queue(record.effective_config)
        else:
            queue.adopt(record.effective_config)
        catalog = self.catalog.open(config, notes.note)
        self.events.open_log(config.name)
        inbound = ServerInbound(
            name=config.name,
            queue=queue,
            inbox=self.inbox,
            tasks=self.tasks,
            client_tasks=self.client_tasks,
            consents=self.consents,
            receiver=ReceiverTasks(queue, self.tasks, self.inbox, self.clock),
            clock=self.clock,
            background=self.background,
            on_log=self.calls.publish_log,
            events=self.events,
            subscriptions=self.subscriptions,
            catalog=catalog,
            authorizations=self.authorizations,
            audit=self.audit,
            notes=notes,
        )
        shell = ConnectionShell(
            config=config,
            connector=self.connector,
            inbound=inbound,
            queue=queue,
            clock=self.clock,
            measures=self.measures,
            on_change=on_change,
            confinement=confinement,
            limits=self._connect_limits,
            background=self.background,
            may_act=self.may_act,
            notes=notes,
        )
        is_away_from_home = bool(self.me) and record.home not in ("", self.me)
        return ServerParts(
            record, queue, shell, catalog, notes, published=published, is_away_from_home=is_away_from_home
        )

    def adopt(self, parts: ServerParts, record: ServerRecord) -> None:
        """Apply options of the hub's side (`config/servers/options.py`); connection, calls and pending requests stay.

        If the server is wanted but not connected, connect it at once, as the change may be meant to fix it.
        """
        parts.record = record
        parts.queue.adopt(record.effective_config)
        parts.shell.adopt(record.config)
        self.catalog.adopt(record.config)
        if record.wanted and parts.shell.state in (ConnectionState.DISCONNECTED, ConnectionState.ERROR):
            parts.shell.connect()

    def pass_on_link(self, parts: ServerParts) -> None:
        """Pass the current connection on to what sends over it: catalog, watched resources, log levels."""
        name, link = parts.record.name, parts.shell.link
        parts.catalog.set_link(link)
        self.subscriptions.set_link(name, link)
        self.log_levels.set_link(name, link)

    async def detach_queue(self, parts: ServerParts, fault: Fault) -> ServerQueue:
        """End the connection, and return the queue for a new connection to the same server.

        Calls on the wire fail with `fault`; all others stay in the queue.
        """
        await parts.shell.hand_over(fault)
        parts.scope.cancel()
        self.catalog.close(parts.record.name)
        return parts.queue

    async def drop(self, parts: ServerParts, fault: Fault) -> None:
        """End the connection and the calls of a server that is removed or replaced; `fault` is what the calls get."""
        name = parts.record.name
        await parts.shell.disconnect(fault)
        parts.scope.cancel()
        self.catalog.close(name)
        await self.calls.close_queue(name, fault)

    async def release(self, parts: ServerParts, fault: Fault) -> None:
        """End the connection of a server that another member takes over, and its calls; that member resumes some."""
        name = parts.record.name
        await parts.shell.disconnect(fault, End.SHUTTING_DOWN)
        parts.scope.cancel()
        self.catalog.close(name)
        await self.calls.close_queue(name, fault, End.SHUTTING_DOWN)
        self.inbox.stop_acting(name)
        self.tasks.stop_acting(name)
        self.forget(name)

    async def end_receiver_tasks(self, name: str) -> None:
        """Cancel and delete the tasks that the hub holds for requests of a server, with their pending requests."""
        await self.tasks.clear(name)

    def forget(self, name: str) -> None:
        """Forget the events, watched resources and log level that are held in memory under a server's name."""
        self.events.forget_log(name)
        self.subscriptions.forget(name)
        self.log_levels.forget(name)

    async def forget_login(self, name: str) -> None:
        """Forget the OAuth tokens and the registered client of a server. Raises Unavailable."""
        try:
            await self.connector.delete_oauth_secrets(name)
        except OSError as exc:
            raise Unavailable(f"the log-in at {name} could not be deleted: {exc}") from None

    async def forget_peer(self, name: str) -> None:
        """Forget what belongs to the server under a name: receiver tasks, catalog, OAuth tokens. Raises Unavailable.

        If the tokens cannot be deleted, that is only logged.
        """
        await self.end_receiver_tasks(name)
        self.catalog.forget(name)
        try:
            await self.connector.delete_oauth_secrets(name)
        except OSError as exc:
            log.warning("server tokens not deleted", server=name, error=str(exc))
