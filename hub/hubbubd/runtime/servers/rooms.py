"""The rooms of the hub, as far as a server's parts are made of them."""

from dataclasses import dataclass

from hubbubd.clock import Clock
from hubbubd.core.calls import Call
from hubbubd.runtime.alarms import Alarms
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import Calls, ClientTasks
from hubbubd.runtime.catalog import Catalog
from hubbubd.runtime.inbox import Authorizations, Inbox, Tasks
from hubbubd.runtime.oversight import Audit
from hubbubd.runtime.records import Ledger, Table
from hubbubd.runtime.servers.connection import Turns
from hubbubd.runtime.servers.events import EventFeed
from hubbubd.runtime.servers.log_levels import LogLevels
from hubbubd.runtime.servers.measures import Measures
from hubbubd.runtime.servers.subscriptions import Subscriptions
from hubbubd.upstream.ports import Connector


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """What a server's parts are made of."""

    ledger: Ledger
    clock: Clock
    alarms: Alarms
    background: Background
    connector: Connector
    inbox: Inbox
    calls: Calls
    calls_table: Table[Call]
    tasks: Tasks
    client_tasks: ClientTasks
    events: EventFeed
    subscriptions: Subscriptions
    log_levels: LogLevels
    catalog: Catalog
    authorizations: Authorizations
    audit: Audit
    measures: Measures
    turns: Turns
