"""The catalog: what all servers offer, kept as fresh as they let it be.

Per connection one task fetches, one list at a time and past the request queue, and one keeps the subscription of a
stateless server open. Whatever makes a list worth fetching only moves the time at which it is due: so a storm of
notifications costs one fetch more, not one each.
"""

import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import structlog

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.config import ServerConfig
from hubbubd.core import catalog as core
from hubbubd.core.catalog import CatalogEntries, CatalogList, Kind, ListRefused, Pages
from hubbubd.core.filters import CatalogFilter
from hubbubd.core.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from hubbubd.core.tool_policy import name_of, shown
from hubbubd.errors import Category, FailedPrecondition, Fault, NotFound, PeerError, UpstreamError
from hubbubd.runtime.background import Background
from hubbubd.runtime.records import Change, Ledger, Table, WatchEvent
from hubbubd.turns import turn
from hubbubd.upstream.deadlines import Patience
from hubbubd.upstream.ports import Era, Link

QUIET_S = 0.25
"""After a fetch, a server that tells of a change waits this long for the next one; or as long as the fetch took."""

LONGEST_QUIET_S = 5.0
"""How far that pause doubles, for as long as the server tells of a change in each of them."""

ACKNOWLEDGE_S = 2.0
"""How long the first fetch waits for the subscription, so that no change falls between the two."""

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
"""How long after the end of a subscription the next one is tried; doubled while they are short-lived."""

log = structlog.get_logger(__name__)


class Catalog:
    """The lists of all servers."""

    def __init__(
        self,
        ledger: Ledger,
        lists: Table[CatalogList],
        entries: Table[CatalogEntries],
        clock: Clock,
        background: Background,
    ) -> None:
        self._ledger = ledger
        self._lists = lists
        self._entries = entries
        self._clock = clock
        self._background = background
        self._servers: dict[str, ServerCatalog] = {}

    # Reading

    def select(self, chosen: CatalogFilter) -> list[CatalogList]:
        """The lists that match, by server and kind. Raises NotFound for a server that does not exist."""
        if chosen.server and chosen.server not in self._servers:
            raise NotFound("server", chosen.server)
        found = [record for record in self._lists if chosen.matches(record)]
        return sorted(found, key=lambda record: core.position(record.id))

    def entries(self, list_id: str) -> tuple[bytes, ...]:
        """The entries of a list, MCP objects as JSON, in the server's order."""
        found = self._entries.record(list_id)
        return found.entries if found is not None else ()

    def watch(self, chosen: CatalogFilter, token: str = "") -> AsyncIterator[WatchEvent[CatalogList]]:
        """Snapshot and changes of the lists."""
        return self._lists.feed.watch(chosen, token)

    async def refresh(self, server: str) -> list[CatalogList]:
        """Fetches all lists of a server and returns them as they then are.

        Raises NotFound and FailedPrecondition (SERVER_NOT_CONNECTED).
        """
        if server not in self._servers:
            raise NotFound("server", server)
        await self._servers[server].refresh()
        return self.select(CatalogFilter(server=server))

    # Servers that come and go

    def adopt(self, config: ServerConfig) -> None:
        """Takes other options of a server over."""
        if config.limits_tools:
            self._hide_tools(config)
        self._servers[config.name].adopt(config)

    def open(self, config: ServerConfig) -> "ServerCatalog":
        """The catalog of a server that the hub keeps from now on; what is remembered of it is stale."""
        if config.limits_tools:
            self._hide_tools(config)
        opened = self._servers[config.name] = ServerCatalog(config, self, self._clock, self._background)
        opened.follow(None)
        return opened

    def _hide_tools(self, config: ServerConfig) -> None:
        record = self.record(config.name, Kind.TOOL)
        if record is not None:
            remembered = self.entries(record.id)
            tools = tuple(entry for entry in remembered if config.has_tool(name_of(payload.loads(entry))))
            self.put(replace(record, count=len(tools)), tools)

    def close(self, server: str) -> None:
        """The hub keeps the server no longer; what it offered is still remembered."""
        self._servers.pop(server).follow(None)

    def forget(self, server: str) -> None:
        """Forgets what a server offered."""
        self._remove([record for record in self._lists if record.server == server])

    # What a server's part reads and writes

    def record(self, server: str, kind: Kind) -> CatalogList | None:
        """A list, if the server has it."""
        return self._lists.record(core.list_id(server, kind))

    def put(self, record: CatalogList, entries: tuple[bytes, ...] | None = None) -> None:
        """Keeps a list as it now is, with its entries if it has new ones. Durable a moment later, both at once."""
        if self._lists.record(record.id) != record:
            self._ledger.later(Change(self._lists, record.id, record))
        if entries is not None and entries != self.entries(record.id):
            self._ledger.later(Change(self._entries, record.id, CatalogEntries(id=record.id, entries=entries)))

    def keep_only(self, server: str, kinds: Collection[Kind]) -> None:
        """Forgets the lists of kinds that a server has no longer."""
        self._remove([r for r in self._lists if r.server == server and r.kind not in kinds])

    def _remove(self, records: Iterable[CatalogList]) -> None:
        for record in records:
            self._ledger.later(Change(self._lists, record.id, None))
            if self._entries.record(record.id) is not None:
                self._ledger.later(Change(self._entries, record.id, None))


class ServerCatalog:
    """The lists of one server, kept fresh while it is connected."""

    def __init__(self, config: ServerConfig, catalog: Catalog, clock: Clock, background: Background) -> None:
        self.patience = Patience()
        """The time limits of fetches."""
        self._config = config
        self._catalog = catalog
        self._clock = clock
        self._background = background
        self._link: Link | None = None
        self._life = anyio.CancelScope()
        self._wake = anyio.Event()
        self._due: dict[Kind, float] = {}
        """When each list of the connected server is to be fetched, in steady seconds."""
        self._quiet_until: dict[Kind, float] = {}
        self._quiet_s: dict[Kind, float] = {}
        self._tells: frozenset[Kind] = frozenset()
        """The lists of whose changes the server tells."""
        self._waiting: list[tuple[Kind, anyio.Event]] = []
        """Who waits for the end of a fetch that has not begun."""

    def follow(self, link: Link | None) -> None:
        """Takes note of the server's connection; None when there is none."""
        if link is not None and link is self._link:
            return
        self._life.cancel()
        self._link = link
        self._due, self._quiet_until, self._quiet_s = {}, {}, {}
        self._let_go()
        self._change(core.out_of_reach, Kind)
        if link is not None:
            self._life = anyio.CancelScope()
            self._background.start_soon(self._keep_fresh, link, self._life, self._begin(link))

    def adopt(self, config: ServerConfig) -> None:
        """Takes other options over; the lists are fetched again where other tools may be shown now."""
        rules = [(each.allow_tools, each.deny_tools) for each in (self._config, config)]
        self._config = config
        if rules[0] != rules[1]:
            self._outdate(self._due.keys())
            self._want(self._due)

    def notice(self, method: str) -> None:
        """Takes note of a notification, which may tell that a list has changed."""
        changed = core.changed_by(method) & self._due.keys()
        self._outdate(changed)
        for kind in changed:
            self._want([kind], self._quiet_until.get(kind, -math.inf))

    async def refresh(self) -> None:
        """Returns when each list was fetched, by a fetch that began after this. Raises FailedPrecondition."""
        link = self._link
        waiting = [(kind, anyio.Event()) for kind in self._due]
        self._waiting += waiting
        self._want(self._due)
        for _, fetched in waiting:
            await fetched.wait()
        broken_off = [kind for kind in self._due if self._fault(kind) in core.GONE]
        if link is None or self._link is not link or broken_off:
            raise FailedPrecondition(f"{self._config.name} is not connected", reason="SERVER_NOT_CONNECTED")

    def _begin(self, link: Link) -> frozenset[Kind]:
        """Prepares for a connection; returns the kinds to subscribe to."""
        kinds, announced = core.declared(link.hello.capabilities), core.announced(link.hello.capabilities)
        subscribed = announced if link.hello.era is Era.STATELESS else frozenset[Kind]()
        self._tells = announced - subscribed
        self._due = dict.fromkeys(kinds, self._clock.steady() + ACKNOWLEDGE_S if subscribed else -math.inf)
        self._catalog.keep_only(self._config.name, kinds)
        for kind in kinds:
            if self._catalog.record(self._config.name, kind) is None:
                self._catalog.put(core.new(self._config.name, kind))
        return subscribed

    async def _keep_fresh(self, link: Link, life: anyio.CancelScope, subscribed: frozenset[Kind]) -> None:
        with life:
            async with anyio.create_task_group() as tasks:
                if subscribed:
                    tasks.start_soon(self._subscribe, link, subscribed)
                await self._fetch_in_turn(link)

    async def _fetch_in_turn(self, link: Link) -> None:
        while True:
            kind = min(self._due, key=lambda each: self._due[each], default=None)
            wait_s = math.inf if kind is None else self._due[kind] - self._clock.steady()
            if kind is not None and wait_s <= 0:
                await self._fetch(link, kind)
                continue
            self._wake = anyio.Event()
            with anyio.move_on_after(None if math.isinf(wait_s) else wait_s):
                await self._wake.wait()

    async def _fetch(self, link: Link, kind: Kind) -> None:
        """Fetches one list. Whoever asks for it from now on waits for the next fetch."""
        waiting = [each for each in self._waiting if each[0] is kind]
        self._waiting = [each for each in self._waiting if each[0] is not kind]
        self._due[kind] = math.inf
        self._outdate([kind])
        started = self._clock.steady()
        try:
            outcome = await self._attempt(link, kind)
            if self._link is link:  # a cancelled fetch may still have its last page
                self._keep(kind, outcome, started)
        finally:
            for _, fetched in waiting:
                fetched.set()

    def _keep(self, kind: Kind, outcome: Pages | Fault, started: float) -> None:
        """Keeps what came of a fetch, and sets the time of the next one."""
        now, stamp = self._clock.steady(), self._clock.now()
        record = self._catalog.record(self._config.name, kind) or core.new(self._config.name, kind)
        if isinstance(outcome, Pages):
            record = core.fetched(record, len(outcome.entries), outcome.ttl_s, stamp)
            self._catalog.put(record, tuple(outcome.entries))
        else:
            log.warning(
                "a list was not fetched",
                server=record.server,
                list=kind.value,
                code=outcome.code,
                message=outcome.message,
            )
            record = core.failed(record, outcome)
            self._catalog.put(record)
        again = started - self._quiet_until.get(kind, -math.inf) < QUIET_S  # as soon as it was allowed
        self._quiet_s[kind] = min(2 * self._quiet_s[kind], LONGEST_QUIET_S) if again else QUIET_S
        self._quiet_until[kind] = now + max(self._quiet_s[kind], now - started)
        # It may have been asked for meanwhile.
        self._due[kind] = max(self._due[kind], self._quiet_until[kind])
        self._want([kind], now + core.next_fetch(record, stamp, told=kind in self._tells) - stamp)

    async def _attempt(self, link: Link, kind: Kind) -> Pages | Fault:
        """The whole list, or why it was not to be had."""
        pages = Pages(self._config.name, kind)
        try:
            with self.patience.limit(self._config.call_max_s):
                await self._gather(link, kind, pages)
                return pages
        except PeerError as refusal:
            # Templates are not announced by a capability of their own: a server without them may not know the method.
            none = kind is Kind.TEMPLATE and refusal.code == METHOD_NOT_FOUND
            return pages if none else _server_error(refusal)
        except (UpstreamError, ListRefused) as exc:
            return exc.fault
        except Exception as exc:
            log.exception("fetching a list failed in the hub", server=self._config.name, list=kind.value)
            problem = f"the hub failed: {type(exc).__name__}"
            return Fault(code="INTERNAL", category=Category.SERVER, message=problem, retryable=True)
        return self._out_of_time(kind, self._config.call_max_s, "call_max_s")

    async def _gather(self, link: Link, kind: Kind, pages: Pages) -> None:
        method, limit_s = core.SOURCES[kind].method, self._config.call_timeout_s
        while True:
            page: dict[str, Any] = {}
            with self.patience.limit(limit_s) as limit:
                page = await link.request(method, {"cursor": pages.cursor} if pages.cursor else None)
            if limit.cancelled_caught:
                raise ListRefused(self._out_of_time(kind, limit_s, "call_timeout_s"))
            for _ in pages.steps(shown(self._config, method, page)):
                await turn()
            if pages.cursor is None:
                return

    async def _subscribe(self, link: Link, kinds: frozenset[Kind]) -> None:
        """Keeps a subscription to changes open; each time it is acknowledged, all lists are fetched."""

        def acknowledged(told: Mapping[str, Any]) -> None:
            if self._link is link:
                self._tells = core.honoured(told)
                for kind in self._due:  # once or often, as of a change
                    self._want([kind], self._quiet_until.get(kind, -math.inf))

        pause_s = FIRST_PAUSE_S
        while True:
            began = self._clock.steady()
            try:
                await link.listen(core.subscription(kinds), acknowledged)
            except (PeerError, UpstreamError) as exc:
                log.info("a subscription has ended", server=self._config.name, error=str(exc))
                if isinstance(exc, PeerError) and exc.code == METHOD_NOT_FOUND:
                    self._want(self._due)
                    return
            self._outdate(self._tells)
            self._tells = frozenset()
            lasted = self._clock.steady() - began >= LAST_PAUSE_S
            pause_s = FIRST_PAUSE_S if lasted else pause_s
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _want(self, kinds: Iterable[Kind], at: float = -math.inf) -> None:
        for kind in kinds:
            self._due[kind] = min(self._due[kind], at)
        self._wake.set()

    def _outdate(self, kinds: Iterable[Kind]) -> None:
        self._change(core.outdated, kinds)

    def _change(self, change: Callable[[CatalogList], CatalogList], kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            if (record := self._catalog.record(self._config.name, kind)) is not None:
                self._catalog.put(change(record))

    def _fault(self, kind: Kind) -> str:
        record = self._catalog.record(self._config.name, kind)
        return record.fault.code if record is not None and record.fault is not None else ""

    def _let_go(self) -> None:
        for _, fetched in self._waiting:
            fetched.set()
        self._waiting = []

    def _out_of_time(self, kind: Kind, limit_s: float, option: str) -> Fault:
        method = core.SOURCES[kind].method
        return Fault(
            code="CALL_TIMEOUT",
            category=Category.TIMEOUT,
            message=f"{self._config.name} did not finish {method} within {limit_s:g} s ({option})",
            retryable=True,
            details={"server": self._config.name, "method": method, "limit_s": limit_s},
        )


def _server_error(refusal: PeerError) -> Fault:
    details: dict[str, Any] = {"jsonrpc_code": refusal.code, "jsonrpc_message": refusal.message}
    return Fault(
        code="SERVER_ERROR",
        category=Category.SERVER,
        message=refusal.message,
        retryable=refusal.code == INTERNAL_ERROR,
        details=details,
    )
