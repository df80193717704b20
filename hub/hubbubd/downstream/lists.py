"""What an endpoint lists, in pages: the entries of the catalog as a host's revision has them."""

import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from hubbubd import bounds, payload
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.core.servers.catalog import CatalogKind
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.protocol import messages, revisions
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.views.first_lists import FirstLists
from hubbubd.downstream.views.view import EndpointView, list_member
from hubbubd.runtime.hub import Hub
from hubbubd.timing.turns import run_in_turns

PAGE_ENTRIES: Final = 5000
"""Entries of one page: many hosts read only the first."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of a page with more than one entry."""

MAX_MOVED: Final = 5000
"""Places by which an entry may have moved since a page ended with it."""

LISTS: Final[Mapping[str, CatalogKind]] = MappingProxyType(
    {
        "tools/list": CatalogKind.TOOL,
        "prompts/list": CatalogKind.PROMPT,
        "resources/list": CatalogKind.RESOURCE,
        "resources/templates/list": CatalogKind.TEMPLATE,
        "skills/list": CatalogKind.SKILL,
    }
)
"""The kind that each method lists."""

_KEY_MEMBERS: Final = {
    CatalogKind.TOOL: "name",
    CatalogKind.PROMPT: "name",
    CatalogKind.RESOURCE: "uri",
    CatalogKind.TEMPLATE: "uriTemplate",
    CatalogKind.SKILL: "uri",
}


class EndpointLists:
    """The lists of one endpoint."""

    def __init__(self, hub: Hub, view: EndpointView) -> None:
        self._hub = hub
        self._view = view
        self._first_lists = FirstLists(hub, view)

    async def wait_for_first_lists(self, kind: CatalogKind, request: HostRequest) -> None:
        """Wait for servers that are about to list this kind for the first time; a short time at most."""
        await self._first_lists.wait(kind, request.host.principal)

    async def render_page(self, request: HostRequest) -> bytes:
        """Return the page of a list that a host asks for. Raises Refusal."""
        kind = LISTS[request.method]
        await self.wait_for_first_lists(kind, request)
        await self._view.settle(kind)
        entries = self._view.entries(kind, request.host.principal, apps=request.host.shows_apps)
        begin = await run_in_turns(_find_page_start(request.params.get("cursor"), kind, entries))
        page = await run_in_turns(_make_page(kind, entries[begin : begin + PAGE_ENTRIES], request.host.revision))
        members: dict[str, Any] = cache_members(request, self._ttl_ms(kind, request))
        end = begin + len(page)
        if end < len(entries):
            members["nextCursor"] = f"{end}.{_make_mark(kind, entries[end - 1])}"
        raw_list = b'{"' + list_member(kind).encode() + b'":[' + b",".join(page) + b"]}"
        return messages.with_members(raw_list, **members)

    def _ttl_ms(self, kind: CatalogKind, request: HostRequest) -> int:
        """Return for how many milliseconds a host may cache a list: the least time that the view's servers allow."""
        list_records = [self._hub.catalog.record(server, kind) for server in self._view.servers(request.host.principal)]
        least_s = min((each.ttl_s or 0.0 for each in list_records if each is not None), default=0.0)
        return bounds.clamp_whole(1000 * least_s, high=bounds.LONGEST_MS) or 0


def cache_members(request: HostRequest, ttl_ms: int) -> dict[str, Any]:
    """Return the members of a result about caching, for a revision without a handshake; none for other revisions."""
    if not request.host.stateless:
        return {}
    return {"resultType": "complete", "ttlMs": ttl_ms, "cacheScope": "private"}


def _make_page(kind: CatalogKind, entries: Iterable[bytes], revision: str) -> Generator[None, None, list[bytes]]:
    """Return the entries that fit on one page, as a revision has them; made in short steps."""
    page: list[bytes] = []
    size = 0
    for raw in entries:
        yield
        entry = revisions.render_entry(kind, raw, revision)
        size += len(entry)
        if size > PAGE_BYTES and page:
            break
        page.append(entry)
    return page


def _find_page_start(cursor: object, kind: CatalogKind, entries: Sequence[bytes]) -> Generator[None, None, int]:
    """Return the index of a page's first entry, by the cursor of the request; in short steps. Raises Refusal.

    A cursor has the index of that entry, and the mark of the entry before (a hash of its name or URI). If that entry
    has moved, it is looked for up to MAX_MOVED places away.
    """
    if cursor is None:
        return 0
    index_text, _, mark = cursor.partition(".") if isinstance(cursor, str) else ("", "", "")
    index = bounds.parse_whole(index_text, high=2**31)
    if index and mark:
        if index <= len(entries) and _make_mark(kind, entries[index - 1]) == mark:
            return index
        lowest = max(index - MAX_MOVED, 0)
        for new_index, entry in enumerate(entries[lowest : index + MAX_MOVED], lowest + 1):
            yield
            if _make_mark(kind, entry) == mark:
                return new_index
    raise Refusal(INVALID_PARAMS, "params.cursor is not one of this list's, or not any more; begin again without it")


def _make_mark(kind: CatalogKind, entry: bytes) -> str:
    """Return the mark of an entry in a cursor: a hash of the entry's name or URI."""
    name_or_uri: object = payload.loads(entry).get(_KEY_MEMBERS[kind])
    return hashlib.sha256(payload.dumps(name_or_uri)).hexdigest()[:16]
