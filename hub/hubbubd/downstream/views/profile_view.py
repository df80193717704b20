"""The view of a profile: several servers as one, with names and URIs that tell them apart.

    catalog (all servers' lists) ──> groups (`lists`) ──> a _KindTable for each kind ──> lists and targets

A table is made when it is needed: at once where little has changed, else in turns, while its hosts wait (`settle`).

What a principal may not call is left out when it asks; the tables are the same for all, so names never depend on who
looks.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hubbub_shared import __version__
from hubbubd import payload
from hubbubd.config.sections.mcp import PEOPLE, ProfileSettings
from hubbubd.core.access import Permission, Principal
from hubbubd.core.hosts.headings import without_headings
from hubbubd.core.hosts.host_names import NameRule
from hubbubd.core.hosts.host_uris import added, may_have_uris, owners, rewritten, stripped
from hubbubd.core.hosts.tool_search import Index, search_in_steps
from hubbubd.core.servers.catalog import CatalogKind, list_id
from hubbubd.downstream.views.list_groups import (
    MATCHED_CHARS,
    NAMED,
    URI,
    ChainedLists,
    ListEntry,
    ListGroup,
    ListGroups,
    ListRendering,
    Source,
    indexed,
)
from hubbubd.downstream.views.own_tools import listed
from hubbubd.downstream.views.question_policy import QuestionPolicy
from hubbubd.downstream.views.view import ConfiguredQuestionPolicy, EndpointIntroduction, ServerTarget
from hubbubd.errors import InvalidArgument, NotFound
from hubbubd.runtime.hub import Hub
from hubbubd.timing.turns import at_once, in_turns

AT_ONCE: Final = 1000
"""Entries of changed lists that are read when they are needed; more are made ready in turns."""

AT_ONCE_BYTES: Final = 256 * 1024
"""And their bytes."""

ROUNDS: Final = 5
"""How often a table is made while lists change meanwhile; then the last one will do until the next look."""


INSTRUCTIONS: Final = 2000
"""Characters of the instructions of all servers: some hosts cut them a little beyond."""
INSTRUCTIONS_EACH: Final = 400
"""Characters of one server's."""
CUT: Final = " [... cut here]"
"""The end of what was longer."""
LONGEST_WORD: Final = 40
"""Characters within which a word ends, else it is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KindTable:
    """What a profile shows of a kind, as catalog and settings were at `version`."""

    version: int
    settings: ProfileSettings
    groups: dict[str, ListGroup]
    """By server."""

    distinct: tuple[ListGroup, ...]
    """The same, each once."""

    chosen: bool
    """Whether some are left out by their names."""

    entries: dict[str, tuple[ListEntry, ...]]
    """By server, what there is."""

    listed: dict[str, tuple[bytes, ...]]
    """By server, what is listed of it."""

    indexes: dict[str, Index] = field(default_factory=dict[str, Index])
    """By server, where a profile shows a part of its tools; made by the first search."""

    def index(self, server: str) -> Generator[None, None, Index]:
        """Return what a search looks at of a server's tools, made in short steps if it is not there."""
        group, entries = self.groups[server], self.entries[server]
        kept = group.indexes if entries is group.entries[server] else self.indexes
        if server not in kept:
            kept[server] = yield from indexed(entries)
        return kept[server]

    def has_same(self, server: str, group: ListGroup) -> bool:
        """Return whether a server's entries are those of this group."""
        return server in self.groups and self.groups[server].entries[server] is group.entries[server]

    def find(self, named: str) -> ListEntry | None:
        """Return the entry that hosts see under a name."""
        shown = self.settings.has_tool(named) if self.chosen else True
        found = (group.by_name.get(named) for group in self.distinct) if shown else ()
        return next((entry for entry in found if entry is not None), None)


class ProfileView:
    """Implements `profiles.View` for a profile; `settings` returns its settings as they are now."""

    transparent = False

    def __init__(
        self, hub: Hub, name: str, settings: Callable[[], ProfileSettings], lists: ListGroups | None = None
    ) -> None:
        """`lists` are shared with other profiles."""
        self.name = f"p/{name}"
        self._hub = hub
        self._profile = name
        self._settings = settings
        self._policy = ConfiguredQuestionPolicy(named=True)
        self._lists = lists or ListGroups()
        self._chosen: tuple[int, ProfileSettings | None, tuple[str, ...]] = (-1, None, ())
        self._made: dict[CatalogKind, _KindTable] = {}
        self._making: dict[CatalogKind, asyncio.Task[None]] = {}

    @property
    def policy(self) -> QuestionPolicy:
        """As `View.policy`."""
        return self._policy.of(self._settings())

    def servers(self, principal: Principal) -> list[str]:
        """As `View.servers`."""
        return [name for name in self._servers(self._settings()) if principal.may(Permission.CALL, name)]

    def shows(self, server: str, principal: Principal) -> bool:
        """As `View.shows`."""
        if server == PEOPLE and self.people:
            return principal.may(Permission.CALL, server)
        return server in self.servers(principal)

    @property
    def people(self) -> bool:
        """As `View.people`."""
        return self._settings().people

    def introduction(self, principal: Principal) -> EndpointIntroduction:
        """As `View.introduction`: what any of the servers can do."""
        settings = self._settings()
        found = map(self._hub.servers.find, self.servers(principal))
        records = [record for record in found if record is not None]
        capable: list[dict[str, Any]] = [payload.loads(record.capabilities or b"{}") for record in records]
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        if settings.prompts:
            capabilities["prompts"] = {"listChanged": True}
        if settings.resources:
            resources: list[dict[str, Any]] = [each.get("resources") or {} for each in capable]
            subscribed = any(each.get("subscribe") is True for each in resources)
            capabilities["resources"] = {"listChanged": True} | ({"subscribe": True} if subscribed else {})
        capabilities |= {name: {} for name in ("completions", "logging") if any(name in each for each in capable)}
        info = {"name": "hubbub", "title": "Hubbub", "version": __version__}
        told = {record.name: record.instructions for record in records if record.instructions}
        return EndpointIntroduction(info, capabilities, _instructions(settings.instructions, told) or None)

    async def settle(self, kind: CatalogKind) -> None:
        """As `View.settle`. One task makes it for all who wait, and goes on when they do not."""
        for _ in range(ROUNDS):
            if self.is_settled(kind):
                return
            if kind not in self._making:
                task = self._making[kind] = asyncio.get_running_loop().create_task(self._make_ready(kind))
                task.add_done_callback(lambda _: self._making.pop(kind))
            await asyncio.shield(self._making[kind])

    def is_settled(self, kind: CatalogKind) -> bool:
        """As `View.is_settled`."""
        return self._current(kind) is not None or self._is_little(kind)

    def entries(self, kind: CatalogKind, principal: Principal) -> Sequence[bytes]:
        """As `View.entries`."""
        table = self._table(kind)
        own = listed(table.settings) if kind is CatalogKind.TOOL else ()
        return ChainedLists([own, *(table.listed.get(server, ()) for server in self.servers(principal))])

    def entry(self, kind: CatalogKind, named: str, principal: Principal) -> bytes | None:
        """As `View.entry`."""
        found = self._table(kind).find(named)
        return found.shown if found is not None and principal.may(Permission.CALL, found.server) else None

    @property
    def searched(self) -> bool:
        """As `View.searched`."""
        return self._settings().tools == "search"

    async def search(self, query: str, most: int, principal: Principal) -> list[bytes]:
        """As `View.search`."""
        await self.settle(CatalogKind.TOOL)
        return await in_turns(self._searching(query, most, self._table(CatalogKind.TOOL), self.servers(principal)))

    def _searching(
        self, query: str, most: int, table: _KindTable, seen: list[str]
    ) -> Generator[None, None, list[bytes]]:
        indexes: list[Index] = []
        for server in filter(table.entries.__contains__, seen):
            index = yield from table.index(server)
            indexes.append(index)
        found = yield from search_in_steps(indexes, query, most)
        return [entry.shown for name in found if (entry := table.find(name)) is not None]

    def target(self, kind: CatalogKind, named: str, principal: Principal) -> ServerTarget:
        """As `View.target`. Raises InvalidArgument for a URI that several servers have."""
        return self._resource(named, principal) if kind in URI else self._by_name(kind, named, principal)

    def shown(self, server: str, result: bytes) -> bytes:
        """As `View.shown`: URIs say which server they are of."""
        return payload.dumps(rewritten(payload.loads(result), server)) if may_have_uris(result) else result

    def _by_name(self, kind: CatalogKind, named: str, principal: Principal) -> ServerTarget:
        found = self._table(kind).find(named)
        if found is None or not principal.may(Permission.CALL, found.server):
            raise NotFound("tool", named) if kind is CatalogKind.TOOL else NotFound("prompt", named)
        return ServerTarget(found.server, found.own)

    def _resource(self, uri: str, principal: Principal) -> ServerTarget:
        seen = self.servers(principal)
        if (found := stripped(uri)) is not None and found[0] in seen and self._settings().resources:
            return ServerTarget(*found)
        resources, templates = (self._table(each).groups for each in (CatalogKind.RESOURCE, CatalogKind.TEMPLATE))
        uris = {server: resources[server].by_name for server in seen if server in resources}
        room = MATCHED_CHARS // max(sum(bool(each.templates) for each in templates.values()), 1)
        fitting = {server: _within(room, templates[server].templates) for server in seen if server in templates}
        known = owners(uri, uris, fitting)
        if len(known) > 1:
            several = " and ".join(added(name, uri) for name in known)
            raise InvalidArgument.field("params.uri", f"several servers have it: name one of them, {several}")
        if not known:
            raise NotFound("resource", uri)
        return ServerTarget(known[0], uri)

    # Tables

    def _servers(self, settings: ProfileSettings) -> tuple[str, ...]:
        version, known, servers = self._chosen
        if version != self._hub.catalog.version or known != settings:
            servers = tuple(name for name in self._hub.catalog.servers() if settings.has_server(name))
            self._chosen = self._hub.catalog.version, settings, servers
        return servers

    def _sources(self, kind: CatalogKind, settings: ProfileSettings) -> dict[str, Source]:
        hidden = (kind is CatalogKind.PROMPT and not settings.prompts) or (kind in URI and not settings.resources)
        servers = () if hidden else self._servers(settings)
        return {server: self._hub.catalog.entries(list_id(server, kind)) for server in servers}

    def _current(self, kind: CatalogKind) -> _KindTable | None:
        table = self._made.get(kind)
        if table is None or table.version != self._hub.catalog.version or table.settings != self._settings():
            return None
        return table

    def _is_little(self, kind: CatalogKind) -> bool:
        """Return whether what is not made yet is little."""
        settings = self._settings()
        way = _way(kind, settings)
        before = self._like(kind, settings)
        same = before.groups if before is not None else {}
        unmade: list[Source] = []
        for lists in _grouped(way, self._sources(kind, settings)):
            group = self._lists.known(way, lists)
            if group is None or (_chooses(kind, settings) and not all(same.get(server) is group for server in lists)):
                unmade += lists.values()
        if sum(map(len, unmade)) > AT_ONCE:
            return False
        return sum(len(entry) for source in unmade for entry in source) <= AT_ONCE_BYTES

    def _like(self, kind: CatalogKind, settings: ProfileSettings) -> _KindTable | None:
        """Return the last table if it was made with these settings."""
        before = self._made.get(kind)
        return before if before is not None and before.settings == settings else None

    def _table(self, kind: CatalogKind) -> _KindTable:
        """Return the table as it is now; a somewhat older one while much has to be made."""
        current = self._current(kind)
        if current is None and (kind not in self._made or self._is_little(kind)):
            current = self._made[kind] = at_once(self._tabling(kind))
        return current or self._made[kind]

    async def _make_ready(self, kind: CatalogKind) -> None:
        self._made[kind] = await in_turns(self._tabling(kind))

    def _tabling(self, kind: CatalogKind) -> Generator[None, None, _KindTable]:
        settings, version = self._settings(), self._hub.catalog.version
        sources, way = self._sources(kind, settings), _way(kind, settings)
        groups: dict[str, ListGroup] = {}
        distinct: list[ListGroup] = []
        for lists in _grouped(way, sources):
            distinct.append((yield from self._lists.making(way, lists)))
            groups |= dict.fromkeys(lists, distinct[-1])
        entries = {server: groups[server].entries[server] for server in sources}
        shown = {server: groups[server].shown[server] for server in sources}
        indexes: dict[str, Index] = {}
        if _chooses(kind, settings):
            before = self._like(kind, settings)
            same = [each for each in sources if before is not None and before.has_same(each, groups[each])]
            found = {server: entries[server] for server in sources if server not in same}
            if _filters(settings):
                found = yield from _chosen(found, settings.has_tool)
            pinned = (yield from _chosen(found, settings.pins_tool)) if settings.tools == "search" else found
            entries |= found
            shown |= {server: tuple(each.shown for each in chosen) for server, chosen in pinned.items()}
            if before is not None:
                entries |= {server: before.entries[server] for server in same}
                shown |= {server: before.listed[server] for server in same}
                indexes |= {server: before.indexes[server] for server in same if server in before.indexes}
        return _KindTable(
            version=version,
            settings=settings,
            groups=groups,
            distinct=tuple(distinct),
            chosen=kind is CatalogKind.TOOL and _filters(settings),
            entries=entries,
            listed=shown,
            indexes=indexes,
        )


def _filters(settings: ProfileSettings) -> bool:
    return (settings.allow_tools, settings.deny_tools) != (("*",), ())


def _chooses(kind: CatalogKind, settings: ProfileSettings) -> bool:
    """Return whether each entry is compared with patterns, which is as much work as to make it."""
    return kind is CatalogKind.TOOL and (_filters(settings) or settings.tools == "search")


def _way(kind: CatalogKind, settings: ProfileSettings) -> ListRendering:
    if kind not in NAMED:
        return ListRendering(kind=kind)
    rule = NameRule(alias=settings.alias, prefixed=settings.prefix == "always", longest=settings.max_tool_name)
    return ListRendering(kind=kind, rule=rule, flat=kind is CatalogKind.TOOL and settings.flatten_schemas)


def _grouped(way: ListRendering, sources: dict[str, Source]) -> list[dict[str, Source]]:
    """Return the servers with their lists, those together whose names may be in each other's way."""
    groups: dict[str, dict[str, Source]] = {}
    for server, source in sources.items():
        key = server if way.rule is None else way.rule.prefix(server)
        groups.setdefault(key, {})[server] = source
    return list(groups.values())


def _chosen(
    entries: dict[str, tuple[ListEntry, ...]], fit: Callable[[str], bool]
) -> Generator[None, None, dict[str, tuple[ListEntry, ...]]]:
    """Return the entries whose names fit."""
    chosen: dict[str, tuple[ListEntry, ...]] = {}
    for server, all_of_it in entries.items():
        found: list[ListEntry] = []
        for entry in all_of_it:
            yield
            if fit(entry.name):
                found.append(entry)
        chosen[server] = tuple(found)
    return chosen


def _within(room: int, templates: Iterable[str]) -> Iterator[str]:
    """Yield the first templates, so many characters of them in all."""
    for each in templates:
        room -= len(each)
        if room < 0:
            return
        yield each


def _instructions(first: str, told: Mapping[str, str]) -> str:
    parts = [first] if first else []
    parts += [f"## {server}\n{_cut(without_headings(text), INSTRUCTIONS_EACH)}" for server, text in told.items()]
    return _cut("\n\n".join(parts), INSTRUCTIONS)


def _cut(text: str, most: int) -> str:
    """Return a text of so many characters at most, marked where it was cut: behind a word, if one ends near."""
    if len(text) <= most:
        return text
    kept = text[: most - len(CUT)]
    words = kept[:-LONGEST_WORD] + kept[-LONGEST_WORD:].rpartition(" ")[0]
    return (words if len(words) > len(kept) - LONGEST_WORD else kept).rstrip() + CUT
