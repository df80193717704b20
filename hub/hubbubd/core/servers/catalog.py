"""The catalog, a cache of what servers offer: one list per kind, with its freshness and when to fetch it again.

    unknown ──fetched──> fresh | empty <──fetched── stale | error    (stale, if it was changed meanwhile)
                         fresh | empty ──changed, away, time over──> stale
                         any ──fetch failed──> error (the entries of the fetch before stay)

A list is invalidated by a `list_changed` notification (2025-11-25: sent unasked; 2026-07-28: through
`subscriptions/listen`) and by the end of its cache time (`ttlMs`, 2026-07-28).
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast

from hubbubd import bounds, payload
from hubbubd.bounds import Count, Moment, Span
from hubbubd.core.jsonrpc import INTERNAL_ERROR
from hubbubd.core.servers import backoff
from hubbubd.errors import Category, Fault, FaultCode, PeerError

MAX_PAGES = 1000
"""Pages of one list: a cursor that leads in circles ends here."""
MAX_ENTRIES = 100_000
"""Entries of one list, a hundred to a page."""
MAX_BYTES = 16 * 1024 * 1024
"""Bytes of the entries of one list."""

ENTRIES_PER_STEP = 1000
"""How many entries are read before other work on the event loop gets a turn."""

TTL_FLOOR_S = 30.0
"""A shorter cache time does not make the hub fetch more often than this."""

RETRY_S = 60.0
"""Seconds until a failed fetch is retried, if its fault is retryable."""

INTERRUPTED_FETCH_CODES = frozenset({FaultCode.CONNECTION_LOST, FaultCode.SESSION_LOST})
"""Fault codes of a fetch that was interrupted by the end of its connection."""


SKILLS = "io.modelcontextprotocol/skills"
"""The extension that declares skills."""


class CatalogKind(StrEnum):
    """Kind of catalog entry; each has a list of its own."""

    TOOL = "tool"
    RESOURCE = "resource"
    TEMPLATE = "template"
    PROMPT = "prompt"
    SKILL = "skill"


class Freshness(StrEnum):
    """How far a cached list can be relied on."""

    UNKNOWN = "unknown"
    FRESH = "fresh"
    STALE = "stale"
    ERROR = "error"
    EMPTY = "empty"


_ORDER = {str(kind): at for at, kind in enumerate(CatalogKind)}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a kind's list comes from on the wire.

    `method` returns the list in the result's `member`. The server declares it by the capability `capability`, or by the
    `extension` if the kind has one. The method `change_notification` invalidates it; `listen_flag` asks for that
    notification in `subscriptions/listen`.
    """

    method: str
    member: str
    capability: str
    change_notification: str
    listen_flag: str
    extension: str = ""


SOURCES: Mapping[CatalogKind, Source] = MappingProxyType(
    {
        CatalogKind.TOOL: Source(
            "tools/list", "tools", "tools", "notifications/tools/list_changed", "toolsListChanged"
        ),
        CatalogKind.RESOURCE: Source(
            "resources/list", "resources", "resources", "notifications/resources/list_changed", "resourcesListChanged"
        ),
        CatalogKind.TEMPLATE: Source(
            "resources/templates/list",
            "resourceTemplates",
            "resources",
            "notifications/resources/list_changed",
            "resourcesListChanged",
        ),
        CatalogKind.PROMPT: Source(
            "prompts/list", "prompts", "prompts", "notifications/prompts/list_changed", "promptsListChanged"
        ),
        CatalogKind.SKILL: Source(
            "skills/list",
            "skills",
            "resources",
            "notifications/resources/list_changed",  # files of skills are resources; the extension has none of its own
            "resourcesListChanged",
            SKILLS,
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogList:
    """One list of one server, without its entries. `ttl_s` is its cache time; None when the server gave none."""

    id: str
    server: str
    kind: CatalogKind
    freshness: Freshness = Freshness.UNKNOWN
    fetched_at: Moment | None = None
    fault: Fault | None = None
    count: Count = 0
    ttl_s: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntries:
    """The entries of the list with the same id: MCP objects as JSON, in the server's order.

    A record of its own, so that a change of freshness, which is frequent, does not write the entries again.
    """

    id: str
    entries: tuple[bytes, ...]


class ListRefused(Exception):
    """A server's list is malformed, or took too long; `fault` says how."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def list_id(server: str, kind: CatalogKind) -> str:
    """Return the id of a list. Server names have no slash."""
    return f"{server}/{kind}"


def sort_key(id_: str) -> tuple[str, int]:
    """Return the sort key of a list id: by server, then by kind. Text that is no list id comes first."""
    server, _, kind = id_.rpartition("/")
    return server, _ORDER.get(kind, -1)


def parse_list_id(id_: str) -> tuple[str, CatalogKind] | None:
    """Return the server and kind of a list id; None if it is none."""
    server, _, kind = id_.rpartition("/")
    return (server, CatalogKind(kind)) if kind in _ORDER else None


def new_list(server: str, kind: CatalogKind) -> CatalogList:
    """Return a list that has not been fetched yet."""
    return CatalogList(id=list_id(server, kind), server=server, kind=kind)


def declared_kinds(capabilities: Mapping[str, Any]) -> tuple[CatalogKind, ...]:
    """Return the kinds whose capability the server declares."""
    declared_extensions = _as_mapping(capabilities.get("extensions"))
    return tuple(
        kind
        for kind, source in SOURCES.items()
        if isinstance(
            declared_extensions.get(source.extension) if source.extension else capabilities.get(source.capability),
            Mapping,
        )
    )


def _as_mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def announced_kinds(capabilities: Mapping[str, Any]) -> frozenset[CatalogKind]:
    """Return the kinds for which the server declares `listChanged`."""
    return frozenset(
        kind
        for kind in declared_kinds(capabilities)
        if _as_mapping(capabilities.get(SOURCES[kind].capability)).get("listChanged") is True
    )


def kinds_changed_by(method: str) -> frozenset[CatalogKind]:
    """Return the kinds whose list a notification invalidates."""
    return frozenset(kind for kind, source in SOURCES.items() if source.change_notification == method)


def listen_filter(kinds: Iterable[CatalogKind]) -> dict[str, Any]:
    """Return the filter of `subscriptions/listen` for changes of these kinds (2026-07-28)."""
    return {SOURCES[kind].listen_flag: True for kind in kinds}


def honoured_kinds(acknowledged: Mapping[str, Any]) -> frozenset[CatalogKind]:
    """Return the kinds that an acknowledged `subscriptions/listen` filter covers."""
    return frozenset(kind for kind, source in SOURCES.items() if acknowledged.get(source.listen_flag) is True)


def after_fetch(before: CatalogList, count: int, ttl_s: float | None, now: float) -> CatalogList:
    """Return the list after a successful fetch.

    No capability announces templates separately, so an empty list of templates is FRESH and not EMPTY.
    """
    is_empty = count == 0 and before.kind is not CatalogKind.TEMPLATE
    freshness = Freshness.EMPTY if is_empty else Freshness.FRESH
    return replace(before, freshness=freshness, fetched_at=now, fault=None, count=count, ttl_s=ttl_s)


def after_failed_fetch(before: CatalogList, fault: Fault) -> CatalogList:
    """Return the list after a failed fetch; the entries of the last good fetch stay."""
    return replace(before, freshness=Freshness.ERROR, fault=fault)


def as_outdated(before: CatalogList) -> CatalogList:
    """Return the list as stale if it was valid: it was changed at the server, or its cache time is over."""
    was_valid = before.freshness in (Freshness.FRESH, Freshness.EMPTY)
    return replace(before, freshness=Freshness.STALE) if was_valid else before


def refusal_fault(refusal: PeerError) -> Fault:
    """Return the fault of a list that the server refused."""
    return Fault(
        code="SERVER_ERROR",
        category=Category.SERVER,
        message=refusal.message,
        retryable=refusal.code == INTERNAL_ERROR,
        details={"jsonrpc_code": refusal.code, "jsonrpc_message": refusal.message},
    )


def timeout_fault(server: str, kind: CatalogKind, limit_s: float, option: str) -> Fault:
    """Return the fault of a list that took longer than the limit of an option."""
    method = SOURCES[kind].method
    return Fault(
        code="CALL_TIMEOUT",
        category=Category.TIMEOUT,
        message=f"{server} did not finish {method} within {limit_s:g} s ({option})",
        retryable=True,
        details={"server": server, "method": method, "limit_s": limit_s},
    )


def after_disconnect(before: CatalogList) -> CatalogList:
    """Return the list after the connection ended. A fetch that this end interrupted does not count as failed."""
    if before.fault is None or before.fault.code not in INTERRUPTED_FETCH_CODES:
        return as_outdated(before)
    freshness = Freshness.UNKNOWN if before.fetched_at is None else Freshness.STALE
    return replace(before, freshness=freshness, fault=None)


def next_fetch(record: CatalogList, now: float, *, notifies: bool) -> float:
    """Return when to fetch the list again if nothing invalidates it before: seconds since the epoch, or infinity.

    `notifies` says whether the server notifies of changes. If so, a cache time of 0 (do not cache) causes no polling.
    """
    if record.fault is not None:
        return (
            now + max(RETRY_S, backoff.clamp_retry_after_s(record.fault.retry_after_s))
            if record.fault.retryable
            else math.inf
        )
    if record.ttl_s is None or record.fetched_at is None or (notifies and record.ttl_s == 0):
        return math.inf
    return record.fetched_at + max(record.ttl_s, TTL_FLOOR_S)


@dataclass(frozen=True, slots=True)
class Truncation:
    """Why the rest of a list was not read: a cursor came a second time (`is_loop`), or the list is too long."""

    is_loop: bool
    reason: str


class Pages:
    """Collects the pages of one list, within the bounds.

    After each page, `cursor` is that of the next page; None at the end. `truncation` says why the rest of the list is
    not read; None if there is no rest.
    """

    def __init__(self, server: str, kind: CatalogKind) -> None:
        """Begin without any page of the server's list of this kind."""
        self.entries: list[bytes] = []
        self.ttl_s: float | None = None
        self.cursor: str | None = None
        self.truncation: Truncation | None = None
        self._server = server
        self._source = SOURCES[kind]
        self._size = 0  # bytes of the entries
        self._pages = 0
        self._cursors: set[str] = set()  # of all pages so far, to notice one that comes again

    def add(self, result: Mapping[str, Any]) -> str | None:
        """Add the entries of a `*/list` result, and return the cursor of the next page. Raises ListRefused."""
        for _ in self.add_in_steps(result):
            pass
        return self.cursor

    def add_in_steps(self, result: Mapping[str, Any]) -> Iterator[None]:
        """Add the entries of a `*/list` result, and set `cursor` to that of the next page. Raises ListRefused.

        Yields after each ENTRIES_PER_STEP of entries: a long page must not block the event loop.
        """
        self._pages += 1
        entries = result.get(self._source.member)
        if not isinstance(entries, list):
            raise self._make_refusal("INVALID_RESPONSE", f"has no {self._source.member}")
        for at, entry in enumerate(cast("list[object]", entries)):
            if at and at % ENTRIES_PER_STEP == 0:
                yield
            if not self._add_entry(payload.dumps(entry)):
                break
        ttl_ms = bounds.clamp_whole(result.get("ttlMs"), high=bounds.LONGEST_MS)
        if ttl_ms is not None:  # the shortest cache time of all pages counts
            self.ttl_s = min(ttl_ms / 1000, bounds.LONGEST_S if self.ttl_s is None else self.ttl_s)
        # Servers that send an empty cursor mean that there is no next page.
        self.cursor = self._choose_next_cursor(result.get("nextCursor") or None)

    def _add_entry(self, entry: bytes) -> bool:
        """Add an entry and return True. Beyond a bound, set `truncation` instead, and return False."""
        if len(self.entries) >= MAX_ENTRIES:
            self.truncation = Truncation(False, f"more than {MAX_ENTRIES} entries")
        elif self._size + len(entry) > MAX_BYTES:
            self.truncation = Truncation(False, f"more than {MAX_BYTES} bytes")
        else:
            self.entries.append(entry)
            self._size += len(entry)
        return self.truncation is None

    def _choose_next_cursor(self, cursor: str | None) -> str | None:
        """Return the cursor of the next page; None at the end, and if the rest is not read: then set `truncation`."""
        if cursor is None or self.truncation is not None:
            return None
        if cursor in self._cursors:
            self.truncation = Truncation(True, f"page {self._pages}")
        elif self._pages >= MAX_PAGES:
            self.truncation = Truncation(False, f"more than {MAX_PAGES} pages")
        self._cursors.add(cursor)
        return None if self.truncation else cursor

    def _make_refusal(self, code: str, problem: str) -> ListRefused:
        """Return the error for a page that does not have the shape that MCP demands."""
        details = {"server": self._server, "method": self._source.method, "pages": self._pages}
        message = f"{self._source.method} of {self._server} {problem}"
        return ListRefused(Fault(code=code, category=Category.PROTOCOL, message=message, details=details))
