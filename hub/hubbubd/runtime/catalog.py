"""The catalog: a cache of what all servers offer, refreshed when they allow it.

Per connection one task fetches the lists, and one keeps `subscriptions/listen` open (2026-07-28). A reason to fetch a
list only moves the time at which it is due, so a storm of notifications causes one fetch more, not one each.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import structlog

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.calls.tool_policy import read_tool_name, without_denied_tools
from hubbubd.core.filters import CatalogFilter
from hubbubd.core.jsonrpc import METHOD_NOT_FOUND
from hubbubd.core.servers import catalog as core
from hubbubd.core.servers.catalog import CatalogEntries, CatalogKind, CatalogList, Freshness, ListRefused, Pages
from hubbubd.errors import Category, FailedPrecondition, Fault, NotFound, PeerError, UpstreamError
from hubbubd.frozen import carry_over_changes
from hubbubd.runtime.background import Background
from hubbubd.runtime.records import Ledger, Table, Watch, delete
from hubbubd.timing.clock import Clock
from hubbubd.timing.turns import wait_for_turn
from hubbubd.upstream.deadlines import PausableDeadlines
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.ports import Era, McpLink

QUIET_S = 0.25
"""Debounce: seconds after a fetch before a notification causes the next fetch; at least as long as the fetch took."""

LONGEST_QUIET_S = 5.0
"""The longest debounce: it doubles up to here while each fetch is followed by a notification at once."""

ACKNOWLEDGE_S = 2.0
"""Seconds the first fetch waits for the subscription's acknowledgement: all changes after the fetch are announced."""

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
"""Bounds of the exponential backoff between subscriptions, in seconds; a subscription of LAST_PAUSE_S resets it."""

ListChanged = Callable[[str, CatalogKind, bool], None]
"""Gets the server and kind of a list that may have changed, and whether the server itself announced that."""

Note = Callable[[str, str | None], None]
"""Takes the matter and the text of a note about the server; None removes the note."""

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
        *,
        remote_servers: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`remote_servers` returns the names of the servers that other members of a fleet have."""
        self._ledger = ledger
        self._lists = lists
        self._entries = entries
        self._clock = clock
        self._background = background
        self._remote_servers = remote_servers
        self._servers: dict[str, ServerCatalog] = {}
        self._listeners: list[ListChanged] = []
        self.version = 0
        """Grows with every change of any list's entries, and of the servers that there are."""
        entries.follow(self._notify_of_foreign_entries)

    # Reading

    def select(self, criteria: CatalogFilter) -> list[CatalogList]:
        """Return the lists that match, by server and kind. Raises NotFound for an unknown server."""
        if criteria.server and criteria.server not in self._servers and criteria.server not in self._remote_servers():
            raise NotFound("server", criteria.server)
        matching = [record for record in self._lists if criteria.matches(record)]
        return sorted(matching, key=lambda record: core.sort_key(record.id))

    def entries(self, list_id: str) -> tuple[bytes, ...]:
        """Return a list's entries, MCP objects as JSON, in the server's order; no entries if the list is not known."""
        record = self._entries.record(list_id)
        return record.entries if record is not None else ()

    def servers(self) -> list[str]:
        """Return the names of all servers that have a catalog, here or at other members, sorted."""
        return sorted({*self._servers, *self._remote_servers()})

    def watch(self, criteria: CatalogFilter, token: str = "") -> Watch[CatalogList]:
        """Watch the lists: snapshot, then changes; a resume token continues an earlier watch."""
        return self._lists.feed.watch(criteria, token)

    def listen(self, listener: ListChanged) -> Callable[[], None]:
        """Call `listener` for each list that may have changed, once fetched, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def refresh(self, server: str) -> list[CatalogList]:
        """Fetch all lists of a server and return them. Raises NotFound, FailedPrecondition (SERVER_NOT_CONNECTED)."""
        if server not in self._servers:
            raise NotFound("server", server)
        await self._servers[server].refresh()
        return self.select(CatalogFilter(server=server))

    # Servers that come and go

    def adopt(self, config: ServerConfig) -> None:
        """Apply a server's changed options; remove the tools that the options forbid from its stored list."""
        self.hide_tools(config)
        self._servers[config.name].adopt(config)

    def open(self, config: ServerConfig, note: Note) -> "ServerCatalog":
        """Create the catalog of a server that this hub now has; its stored lists become stale. Notify listeners."""
        self.hide_tools(config)
        server_catalog = self._servers[config.name] = ServerCatalog(config, self, self._clock, self._background, note)
        self.version += 1
        self.notify_all(config.name)
        server_catalog.set_link(None)  # makes the stored lists stale
        return server_catalog

    def close(self, server: str) -> None:
        """Remove the catalog of a server from this hub, and notify listeners; the lists stay in the store."""
        self._servers.pop(server).set_link(None)
        self.version += 1
        self.notify_all(server)

    def notify_all(self, server: str = "") -> None:
        """Notify all listeners that what clients see of a server ("": of all servers) may have changed."""
        for kind in CatalogKind:
            self._notify(server, kind)

    def forget(self, server: str) -> None:
        """Delete a server's lists."""
        self.delete_other_lists(server, ())

    # For ServerCatalog

    def hide_tools(self, config: ServerConfig) -> None:
        """Remove the tools that a server's tool policy does not allow from its stored list."""
        record = self.record(config.name, CatalogKind.TOOL)
        if record is not None and config.limits_tools:
            stored = self.entries(record.id)
            tools = tuple(entry for entry in stored if config.has_tool(read_tool_name(payload.loads(entry))))
            self.store(replace(record, count=len(tools)), tools)

    def record(self, server: str, kind: CatalogKind) -> CatalogList | None:
        """Return a list's record; None if the list is not known."""
        return self._lists.record(core.list_id(server, kind))

    def store(self, record: CatalogList, entries: tuple[bytes, ...] | None = None, *, announced: bool = False) -> None:
        """Store a list, and its entries if they changed, write-behind; both become durable in one commit.

        Listeners are notified of changed entries, of a change that the server has `announced`, and of the first fetch.
        """
        before = self._lists.record(record.id)
        unknown = Freshness.UNKNOWN
        is_first_fetch = before is not None and before.freshness is unknown and record.freshness is not unknown
        if before != record:
            self._ledger.change_later(self._lists, record.id, partial(carry_over_changes, before, record))
        changed = entries is not None and entries != self.entries(record.id)
        if entries is not None and changed:
            fetched = CatalogEntries(id=record.id, entries=entries)
            stored = self._entries.record(record.id)
            self._ledger.change_later(self._entries, record.id, partial(carry_over_changes, stored, fetched))
            self.version += 1
        if changed or announced or is_first_fetch:
            self._notify(record.server, record.kind, announced=announced)

    def delete_other_lists(self, server: str, kinds: Collection[CatalogKind]) -> None:
        """Delete a server's lists except those of these kinds, which the server declares."""
        for kind in CatalogKind:
            if kind not in kinds and (record := self.record(server, kind)) is not None:
                self._ledger.change_later(self._lists, record.id, delete)
                if self._entries.record(record.id) is not None:
                    self._ledger.change_later(self._entries, record.id, delete)
                    self.version += 1
                    self._notify(server, kind)

    def _notify_of_foreign_entries(self, before: CatalogEntries | None, after: CatalogEntries | None) -> None:
        """Notify of entries that another member has stored or deleted; of its own the hub has notified already."""
        entries = after or before
        assert entries is not None
        server_and_kind = core.parse_list_id(entries.id)
        if server_and_kind is None:
            return
        server, kind = server_and_kind
        if server not in self._servers:
            self.version += 1
            self._notify(server, kind, announced=True)

    def _notify(self, server: str, kind: CatalogKind, *, announced: bool = False) -> None:
        """Call the listeners for one list."""
        for listener in list(self._listeners):
            listener(server, kind, announced)


class ServerCatalog:
    """The lists of one server, kept fresh while it is connected."""

    def __init__(
        self, config: ServerConfig, catalog: Catalog, clock: Clock, background: Background, note: Note
    ) -> None:
        self.deadlines = PausableDeadlines()
        self._config = config
        self._catalog = catalog
        self._clock = clock
        self._background = background
        self._note = note
        self._link: McpLink | None = None
        self._connection_scope = anyio.CancelScope()
        self._wake = anyio.Event()  # set when `_due` has changed
        self._due: dict[CatalogKind, float] = {}
        """When each list of the connected server is due, in monotonic seconds."""
        self._quiet_until, self._quiet_s = dict[CatalogKind, float](), dict[CatalogKind, float]()  # of the debounce
        self._announced_kinds: frozenset[CatalogKind] = frozenset()
        """The kinds whose changes the server announces."""
        self._outdated: set[CatalogKind] = set()
        """The kinds whose list may have changed since its last fetch began."""
        self._changed_kinds: set[CatalogKind] = set()
        """The kinds of list of which the server has announced a change since the list's last fetch began."""
        self._waiters: list[tuple[CatalogKind, anyio.Event]] = []
        """Callers of `refresh`, with the kind whose next fetch each waits for."""

    def set_link(self, link: McpLink | None) -> None:
        """Set the current connection (None: it is down), fetch the lists over a new one; end waits of `refresh`."""
        if link is not None and link is self._link:
            return
        self._connection_scope.cancel()
        self._link = link
        self._due, self._quiet_until, self._quiet_s = {}, {}, {}
        self._release_waiters()
        self._change_records(core.after_disconnect, CatalogKind)
        if link is not None:
            self._connection_scope = anyio.CancelScope()
            self._background.start_soon(self._keep_fresh, link, self._connection_scope, self._prepare_lists(link))

    def adopt(self, config: ServerConfig) -> None:
        """Apply changed options; fetch the lists again if the tools that are allowed have changed."""
        rules_before = self._config.allow_tools, self._config.deny_tools
        self._config = config
        if rules_before != (config.allow_tools, config.deny_tools):
            self._mark_outdated(self._due.keys())
            self._make_due(self._due)

    def handle_notification(self, method: str) -> None:
        """Handle a notification: mark the lists that it names as outdated, and make them due, debounced."""
        changed = core.kinds_changed_by(method) & self._due.keys()
        self._mark_outdated(changed)
        self._changed_kinds |= changed
        for kind in changed:
            self._make_due([kind], self._quiet_until.get(kind, -math.inf))

    async def refresh(self) -> None:
        """Return once all lists were fetched, each by a fetch that began after this call. Raises FailedPrecondition."""
        link = self._link  # to notice whether the connection was lost meanwhile
        waiters = [(kind, anyio.Event()) for kind in self._due]
        self._waiters += waiters
        self._make_due(self._due)
        for _, fetched in waiters:
            await fetched.wait()
        was_broken_off = any(self._fault_code(kind) in core.INTERRUPTED_FETCH_CODES for kind in self._due)
        if link is None or self._link is not link or was_broken_off:
            raise FailedPrecondition(f"{self._config.name} is not connected", reason="SERVER_NOT_CONNECTED")

    def _prepare_lists(self, link: McpLink) -> frozenset[CatalogKind]:
        """Make the declared lists due, delete others; return the kinds announced only if the hub subscribes."""
        kinds, announced = core.declared_kinds(link.hello.capabilities), core.announced_kinds(link.hello.capabilities)
        subscribed = announced if link.hello.era is Era.STATELESS else frozenset[CatalogKind]()
        self._announced_kinds = announced - subscribed
        self._due = dict.fromkeys(kinds, self._clock.steady() + ACKNOWLEDGE_S if subscribed else -math.inf)
        self._catalog.delete_other_lists(self._config.name, kinds)
        for kind in kinds:
            if self._catalog.record(self._config.name, kind) is None:
                self._catalog.store(core.new_list(self._config.name, kind))
        return subscribed

    async def _keep_fresh(
        self, link: McpLink, connection_scope: anyio.CancelScope, subscribed: frozenset[CatalogKind]
    ) -> None:
        """Fetch the lists when they are due, and keep the subscription open, until the connection ends."""
        with connection_scope:
            async with anyio.create_task_group() as tasks:
                if subscribed:
                    tasks.start_soon(self._subscribe, link, subscribed)
                await self._fetch_due_lists(link)

    async def _fetch_due_lists(self, link: McpLink) -> None:
        """Fetch each list when it is due, one at a time and outside the call queue, until cancelled."""
        while True:
            kind = min(self._due, key=lambda each: self._due[each], default=None)
            wait_s = math.inf if kind is None else self._due[kind] - self._clock.steady()
            if kind is not None and wait_s <= 0:
                await self._fetch(link, kind)
                continue
            self._wake = anyio.Event()
            with anyio.move_on_after(None if math.isinf(wait_s) else wait_s):
                await self._wake.wait()

    async def _fetch(self, link: McpLink, kind: CatalogKind) -> None:
        """Fetch one list, store the outcome, and wake the callers of `refresh` that have waited for it until now."""
        waiters = [each for each in self._waiters if each[0] is kind]
        self._waiters = [each for each in self._waiters if each[0] is not kind]
        self._due[kind] = math.inf
        self._mark_outdated([kind])
        self._outdated.discard(kind)  # what is outdated from now on changed while the list was read
        announced = kind in self._changed_kinds
        self._changed_kinds.discard(kind)
        started_at, config = self._clock.steady(), self._config
        try:
            outcome = await self._fetch_pages(link, kind)
            if self._link is link:  # a fetch of a connection that has ended may still complete
                self._store_outcome(kind, outcome, started_at, announced=announced)
                if self._config is not config:  # the tool policy may have changed during the fetch
                    self._catalog.hide_tools(self._config)
        finally:
            for _, fetched in waiters:
                fetched.set()

    def _store_outcome(self, kind: CatalogKind, outcome: Pages | Fault, started_at: float, *, announced: bool) -> None:
        """Store the outcome of a fetch, and schedule the next one; the debounce doubles while notifications follow."""
        now, stamp = self._clock.steady(), self._clock.now()  # monotonic seconds; seconds since the epoch
        record = self._catalog.record(self._config.name, kind) or core.new_list(self._config.name, kind)
        if isinstance(outcome, Pages):
            self._note_endless_list(kind, outcome)
            record = core.after_fetch(record, len(outcome.entries), outcome.ttl_s, stamp)
            if kind in self._outdated:
                record = core.as_outdated(record)
            self._catalog.store(record, tuple(outcome.entries), announced=announced)
        else:
            if announced:
                self._changed_kinds.add(kind)
            log.warning(
                "catalog fetch failed",
                server=record.server,
                list=kind.value,
                code=outcome.code,
                message=outcome.message,
            )
            record = core.after_failed_fetch(record, outcome)
            self._catalog.store(record)
        was_debounced = started_at - self._quiet_until.get(kind, -math.inf) < QUIET_S  # began when first allowed
        self._quiet_s[kind] = min(2 * self._quiet_s[kind], LONGEST_QUIET_S) if was_debounced else QUIET_S
        self._quiet_until[kind] = now + max(self._quiet_s[kind], now - started_at)
        self._due[kind] = max(self._due[kind], self._quiet_until[kind])
        self._make_due([kind], now + core.next_fetch(record, stamp, notifies=kind in self._announced_kinds) - stamp)

    def _note_endless_list(self, kind: CatalogKind, pages: Pages) -> None:
        """Note about the server that its list was cut, as it had no end; remove the note once the list has an end."""
        for deviation, circular in ((Deviation.LIST_IN_CIRCLES, True), (Deviation.LIST_TOO_LONG, False)):
            end = pages.truncation if pages.truncation is not None and pages.truncation.is_loop is circular else None
            detail = end and f"{core.SOURCES[kind].method}, {end.reason}"
            self._note(f"{deviation}/{kind}", detail and describe_deviation(deviation, detail))

    async def _fetch_pages(self, link: McpLink, kind: CatalogKind) -> Pages | Fault:
        """Fetch a list over a connection, and return its pages, or the fault for which it could not be fetched."""
        pages = Pages(self._config.name, kind)
        try:
            with self.deadlines.limit(self._config.call_max_s):
                await self._read_pages(link, kind, pages)
                return pages
        except PeerError as refusal:
            # Templates have no capability of their own: a server without any may not know the method.
            has_no_templates = kind is CatalogKind.TEMPLATE and refusal.code == METHOD_NOT_FOUND
            return pages if has_no_templates else core.refusal_fault(refusal)
        except (UpstreamError, ListRefused) as exc:
            return exc.fault
        except Exception as exc:
            log.exception("catalog fetch failed: internal error", server=self._config.name, list=kind.value)
            problem = f"the hub failed: {type(exc).__name__}"
            return Fault(code="INTERNAL", category=Category.SERVER, message=problem, retryable=True)
        return core.timeout_fault(self._config.name, kind, self._config.call_max_s, "call_max_s")

    async def _read_pages(self, link: McpLink, kind: CatalogKind, pages: Pages) -> None:
        """Add all pages of a list to `pages`. Raises ListRefused (also if a page is late), PeerError, UpstreamError."""
        method, limit_s = core.SOURCES[kind].method, self._config.call_timeout_s
        while True:
            page: dict[str, Any] = {}
            with self.deadlines.limit(limit_s) as limit:
                page = await link.request(method, {"cursor": pages.cursor} if pages.cursor else None)
            if limit.cancelled_caught:
                raise ListRefused(core.timeout_fault(self._config.name, kind, limit_s, "call_timeout_s"))
            for _ in pages.add_in_steps(without_denied_tools(self._config, method, page)):
                await wait_for_turn()  # a large page must not hold up the loop
            if pages.cursor is None:
                return

    async def _subscribe(self, link: McpLink, kinds: frozenset[CatalogKind]) -> None:
        """Keep a subscription to changes open; refetch all lists at each acknowledgement, since nothing is replayed."""

        def on_acknowledged(honoured_filter: Mapping[str, Any]) -> None:
            """Note the kinds whose changes the server will announce, and fetch all lists soon."""
            if self._link is link:
                self._announced_kinds = core.honoured_kinds(honoured_filter)
                for kind in self._due:  # debounced, like a change
                    self._make_due([kind], self._quiet_until.get(kind, -math.inf))

        pause_s = FIRST_PAUSE_S
        while True:
            started_at = self._clock.steady()
            try:
                await link.listen(core.listen_filter(kinds), on_acknowledged)
            except (PeerError, UpstreamError) as exc:
                log.info("catalog subscription ended", server=self._config.name, error=str(exc))
                if isinstance(exc, PeerError) and exc.code == METHOD_NOT_FOUND:
                    self._make_due(self._due)  # there is no acknowledgement to wait for
                    return
            self._mark_outdated(self._announced_kinds)
            self._announced_kinds = frozenset()
            has_lasted = self._clock.steady() - started_at >= LAST_PAUSE_S
            pause_s = FIRST_PAUSE_S if has_lasted else pause_s
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _make_due(self, kinds: Iterable[CatalogKind], at: float = -math.inf) -> None:
        """Make lists due at a time in monotonic seconds (by default at once), unless they are due earlier."""
        for kind in kinds:
            self._due[kind] = min(self._due[kind], at)
        self._wake.set()

    def _mark_outdated(self, kinds: Collection[CatalogKind]) -> None:
        """Mark the lists of these kinds as outdated (may have changed since the fetch), here and in their records."""
        self._outdated.update(kinds)
        self._change_records(core.as_outdated, kinds)

    def _change_records(self, change: Callable[[CatalogList], CatalogList], kinds: Iterable[CatalogKind]) -> None:
        """Change the records of the lists of these kinds, where there are records."""
        for kind in kinds:
            if (record := self._catalog.record(self._config.name, kind)) is not None:
                self._catalog.store(change(record))

    def _fault_code(self, kind: CatalogKind) -> str:
        """Return the code of the fault with which a list's last fetch failed; "" if it did not fail."""
        record = self._catalog.record(self._config.name, kind)
        return record.fault.code if record is not None and record.fault is not None else ""

    def _release_waiters(self) -> None:
        """Wake all callers of `refresh`: no fetch that they wait for will come."""
        for _, fetched in self._waiters:
            fetched.set()
        self._waiters = []
