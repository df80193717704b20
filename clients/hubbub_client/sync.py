"""The library without async, for scripts and notebooks: the same methods, which block until they have a result.

>>> from hubbub_client import sync
>>> with sync.connect() as hub:
...     result = hub.call_tool("time", "get_current_time", {"timezone": "UTC"})
>>> result.is_error
False
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast

import hubbub_client
from hubbub_client.data.records import Call
from hubbub_client.data.results import ToolResult
from hubbub_client.hub import Hub
from hubbub_client.options import CallCallbacks
from hubbub_client.services.admin import Admin
from hubbub_client.services.approvals import Approvals
from hubbub_client.services.audit import AuditLog
from hubbub_client.services.calls import CallHandle, Calls
from hubbub_client.services.catalog import Catalog
from hubbub_client.services.events import Events
from hubbub_client.services.fleet import Fleet
from hubbub_client.services.hosts import Hosts
from hubbub_client.services.inbox import Inbox
from hubbub_client.services.servers import Servers
from hubbub_client.services.store import Store
from hubbub_client.services.tasks import Tasks
from hubbub_client.services.tokens import Tokens
from hubbub_client.threads.portal import opened
from hubbub_client.threads.wrappers import Facade, Home, SyncPendingRequest, asking, asking_all, blocking, iterating

__all__ = ["SyncCallHandle", "SyncHub", "SyncPendingRequest", "connect"]


S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")


class SyncCallHandle(Facade[CallHandle[R]], Generic[R]):
    """As `CallHandle`, but each of its methods waits."""

    get = blocking(CallHandle[R].get)
    result = blocking(CallHandle[R].result)
    wait = blocking(CallHandle[R].wait)
    progress = iterating(CallHandle[R].progress)
    pending_requests = iterating(CallHandle[R].pending_requests)
    cancel = blocking(CallHandle[R].cancel)

    @property
    def id(self) -> str:
        """Return the id by which any program finds the call (`calls.handle`)."""
        return self._part.id

    @property
    def started(self) -> Call | None:
        """Return the call as it was when `start` returned; None for a handle made by `calls.handle`."""
        return self._part.started


def starting(
    method: Callable[Concatenate[S, P], Awaitable[CallHandle[R]]],
) -> Callable[Concatenate[Facade[S], P], SyncCallHandle[R]]:
    """As `blocking`, for a method that returns a handle."""
    wait_for = blocking(method)

    def start(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> SyncCallHandle[R]:
        return SyncCallHandle(facade.home, wait_for(facade, *args, **kwargs))

    start.__name__, start.__doc__ = method.__name__, method.__doc__
    return start


class SyncServers(Facade[Servers]):
    """`hub.servers`."""

    list = blocking(Servers.list)
    get = blocking(Servers.get)
    add = blocking(Servers.add)
    update = blocking(Servers.update)
    remove = blocking(Servers.remove)
    connect = blocking(Servers.connect)
    disconnect = blocking(Servers.disconnect)
    log_out = blocking(Servers.log_out)
    roots = blocking(Servers.roots)
    set_roots = blocking(Servers.set_roots)
    watch = iterating(Servers.watch)


class SyncInbox(Facade[Inbox]):
    """`hub.inbox`. The methods of its records wait too."""

    list = asking_all(Inbox.list)
    get = asking(Inbox.get)
    claim = asking(Inbox.claim)
    renew = asking(Inbox.renew)
    release = asking(Inbox.release)
    answer = asking(Inbox.answer)
    approve = asking(Inbox.approve)
    deny = asking(Inbox.deny)
    watch = iterating(Inbox.watch)


class SyncCalls(Facade[Calls]):
    """`hub.calls`."""

    call = blocking(Calls.call)
    start = starting(Calls.start)
    list = blocking(Calls.list)
    get = blocking(Calls.get)
    cancel = blocking(Calls.cancel)
    queue = blocking(Calls.queue)
    clear_queue = blocking(Calls.clear_queue)
    watch = iterating(Calls.watch)

    def handle(self, id: str, **callbacks: Unpack[CallCallbacks]) -> SyncCallHandle[ToolResult | dict[str, Any]]:  # noqa: A002
        """As `Calls.handle`."""
        given = cast("CallCallbacks", self.wrap_callbacks(callbacks))
        return SyncCallHandle(self._home, self._part.handle(id, **given))


class SyncTasks(Facade[Tasks]):
    """`hub.tasks`."""

    list = blocking(Tasks.list)
    get = blocking(Tasks.get)
    result = blocking(Tasks.result)
    cancel = blocking(Tasks.cancel)
    watch = iterating(Tasks.watch)


class SyncCatalog(Facade[Catalog]):
    """`hub.catalog`."""

    tools = blocking(Catalog.tools)
    resources = blocking(Catalog.resources)
    templates = blocking(Catalog.templates)
    prompts = blocking(Catalog.prompts)
    skills = blocking(Catalog.skills)
    read = blocking(Catalog.read)
    refresh = blocking(Catalog.refresh)
    watch = iterating(Catalog.watch)


class SyncEvents(Facade[Events]):
    """`hub.events`."""

    watch = iterating(Events.watch)
    logs = blocking(Events.logs)
    follow_logs = iterating(Events.follow_logs)
    resource = iterating(Events.resource)


class SyncAdmin(Facade[Admin]):
    """`hub.admin`."""

    status = blocking(Admin.status)
    reload = blocking(Admin.reload)
    check = blocking(Admin.check)
    whoami = blocking(Admin.whoami)
    well = blocking(Admin.well)


class SyncTokens(Facade[Tokens]):
    """`hub.tokens`.

    >>> from hubbub_client import Grant
    >>> with connect() as hub:
    ...     made = hub.tokens.create("weather", [Grant(role="viewer")], ttl_s=3600)
    ...     with connect(token=made.secret) as theirs:
    ...         me = theirs.admin.whoami()
    ...     names = [token.name for token in hub.tokens.list()]
    ...     gone = hub.tokens.revoke("weather")
    >>> me.name, names, gone.id == made.token.id
    ('weather', ['weather'], True)
    """

    create = blocking(Tokens.create)
    list = blocking(Tokens.list)
    revoke = blocking(Tokens.revoke)


class SyncApprovals(Facade[Approvals]):
    """`hub.approvals`."""

    list = blocking(Approvals.list)
    revoke = blocking(Approvals.revoke)
    rules = blocking(Approvals.rules)
    check = blocking(Approvals.check)
    replay = blocking(Approvals.replay)


class SyncHosts(Facade[Hosts]):
    """`hub.hosts`."""

    list = blocking(Hosts.list)
    create_login_code = blocking(Hosts.create_login_code)


class SyncAuditLog(Facade[AuditLog]):
    """`hub.audit`.

    >>> with connect() as hub:
    ...     read = hub.servers.disconnect("time"), hub.servers.connect("time")
    ...     newest = hub.audit.list(target="time", limit=2)
    ...     all_of_them = sum(1 for entry in hub.audit.export())
    >>> [(entry.action, entry.outcome) for entry in newest], all_of_them > 1
    ([('ConnectServer', 'OK'), ('DisconnectServer', 'OK')], True)
    """

    list = blocking(AuditLog.list)
    export = iterating(AuditLog.export)


class SyncFleet(Facade[Fleet]):
    """`hub.fleet`."""

    status = blocking(Fleet.status)
    move = blocking(Fleet.move)
    drain = blocking(Fleet.drain)
    resume = blocking(Fleet.resume)
    expel = blocking(Fleet.expel)
    rotate_key = blocking(Fleet.rotate_key)
    finish_upgrade = blocking(Fleet.finish_upgrade)


class SyncStore(Facade[Store]):
    """`hub.store`."""

    stats = blocking(Store.stats)
    compact = blocking(Store.compact)
    trust_clock = blocking(Store.trust_clock)
    backup = blocking(Store.backup)


class SyncHub(Facade[Hub]):
    """As `Hub`, but each method waits. Made by `connect`."""

    def __init__(self, home: Home, hub: Hub) -> None:
        super().__init__(home, hub)
        self.servers = SyncServers(home, hub.servers)
        self.inbox = SyncInbox(home, hub.inbox)
        self.calls = SyncCalls(home, hub.calls)
        self.tasks = SyncTasks(home, hub.tasks)
        self.catalog = SyncCatalog(home, hub.catalog)
        self.events = SyncEvents(home, hub.events)
        self.fleet = SyncFleet(home, hub.fleet)
        self.store = SyncStore(home, hub.store)
        self.tokens = SyncTokens(home, hub.tokens)
        self.approvals = SyncApprovals(home, hub.approvals)
        self.hosts = SyncHosts(home, hub.hosts)
        self.admin = SyncAdmin(home, hub.admin)
        self.audit = SyncAuditLog(home, hub.audit)

    call_tool = blocking(Hub.call_tool)
    call = blocking(Hub.call)
    start_tool = starting(Hub.start_tool)
    start = starting(Hub.start)
    read_resource = blocking(Hub.read_resource)
    get_prompt = blocking(Hub.get_prompt)
    complete = blocking(Hub.complete)

    @property
    def address(self) -> str:
        """Return the address at which the hub was last found."""
        return self._part.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return all addresses of the hub, as last looked up; one, unless it has several members."""
        return self._part.addresses

    @property
    def connected(self) -> bool:
        """Return whether there is a connection now; without one, the next RPC or an open watch reconnects."""
        return self._part.connected

    set_log_level = blocking(Hub.set_log_level)
    subscribe = iterating(Hub.subscribe)


@contextmanager
def connect(
    address: str | None = None,
    token: str | None = None,
    data_dir: str | Path | None = None,
    *,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    name: str | None = None,
    connect_timeout_s: float = 5.0,
    silence_s: float = 15.0,
    patient: bool = True,
) -> Generator[SyncHub, Any, None]:
    """Connect to a hub for a `with` block, as `hubbub_client.connect`."""
    connecting = hubbub_client.connect(
        address,
        token,
        data_dir,
        ca=ca,
        cert=cert,
        key=key,
        name=name,
        connect_timeout_s=connect_timeout_s,
        silence_s=silence_s,
        patient=patient,
    )
    with ExitStack() as stack:
        portal = stack.enter_context(opened())
        home = Home(portal)
        hub = portal.start(connecting.__aenter__).result()

        def leave(*error: Any) -> bool | None:
            return portal.start(connecting.__aexit__, *error).result()

        stack.push(leave)
        try:
            yield SyncHub(home, hub)
        finally:
            if not home.is_own_process:  # a fork has no loop; the parent process closes the connection
                stack.pop_all()
