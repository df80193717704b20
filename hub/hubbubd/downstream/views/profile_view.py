"""The view of a profile: several servers as one, with names and URIs that tell them apart.

    catalog (all servers' lists) ──> ListGroups ──> a KindTable for each kind ──> lists and targets

A table is made when it is needed: at once where little has changed, else in turns, while its hosts wait (`settle`).
The tables are the same for all principals, so names are. What a principal may not call is left out of its answers.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hubbub_shared import __version__
from hubbubd import payload
from hubbubd.config.sections.mcp import PEOPLE, ProfileSettings
from hubbubd.core.access import Permission, Principal
from hubbubd.core.hosts.app_tools import PagesRead, select_servers
from hubbubd.core.hosts.extensions import declared_by_profile, extension_entries
from hubbubd.core.hosts.headings import without_headings
from hubbubd.core.hosts.host_names import NameRule
from hubbubd.core.hosts.host_uris import (
    USUAL_SPELLING,
    Spelling,
    add_prefix,
    find_owners,
    is_page,
    may_have_uris,
    rewrite_uris,
    split_prefix,
)
from hubbubd.core.hosts.skills import declared_skills
from hubbubd.core.hosts.tool_search import Index, search_in_steps
from hubbubd.core.servers.catalog import CatalogKind, list_id
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.downstream.views.kind_table import KindTable, filter_in_steps
from hubbubd.downstream.views.list_groups import (
    MATCHED_CHARS,
    NAMED_KINDS,
    URI_MEMBERS,
    ChainedLists,
    ListEntry,
    ListGroup,
    ListGroups,
    ListRendering,
    Source,
)
from hubbubd.downstream.views.own_tools import own_tool_entries
from hubbubd.downstream.views.question_policy import QuestionPolicy
from hubbubd.downstream.views.view import (
    ConfiguredQuestionPolicy,
    EndpointIntroduction,
    ServerTarget,
    expected_extensions,
)
from hubbubd.errors import InvalidArgument, NotFound
from hubbubd.runtime.hub import Hub
from hubbubd.timing.turns import run_at_once, run_in_turns

ENTRIES_AT_ONCE: Final = 1000
"""Entries of changed lists that are read when they are needed; more, or more than BYTES_AT_ONCE, are read in turns."""
BYTES_AT_ONCE: Final = 256 * 1024
MAX_ROUNDS: Final = 5
"""How often `settle` makes a table again if lists change meanwhile; then it leaves the last one."""
MAX_NAMED: Final = 10
"""Candidates that an error names."""
MAX_INSTRUCTIONS: Final = 2000
"""Characters of the instructions of all servers: some hosts cut them a little beyond."""
MAX_SERVER_INSTRUCTIONS: Final = 400
CUT_MARK: Final = " [... cut here]"
MAX_WORD: Final = 40
"""Characters at the end of a cut text in which a whole word is looked for; a longer one is cut through."""


class ProfileView:
    """Implements `EndpointView` for a profile; `settings` returns its settings as they are now."""

    transparent = False

    def __init__(
        self, hub: Hub, name: str, settings: Callable[[], ProfileSettings], lists: ListGroups | None = None
    ) -> None:
        """`lists` are the groups that profiles share; by default this profile has its own."""
        self.name = f"p/{name}"
        self._hub = hub
        self._profile = name
        self._settings = settings  # returns the settings as they are now
        self._policy = ConfiguredQuestionPolicy(names_server=True)
        self._lists = lists or ListGroups()
        self._server_cache: tuple[int, ProfileSettings | None, tuple[str, ...]] = (-1, None, ())
        self._tables: dict[CatalogKind, KindTable] = {}
        self._table_tasks: dict[CatalogKind, asyncio.Task[None]] = {}  # those that make tables now

    @property
    def policy(self) -> QuestionPolicy:
        """Whom the profile asks the questions of its servers, as configured now."""
        return self._policy.for_settings(self._settings())

    def servers(self, principal: Principal) -> list[str]:
        """Return the names of the servers that the profile shows to a principal, in order."""
        return [name for name in self._shown_servers(self._settings()) if principal.may(Permission.CALL, name)]

    def shows(self, server: str, principal: Principal) -> bool:
        """Return whether a principal sees calls of a server: one that is shown, or the one for questions of hosts."""
        if server == PEOPLE and self.has_people_tools:
            return principal.may(Permission.CALL, server)
        return server in self.servers(principal)

    @property
    def has_people_tools(self) -> bool:
        """Whether hosts have tools that ask people."""
        return self._settings().people

    def introduction(self, principal: Principal) -> EndpointIntroduction:
        """Return the profile's introduction; its capabilities are those that any of its servers has."""
        settings = self._settings()
        shown_servers = map(self._hub.servers.find, self.servers(principal))
        records = [record for record in shown_servers if record is not None]
        capabilities_by_server: list[dict[str, Any]] = [
            payload.loads(record.capabilities or b"{}") for record in records
        ]
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        if settings.prompts:
            capabilities["prompts"] = {"listChanged": True}
        if settings.resources:
            resources: list[dict[str, Any]] = [each.get("resources") or {} for each in capabilities_by_server]
            subscribed = any(each.get("subscribe") is True for each in resources)
            capabilities["resources"] = {"listChanged": True} | ({"subscribe": True} if subscribed else {})
        capabilities |= {
            name: {} for name in ("completions", "logging") if any(name in each for each in capabilities_by_server)
        }
        if extensions := self._extensions(records, capabilities_by_server):
            capabilities["extensions"] = extensions
        info = {"name": "hubbub", "title": "Hubbub", "version": __version__}
        instructions_by_server = {record.name: record.instructions for record in records if record.instructions}
        return EndpointIntroduction(
            info, capabilities, _join_instructions(settings.instructions, instructions_by_server) or None
        )

    def _extensions(self, records: Iterable[ServerRecord], declared: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the extensions that the profile declares, as far as its tools are known."""
        if not self._settings().resources:
            return {}
        tools = self._tables.get(CatalogKind.TOOL)
        entries = [
            (record, extension_entries(known) if record.capabilities else expected_extensions(self._hub, record.name))
            for record, known in zip(records, declared, strict=True)
        ]
        with_apps = [(record.name, each) for record, each in entries if record.config.apps]
        has_pages = tools is not None and any(tools.pages(server) for server, _ in with_apps)
        apps = declared_by_profile((each for _, each in with_apps), has_pages=has_pages)
        return apps | declared_skills(each for _, each in entries)

    async def settle(self, kind: CatalogKind) -> None:
        """Make the table of a kind in turns of the loop, unless it is ready; a cancelled caller does not stop that."""
        for _ in range(MAX_ROUNDS):
            if self.is_settled(kind):
                return
            if kind not in self._table_tasks:
                task = self._table_tasks[kind] = asyncio.get_running_loop().create_task(self._make_table(kind))
                task.add_done_callback(lambda _: self._table_tasks.pop(kind))
            await asyncio.shield(self._table_tasks[kind])

    def is_settled(self, kind: CatalogKind) -> bool:
        """Return whether the table of a kind is current, or can be made at once."""
        return self._current_table(kind) is not None or self._is_cheap_to_make(kind)

    def entries(self, kind: CatalogKind, principal: Principal, *, apps: bool = False) -> Sequence[bytes]:
        """Return all entries of a kind, the hub's own tools first; without `apps` none that only pages may call."""
        table = self._usable_table(kind)
        hub_tools = own_tool_entries(table.settings) if kind is CatalogKind.TOOL else ()
        listed = table.listed_with_apps if apps else table.listed
        return ChainedLists([hub_tools, *(listed.get(server, ()) for server in self.servers(principal))])

    def find_entry(self, kind: CatalogKind, name: str, principal: Principal) -> bytes | None:
        """Return the entry of a tool or prompt by its shown name; None if there is none."""
        entry = self._usable_table(kind).find(name)
        return entry.rendered if entry is not None and principal.may(Permission.CALL, entry.server) else None

    @property
    def searches_tools(self) -> bool:
        """Whether tools are searched for instead of listed."""
        return self._settings().tools == "search"

    async def search(self, query: str, limit: int, principal: Principal) -> list[bytes]:
        """Return the entries of the tools that fit a query best, the best first."""
        await self.settle(CatalogKind.TOOL)
        return await run_in_turns(
            self._search_in_steps(query, limit, self._usable_table(CatalogKind.TOOL), self.servers(principal))
        )

    def _search_in_steps(
        self, query: str, limit: int, table: KindTable, visible_servers: list[str]
    ) -> Generator[None, None, list[bytes]]:
        """Return the entries of the tools of a table that fit a query best, the best first; in short steps."""
        indexes: list[Index] = []
        for server in filter(table.entries.__contains__, visible_servers):
            index = yield from table.index(server)
            indexes.append(index)
        names = yield from search_in_steps(indexes, query, limit)
        return [entry.rendered for name in names if (entry := table.find(name)) is not None]

    def find_target(
        self, kind: CatalogKind, name: str, principal: Principal, pages_read: PagesRead | None = None
    ) -> ServerTarget:
        """Return the server that has what a host names, and the server's own name for it. Raises NotFound.

        A host may call the tools for a server's pages if it has read one of them (`pages_read`; None: no page at all).
        Raises InvalidArgument if several servers have the name, or if this host may not call a tool for pages.
        """
        if kind in URI_MEMBERS:
            return self._find_resource(name, principal, pages_read or PagesRead())
        entry = self._usable_table(kind).find(name)
        if entry is not None and principal.may(Permission.CALL, entry.server):
            by_page = not entry.audience.for_models
            if by_page and pages_read and pages_read.servers and name == entry.own_name:  # others may have it, too
                return self._find_app_tool(name, principal, pages_read)
            if by_page and (pages_read is None or not select_servers([entry.server], pages_read)):
                raise InvalidArgument.field("params.name", f"{name!r} is for the pages of {entry.server} alone")
            return ServerTarget(entry.server, entry.own_name, app=by_page)
        if pages_read is not None and kind is CatalogKind.TOOL:
            return self._find_app_tool(name, principal, pages_read)
        raise NotFound("tool", name) if kind is CatalogKind.TOOL else NotFound("prompt", name)

    def render_result(self, server: str, result: bytes, spelled: Spelling = USUAL_SPELLING) -> bytes:
        """Return a server's result with URIs that name their server; `spelled`: how the host spells some of them."""
        return payload.dumps(rewrite_uris(payload.loads(result), server, spelled)) if may_have_uris(result) else result

    def _find_app_tool(self, own_name: str, principal: Principal, pages_read: PagesRead) -> ServerTarget:
        """Return the tool that a page calls by its server's own name for it. Raises NotFound and InvalidArgument."""
        servers = [server for server in self.servers(principal) if self._has_apps(server)]
        tools = self._usable_table(CatalogKind.TOOL).find_app_tools(own_name, servers)
        if not tools:
            raise NotFound("tool", own_name)
        candidates = [each for each in tools if each.audience.for_pages]
        if not candidates:
            raise InvalidArgument.field("params.name", f"{tools[0].server} does not let pages call {own_name!r}")
        servers = select_servers([each.server for each in candidates], pages_read)
        if not servers:
            problem = f"{own_name!r} is of {candidates[0].server}, of which this session has read no page"
            raise InvalidArgument.field("params.name", problem)
        if len(servers) > 1:
            names = " or ".join([each.name for each in candidates if each.server in servers][:MAX_NAMED])
            raise InvalidArgument.field("params.name", f"several servers have {own_name!r} for pages: call {names}")
        return ServerTarget(servers[0], own_name, app=True)

    def _has_apps(self, server: str) -> bool:
        """Return whether the pages of a server's tools are served."""
        record = self._hub.servers.find(server)
        return record is not None and record.config.apps

    def _find_resource(self, uri: str, principal: Principal, pages_read: PagesRead) -> ServerTarget:
        """Return the server of a resource. A prefix in the URI decides, even if another server lists the whole URI."""
        visible_servers = self.servers(principal) if self._settings().resources else []
        if (shown_uri := split_prefix(uri)) is not None and shown_uri[0] in visible_servers:
            server, own_uri = shown_uri
            # The server may list a URI of its own that begins like the server's prefix.
            only_looks_shown = self._lists_uri(server, uri) and not self._lists_uri(server, own_uri)
            return ServerTarget(server, uri if only_looks_shown else own_uri)
        if shown_uri is not None and is_page(uri):  # its server does not exist for this principal
            raise NotFound("resource", uri)
        templates = self._usable_table(CatalogKind.TEMPLATE).groups
        max_chars = MATCHED_CHARS // max(sum(bool(each.templates) for each in templates.values()), 1)  # for each server
        templates_by_server = {
            server: _take_templates(max_chars, templates[server].templates)
            for server in visible_servers
            if server in templates
        }
        uris = {server: (uri,) for server in visible_servers if self._lists_uri(server, uri)}
        owning_servers = find_owners(uri, uris, templates_by_server)
        if not owning_servers:
            raise NotFound("resource", uri)
        servers = select_servers(owning_servers, replace(pages_read, is_complete=False))  # else there might be none
        if len(servers) > 1:
            names = " and ".join(add_prefix(name, uri) for name in servers[:MAX_NAMED])
            raise InvalidArgument.field("params.uri", f"several servers have it: name one of them, {names}")
        return ServerTarget(servers[0], uri)

    def _lists_uri(self, server: str, own_uri: str) -> bool:
        """Return whether a server lists a URI, as a resource or a skill, or names it as the page of a tool."""
        tables = map(self._usable_table, (CatalogKind.RESOURCE, CatalogKind.SKILL))
        groups = (table.groups.get(server) for table in tables)
        listed = any(group is not None and own_uri in group.by_name for group in groups)
        return listed or own_uri in self._usable_table(CatalogKind.TOOL).pages(server)

    def _shown_servers(self, settings: ProfileSettings) -> tuple[str, ...]:
        """Return the servers of the profile; looked up again only if the catalog or the settings have changed."""
        version, known_settings, servers = self._server_cache
        if version != self._hub.catalog.version or known_settings != settings:
            servers = tuple(name for name in self._hub.catalog.servers() if settings.has_server(name))
            self._server_cache = self._hub.catalog.version, settings, servers
        return servers

    def _sources(self, kind: CatalogKind, settings: ProfileSettings) -> dict[str, Source]:
        """Return the lists of a kind by server of the profile; none if the profile hides the kind."""
        hidden = (kind is CatalogKind.PROMPT and not settings.prompts) or (
            kind in URI_MEMBERS and not settings.resources
        )
        servers = () if hidden else self._shown_servers(settings)
        return {server: self._hub.catalog.entries(list_id(server, kind)) for server in servers}

    def _current_table(self, kind: CatalogKind) -> KindTable | None:
        """Return the table of a kind if it is up to date, else None."""
        table = self._tables.get(kind)
        if table is None or table.version != self._hub.catalog.version or table.settings != self._settings():
            return None
        return table

    def _is_cheap_to_make(self, kind: CatalogKind) -> bool:
        """Return whether the table can be made at once: the lists that are still to be read are short."""
        settings = self._settings()
        rendering = _make_rendering(kind, settings)
        previous = self._table_with_settings(kind, settings)
        previous_groups = previous.groups if previous is not None else {}
        unread: list[Source] = []
        for lists in _group_servers(rendering, self._sources(kind, settings)):
            group = self._lists.find(rendering, lists)
            if group is None or (
                _compares_names(kind, settings) and not all(previous_groups.get(server) is group for server in lists)
            ):
                unread += lists.values()
        if sum(map(len, unread)) > ENTRIES_AT_ONCE:
            return False
        return sum(len(entry) for source in unread for entry in source) <= BYTES_AT_ONCE

    def _table_with_settings(self, kind: CatalogKind, settings: ProfileSettings) -> KindTable | None:
        """Return the last table of a kind if it was made with these settings, else None."""
        previous = self._tables.get(kind)
        return previous if previous is not None and previous.settings == settings else None

    def _usable_table(self, kind: CatalogKind) -> KindTable:
        """Return the current table of a kind, made at once if that is cheap or there is none; else an older one."""
        current = self._current_table(kind)
        if current is None and (kind not in self._tables or self._is_cheap_to_make(kind)):
            current = self._tables[kind] = run_at_once(self._make_table_in_steps(kind))
        return current or self._tables[kind]

    async def _make_table(self, kind: CatalogKind) -> None:
        """Make the table of a kind in turns of the event loop, and put it in the place of the last one."""
        self._tables[kind] = await run_in_turns(self._make_table_in_steps(kind))

    def _make_table_in_steps(self, kind: CatalogKind) -> Generator[None, None, KindTable]:
        """Return a table of a kind for the current catalog and settings, made in short steps; reuse unchanged lists."""
        settings, version = self._settings(), self._hub.catalog.version
        sources, rendering = self._sources(kind, settings), _make_rendering(kind, settings)
        groups: dict[str, ListGroup] = {}
        distinct: list[ListGroup] = []
        for lists in _group_servers(rendering, sources):
            distinct.append((yield from self._lists.make_in_steps(rendering, lists)))
            groups |= dict.fromkeys(lists, distinct[-1])
        entries = {server: groups[server].entries[server] for server in sources}
        shown = {server: groups[server].listed[server] for server in sources}
        with_apps = {server: groups[server].listed_with_apps[server] for server in sources}
        indexes: dict[str, Index] = {}
        if _compares_names(kind, settings):
            previous = self._table_with_settings(kind, settings)
            same = [each for each in sources if previous is not None and previous.has_same_entries(each, groups[each])]
            changed = {server: entries[server] for server in sources if server not in same}
            if _has_tool_filter(settings):
                changed = yield from filter_in_steps(changed, lambda each: settings.has_tool(each.name))
            entries |= changed
            listed = yield from filter_in_steps(changed, partial(_is_listed, settings, apps=True))
            with_apps |= {server: tuple(each.rendered for each in chosen) for server, chosen in listed.items()}
            listed = yield from filter_in_steps(listed, partial(_is_listed, settings, apps=False))
            shown |= {server: tuple(each.rendered for each in chosen) for server, chosen in listed.items()}
            if previous is not None:
                entries |= {server: previous.entries[server] for server in same}
                shown |= {server: previous.listed[server] for server in same}
                with_apps |= {server: previous.listed_with_apps[server] for server in same}
                indexes |= {server: previous.indexes[server] for server in same if server in previous.indexes}
        return KindTable(
            version=version,
            settings=settings,
            groups=groups,
            distinct_groups=tuple(distinct),
            has_tool_filter=kind is CatalogKind.TOOL and _has_tool_filter(settings),
            entries=entries,
            listed=shown,
            listed_with_apps=with_apps,
            indexes=indexes,
        )


def _is_listed(settings: ProfileSettings, entry: ListEntry, *, apps: bool) -> bool:
    """Return whether a tool is listed; with `apps` for a host that shows pages: it gets all tools that pages need."""
    audience = entry.audience
    if not audience.for_models or (apps and audience.page is not None):
        return apps
    return settings.tools != "search" or settings.pins_tool(entry.name)


def _has_tool_filter(settings: ProfileSettings) -> bool:
    """Return whether the profile leaves out tools by their names."""
    return (settings.allow_tools, settings.deny_tools) != (("*",), ())


def _compares_names(kind: CatalogKind, settings: ProfileSettings) -> bool:
    """Return whether each entry's name is compared with patterns, which takes as long as rendering the entry."""
    return kind is CatalogKind.TOOL and (_has_tool_filter(settings) or settings.tools == "search")


def _make_rendering(kind: CatalogKind, settings: ProfileSettings) -> ListRendering:
    """Return how a profile with these settings shows lists of a kind."""
    if kind not in NAMED_KINDS:
        return ListRendering(kind=kind)
    rule = NameRule(
        alias=settings.alias,
        prefixed=settings.prefix == "always",
        max_chars=settings.max_tool_name,
        bare=settings.bare if kind is CatalogKind.TOOL else (),
    )
    return ListRendering(kind=kind, rule=rule, flat=kind is CatalogKind.TOOL and settings.flatten_schemas)


def _group_servers(rendering: ListRendering, sources: dict[str, Source]) -> list[dict[str, Source]]:
    """Return the lists by server in groups: servers whose names may clash are in one group."""
    groups: dict[str, dict[str, Source]] = {}
    for server, source in sources.items():
        key = server if rendering.rule is None else rendering.rule.group(server)
        groups.setdefault(key, {})[server] = source
    return list(groups.values())


def _take_templates(max_chars: int, templates: Iterable[str]) -> Iterator[str]:
    """Yield the first templates that have at most `max_chars` characters together."""
    for each in templates:
        max_chars -= len(each)
        if max_chars < 0:
            return
        yield each


def _join_instructions(own_text: str, by_server: Mapping[str, str]) -> str:
    """Return a profile's own instructions and those of its servers as one text, each of them cut."""
    parts = [own_text] if own_text else []
    parts += [
        f"## {server}\n{_cut_text(without_headings(text), MAX_SERVER_INSTRUCTIONS)}"
        for server, text in by_server.items()
    ]
    return _cut_text("\n\n".join(parts), MAX_INSTRUCTIONS)


def _cut_text(text: str, max_chars: int) -> str:
    """Return a text of at most `max_chars` characters; a cut is marked, and behind a word if one ends near."""
    if len(text) <= max_chars:
        return text
    start = text[: max_chars - len(CUT_MARK)]
    whole_words = start[:-MAX_WORD] + start[-MAX_WORD:].rpartition(" ")[0]
    return (whole_words if len(whole_words) > len(start) - MAX_WORD else start).rstrip() + CUT_MARK
