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
from hubbub_client.threads.portal import open_portal
from hubbub_client.threads.wrappers import (
    Facade,
    LoopRunner,
    SyncPendingRequest,
    make_blocking,
    make_iterating,
    make_request_blocking,
    make_requests_blocking,
)

__all__ = ["SyncCallHandle", "SyncHub", "SyncPendingRequest", "connect"]


S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")


class SyncCallHandle(Facade[CallHandle[R]], Generic[R]):
    """As `CallHandle`, but each of its methods waits."""

    get = make_blocking(CallHandle[R].get)
    result = make_blocking(CallHandle[R].result)
    wait = make_blocking(CallHandle[R].wait)
    progress = make_iterating(CallHandle[R].progress)
    pending_requests = make_iterating(CallHandle[R].pending_requests)
    cancel = make_blocking(CallHandle[R].cancel)

    @property
    def id(self) -> str:
        """Return the id by which any program finds the call (`calls.handle`)."""
        return self._part.id

    @property
    def started(self) -> Call | None:
        """Return the call as it was when `start` returned; None for a handle made by `calls.handle`."""
        return self._part.started


def make_handle_blocking(
    method: Callable[Concatenate[S, P], Awaitable[CallHandle[R]]],
) -> Callable[Concatenate[Facade[S], P], SyncCallHandle[R]]:
    """Return an async method as one that waits for its result, and returns the handle as a SyncCallHandle."""
    wait_for = make_blocking(method)

    def start(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> SyncCallHandle[R]:
        """Start the call, wait until the hub has it, and return its handle."""
        return SyncCallHandle(facade.runner, wait_for(facade, *args, **kwargs))

    start.__name__, start.__doc__ = method.__name__, method.__doc__
    return start


class SyncServers(Facade[Servers]):
    """`hub.servers`."""

    list = make_blocking(Servers.list)
    get = make_blocking(Servers.get)
    add = make_blocking(Servers.add)
    update = make_blocking(Servers.update)
    remove = make_blocking(Servers.remove)
    connect = make_blocking(Servers.connect)
    disconnect = make_blocking(Servers.disconnect)
    log_out = make_blocking(Servers.log_out)
    roots = make_blocking(Servers.roots)
    set_roots = make_blocking(Servers.set_roots)
    watch = make_iterating(Servers.watch)


class SyncInbox(Facade[Inbox]):
    """`hub.inbox`. The methods of its records wait too."""

    list = make_requests_blocking(Inbox.list)
    get = make_request_blocking(Inbox.get)
    claim = make_request_blocking(Inbox.claim)
    renew = make_request_blocking(Inbox.renew)
    release = make_request_blocking(Inbox.release)
    answer = make_request_blocking(Inbox.answer)
    approve = make_request_blocking(Inbox.approve)
    deny = make_request_blocking(Inbox.deny)
    watch = make_iterating(Inbox.watch)


class SyncCalls(Facade[Calls]):
    """`hub.calls`."""

    call = make_blocking(Calls.call)
    start = make_handle_blocking(Calls.start)
    list = make_blocking(Calls.list)
    get = make_blocking(Calls.get)
    cancel = make_blocking(Calls.cancel)
    queue = make_blocking(Calls.queue)
    clear_queue = make_blocking(Calls.clear_queue)
    watch = make_iterating(Calls.watch)

    def handle(self, id: str, **callbacks: Unpack[CallCallbacks]) -> SyncCallHandle[ToolResult | dict[str, Any]]:  # noqa: A002
        """Return a handle of any call, even one that does not exist yet; its methods wait."""
        wrapped = cast("CallCallbacks", self.wrap_callbacks(callbacks))
        return SyncCallHandle(self._runner, self._part.handle(id, **wrapped))


class SyncTasks(Facade[Tasks]):
    """`hub.tasks`."""

    list = make_blocking(Tasks.list)
    get = make_blocking(Tasks.get)
    result = make_blocking(Tasks.result)
    cancel = make_blocking(Tasks.cancel)
    watch = make_iterating(Tasks.watch)


class SyncCatalog(Facade[Catalog]):
    """`hub.catalog`."""

    tools = make_blocking(Catalog.tools)
    resources = make_blocking(Catalog.resources)
    templates = make_blocking(Catalog.templates)
    prompts = make_blocking(Catalog.prompts)
    skills = make_blocking(Catalog.skills)
    read = make_blocking(Catalog.read)
    refresh = make_blocking(Catalog.refresh)
    watch = make_iterating(Catalog.watch)


class SyncEvents(Facade[Events]):
    """`hub.events`."""

    watch = make_iterating(Events.watch)
    logs = make_blocking(Events.logs)
    follow_logs = make_iterating(Events.follow_logs)
    resource = make_iterating(Events.resource)


class SyncAdmin(Facade[Admin]):
    """`hub.admin`."""

    status = make_blocking(Admin.status)
    reload = make_blocking(Admin.reload)
    check = make_blocking(Admin.check)
    whoami = make_blocking(Admin.whoami)
    well = make_blocking(Admin.well)


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

    create = make_blocking(Tokens.create)
    list = make_blocking(Tokens.list)
    revoke = make_blocking(Tokens.revoke)


class SyncApprovals(Facade[Approvals]):
    """`hub.approvals`."""

    list = make_blocking(Approvals.list)
    revoke = make_blocking(Approvals.revoke)
    rules = make_blocking(Approvals.rules)
    check = make_blocking(Approvals.check)
    replay = make_blocking(Approvals.replay)


class SyncHosts(Facade[Hosts]):
    """`hub.hosts`."""

    list = make_blocking(Hosts.list)
    create_login_code = make_blocking(Hosts.create_login_code)


class SyncAuditLog(Facade[AuditLog]):
    """`hub.audit`.

    >>> with connect() as hub:
    ...     read = hub.servers.disconnect("time"), hub.servers.connect("time")
    ...     newest = hub.audit.list(target="time", limit=2)
    ...     all_of_them = sum(1 for entry in hub.audit.export())
    >>> [(entry.action, entry.outcome) for entry in newest], all_of_them > 1
    ([('ConnectServer', 'OK'), ('DisconnectServer', 'OK')], True)
    """

    list = make_blocking(AuditLog.list)
    export = make_iterating(AuditLog.export)


class SyncFleet(Facade[Fleet]):
    """`hub.fleet`."""

    status = make_blocking(Fleet.status)
    move = make_blocking(Fleet.move)
    drain = make_blocking(Fleet.drain)
    resume = make_blocking(Fleet.resume)
    expel = make_blocking(Fleet.expel)
    rotate_key = make_blocking(Fleet.rotate_key)
    finish_upgrade = make_blocking(Fleet.finish_upgrade)


class SyncStore(Facade[Store]):
    """`hub.store`."""

    stats = make_blocking(Store.stats)
    compact = make_blocking(Store.compact)
    trust_clock = make_blocking(Store.trust_clock)
    backup = make_blocking(Store.backup)


class SyncHub(Facade[Hub]):
    """As `Hub`, but each method waits. Made by `connect`."""

    def __init__(self, runner: LoopRunner, hub: Hub) -> None:
        super().__init__(runner, hub)
        self.servers = SyncServers(runner, hub.servers)
        self.inbox = SyncInbox(runner, hub.inbox)
        self.calls = SyncCalls(runner, hub.calls)
        self.tasks = SyncTasks(runner, hub.tasks)
        self.catalog = SyncCatalog(runner, hub.catalog)
        self.events = SyncEvents(runner, hub.events)
        self.fleet = SyncFleet(runner, hub.fleet)
        self.store = SyncStore(runner, hub.store)
        self.tokens = SyncTokens(runner, hub.tokens)
        self.approvals = SyncApprovals(runner, hub.approvals)
        self.hosts = SyncHosts(runner, hub.hosts)
        self.admin = SyncAdmin(runner, hub.admin)
        self.audit = SyncAuditLog(runner, hub.audit)

    call_tool = make_blocking(Hub.call_tool)
    call = make_blocking(Hub.call)
    start_tool = make_handle_blocking(Hub.start_tool)
    start = make_handle_blocking(Hub.start)
    read_resource = make_blocking(Hub.read_resource)
    get_prompt = make_blocking(Hub.get_prompt)
    complete = make_blocking(Hub.complete)

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

    set_log_level = make_blocking(Hub.set_log_level)
    subscribe = make_iterating(Hub.subscribe)


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
    """Connect to a hub for a `with` block; arguments and errors are those of `hubbub_client.connect`."""
    connection_context = hubbub_client.connect(
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
        portal = stack.enter_context(open_portal())
        runner = LoopRunner(portal)
        hub = portal.start(connection_context.__aenter__).result()

        def leave_connection(*error: Any) -> bool | None:
            """Close the connection on the loop, and wait for that; True would swallow the block's error."""
            return portal.start(connection_context.__aexit__, *error).result()

        stack.push(leave_connection)
        try:
            yield SyncHub(runner, hub)
        finally:
            if not runner.is_own_process:  # a fork has no loop; the parent process closes the connection
                stack.pop_all()
