"""The library without async, for scripts and notebooks: the same methods, each of which waits for its outcome.

>>> from hubbub_client import sync
>>> with sync.connect() as hub:
...     result = hub.call_tool("time", "get_current_time", {"timezone": "UTC"})
>>> result["content"][0]["type"]
'text'
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

import hubbub_client
from hubbub_client.audit import AuditLog
from hubbub_client.calls import Calls
from hubbub_client.catalog import Catalog
from hubbub_client.hub import Admin, Hub
from hubbub_client.inbox import Inbox
from hubbub_client.notices import Events
from hubbub_client.servers import Servers
from hubbub_client.store import Store
from hubbub_client.tasks import Tasks
from hubbub_client.tokens import Tokens

S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")


class Facade(Generic[S]):
    """A part of the library, used from a thread that has no event loop."""

    def __init__(self, portal: BlockingPortal, part: S) -> None:
        self._portal = portal
        self._part = part

    def wait_for(self, work: Callable[[S], Awaitable[R]]) -> R:
        """What the work on the library's part comes to."""
        return self._portal.call(work, self._part)


def _blocking(method: Callable[Concatenate[S, P], Awaitable[R]]) -> Callable[Concatenate[Facade[S], P], R]:
    """The method, waited for."""

    def wait(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return facade.wait_for(lambda part: method(part, *args, **kwargs))

    wait.__name__, wait.__doc__ = method.__name__, method.__doc__
    return wait


def _iterating(
    method: Callable[Concatenate[S, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Facade[S], P], Iterator[R]]:
    """The method's events, each waited for; closing the iterator ends the watch."""

    def iterate(facade: Facade[S], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        async def begin(part: S) -> AsyncGenerator[R, None]:
            return method(part, *args, **kwargs)

        async def step(_: S) -> tuple[R, ...]:
            async for event in events:
                return (event,)
            return ()

        events = facade.wait_for(begin)
        try:
            while found := facade.wait_for(step):
                yield found[0]
        finally:
            facade.wait_for(lambda _: events.aclose())

    iterate.__name__, iterate.__doc__ = method.__name__, method.__doc__
    return iterate


class SyncServers(Facade[Servers]):
    """`hub.servers`."""

    list = _blocking(Servers.list)
    get = _blocking(Servers.get)
    add = _blocking(Servers.add)
    update = _blocking(Servers.update)
    remove = _blocking(Servers.remove)
    connect = _blocking(Servers.connect)
    disconnect = _blocking(Servers.disconnect)
    roots = _blocking(Servers.roots)
    set_roots = _blocking(Servers.set_roots)
    watch = _iterating(Servers.watch)


class SyncInbox(Facade[Inbox]):
    """`hub.inbox`. Answers go through `answer`: the records' own methods are for programs with an event loop."""

    list = _blocking(Inbox.list)
    get = _blocking(Inbox.get)
    claim = _blocking(Inbox.claim)
    renew = _blocking(Inbox.renew)
    release = _blocking(Inbox.release)
    answer = _blocking(Inbox.answer)
    watch = _iterating(Inbox.watch)


class SyncCalls(Facade[Calls]):
    """`hub.calls`."""

    call = _blocking(Calls.call)
    start = _blocking(Calls.start)
    list = _blocking(Calls.list)
    get = _blocking(Calls.get)
    cancel = _blocking(Calls.cancel)
    queue = _blocking(Calls.queue)
    clear_queue = _blocking(Calls.clear_queue)
    watch = _iterating(Calls.watch)


class SyncTasks(Facade[Tasks]):
    """`hub.tasks`."""

    list = _blocking(Tasks.list)
    get = _blocking(Tasks.get)
    result = _blocking(Tasks.result)
    cancel = _blocking(Tasks.cancel)
    watch = _iterating(Tasks.watch)


class SyncCatalog(Facade[Catalog]):
    """`hub.catalog`."""

    tools = _blocking(Catalog.tools)
    resources = _blocking(Catalog.resources)
    templates = _blocking(Catalog.templates)
    prompts = _blocking(Catalog.prompts)
    read = _blocking(Catalog.read)
    refresh = _blocking(Catalog.refresh)
    watch = _iterating(Catalog.watch)


class SyncEvents(Facade[Events]):
    """`hub.events`."""

    watch = _iterating(Events.watch)
    logs = _blocking(Events.logs)
    follow_logs = _iterating(Events.follow_logs)
    resource = _iterating(Events.resource)


class SyncAdmin(Facade[Admin]):
    """`hub.admin`."""

    status = _blocking(Admin.status)
    reload = _blocking(Admin.reload)
    check = _blocking(Admin.check)
    whoami = _blocking(Admin.whoami)
    well = _blocking(Admin.well)


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

    create = _blocking(Tokens.create)
    list = _blocking(Tokens.list)
    revoke = _blocking(Tokens.revoke)


class SyncAuditLog(Facade[AuditLog]):
    """`hub.audit`.

    >>> with connect() as hub:
    ...     read = hub.servers.disconnect("time"), hub.servers.connect("time")
    ...     newest = hub.audit.list(target="time", limit=2)
    ...     all_of_them = sum(1 for entry in hub.audit.export())
    >>> [(entry.action, entry.outcome) for entry in newest], all_of_them > 1
    ([('ConnectServer', 'OK'), ('DisconnectServer', 'OK')], True)
    """

    list = _blocking(AuditLog.list)
    export = _iterating(AuditLog.export)


class SyncStore(Facade[Store]):
    """`hub.store`."""

    stats = _blocking(Store.stats)
    compact = _blocking(Store.compact)
    backup = _blocking(Store.backup)


class SyncHub(Facade[Hub]):
    """One hub, for scripts. Made by `connect`."""

    def __init__(self, portal: BlockingPortal, hub: Hub) -> None:
        super().__init__(portal, hub)
        self.servers = SyncServers(portal, hub.servers)
        self.inbox = SyncInbox(portal, hub.inbox)
        self.calls = SyncCalls(portal, hub.calls)
        self.tasks = SyncTasks(portal, hub.tasks)
        self.catalog = SyncCatalog(portal, hub.catalog)
        self.events = SyncEvents(portal, hub.events)
        self.store = SyncStore(portal, hub.store)
        self.tokens = SyncTokens(portal, hub.tokens)
        self.admin = SyncAdmin(portal, hub.admin)
        self.audit = SyncAuditLog(portal, hub.audit)

    call_tool = _blocking(Hub.call_tool)
    call = _blocking(Hub.call)
    start = _blocking(Hub.start)
    read_resource = _blocking(Hub.read_resource)
    get_prompt = _blocking(Hub.get_prompt)
    complete = _blocking(Hub.complete)
    set_log_level = _blocking(Hub.set_log_level)
    subscribe = _iterating(Hub.subscribe)


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
) -> Generator[SyncHub, Any, None]:
    """The hub, as `hubbub_client.connect` finds it, for the length of a `with` block."""
    with start_blocking_portal() as portal:
        connecting = hubbub_client.connect(
            address, token, data_dir, ca=ca, cert=cert, key=key, name=name, connect_timeout_s=connect_timeout_s
        )
        with portal.wrap_async_context_manager(connecting) as hub:
            yield SyncHub(portal, hub)
