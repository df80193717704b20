"""The lists of servers as profiles show them: made once for all profiles that show them the same way, in short steps.

    catalog (a server's list) ──> ListGroup: servers whose names may clash ──> the tables of profiles (`KindTable`)

With prefixes each server is a group of its own, so a change of its list changes no other group. Without prefixes all
names are compared, but only changed lists are read. The rendered form of an unchanged entry is used again.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import eq
from typing import Any, Final, cast, overload
from weakref import WeakValueDictionary

from hubbubd import payload
from hubbubd.bounds import LONGEST_URI
from hubbubd.core.hosts.app_tools import EVERYBODY, ToolAudience, read_audience
from hubbubd.core.hosts.flat_schemas import flatten_schemas, has_recursive_schema
from hubbubd.core.hosts.host_names import NameRule, Origin, with_origin
from hubbubd.core.hosts.host_uris import add_prefix, rewrite_uris
from hubbubd.core.hosts.tool_search import Index, build_index_in_steps
from hubbubd.core.servers.catalog import CatalogKind

Steps = Generator[None, None, None]
Source = tuple[bytes, ...]
"""A server's list as the catalog has it."""

MATCHED_CHARS: Final = 128 * 1024
"""Characters of templates that a URI without a prefix is compared with; a URI with a prefix needs no comparison."""

MEMBERS: Final = {
    CatalogKind.TOOL: "tools",
    CatalogKind.PROMPT: "prompts",
    CatalogKind.RESOURCE: "resources",
    CatalogKind.TEMPLATE: "resourceTemplates",
    CatalogKind.SKILL: "skills",
}
NAMED_KINDS: Final = (CatalogKind.TOOL, CatalogKind.PROMPT)
"""Kinds of entries with a name; those of all others have a URI."""
URI_MEMBERS: Final = {CatalogKind.RESOURCE: "uri", CatalogKind.TEMPLATE: "uriTemplate", CatalogKind.SKILL: "uri"}
URI_KINDS: Final = (*URI_MEMBERS, CatalogKind.TOOL)
"""The kinds whose lists are searched for a URI that a host names: also tools, as a tool may have a page."""


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One entry of a list: the server's own name or URI for it (`own_name`) and the one that hosts see (`name`), its
    JSON as hosts see it (`rendered`) and as the server sent it (`source`).
    """

    server: str
    own_name: str
    name: str
    rendered: bytes
    source: bytes
    audience: ToolAudience = EVERYBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRendering:
    """How a profile shows lists of a kind. Profiles with equal renderings share their groups."""

    kind: CatalogKind
    rule: NameRule | None = None
    """How names are made; None for URIs."""

    flat: bool = False
    """Whether recursive schemas are flattened."""

    def key(self, servers: tuple[str, ...]) -> object:
        """Return the key of these servers' group: groups with the same key are rendered alike."""
        rule = self.rule
        naming = rule and (
            rule.prefixed,
            rule.max_chars,
            tuple((rule.alias.get(server), rule.is_bare(server)) for server in servers),
        )
        return self.kind, servers, naming, self.flat


@dataclass(slots=True, weakref_slot=True, eq=False, kw_only=True)
class ListGroup:
    """The lists of servers whose names may clash, in the order of the servers."""

    sources: Mapping[str, Source]
    origins: Mapping[str, tuple[Origin, ...]]
    """By server, the origins (server and own name) of its list; empty for kinds with URIs."""
    names: Mapping[Origin, str]
    """By origin, the name that hosts see. A name that cannot be shown is missing."""
    entries: dict[str, tuple[ListEntry, ...]] = field(default_factory=dict[str, tuple[ListEntry, ...]])
    listed: dict[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    """By server, the rendered entries that are listed: of tools those for models, of other kinds all."""
    listed_with_apps: dict[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    """The same with the tools that are for pages alone."""
    app_tools: dict[str, Mapping[str, ListEntry]] = field(default_factory=dict[str, Mapping[str, ListEntry]])
    """By server whose tools have pages, all its tools by its own names."""
    pages: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By the same servers, their own URIs of the pages."""
    by_name: dict[str, ListEntry] = field(default_factory=dict[str, ListEntry])
    """By the name that hosts see; for kinds with URIs by the server's own URI, as such a group has one server."""
    indexes: dict[str, Index] = field(default_factory=dict[str, Index])
    """By server, its search index; made by the first search."""

    templates: tuple[str, ...] = ()
    """The templates that URIs without a prefix are compared with, of MATCHED_CHARS characters at most."""

    def was_made_from(self, sources: Mapping[str, Source]) -> bool:
        """Return whether the group was made from these lists, by identity: a changed list is a new object."""
        same = self.sources.keys() == sources.keys()
        return same and all(self.sources[server] is source for server, source in sources.items())

    def is_named_alike(self, server: str, other: "ListGroup") -> bool:
        """Return whether another group has the same list of a server, and shows it by the same names."""
        if self.sources[server] is not other.sources.get(server):
            return False
        if self.names is other.names:
            return True
        return all(self.names.get(origin) == other.names.get(origin) for origin in self.origins.get(server, ()))


class ListGroups:
    """The groups that profiles use; others are freed."""

    def __init__(self) -> None:
        self._groups = WeakValueDictionary[object, ListGroup]()
        self._newest_shared = WeakValueDictionary[object, ListGroup]()
        """The newest group of each rendering without prefixes: the next such group can reuse most of its lists."""

    def find(self, rendering: ListRendering, sources: Mapping[str, Source]) -> ListGroup | None:
        """Return the group that was made of these lists in this rendering; None if there is none."""
        group = self._groups.get(rendering.key(tuple(sources)))
        return group if group is not None and group.was_made_from(sources) else None

    def make_in_steps(
        self, rendering: ListRendering, sources: Mapping[str, Source]
    ) -> Generator[None, None, ListGroup]:
        """Return the group of these lists; make it in short steps unless there is one.

        The list of a server that has not changed is neither read nor rendered again.
        """
        if (existing := self.find(rendering, sources)) is not None:
            return existing
        key = rendering.key(tuple(sources))
        shared_key = rendering.key(()) if rendering.rule is not None and not rendering.rule.prefixed else None
        previous = self._groups.get(key) or self._newest_shared.get(shared_key)
        origins: dict[str, tuple[Origin, ...]] = {}
        names: Mapping[Origin, str] = {}
        if rendering.rule is not None:
            origins = yield from _collect_origins(sources, previous)
            names = yield from _name_in_steps(rendering.rule, origins, previous)
        group = ListGroup(sources=sources, origins=origins, names=names)
        for server in sources:
            if rendering.rule is not None and previous is not None and group.is_named_alike(server, previous):
                _reuse_server(group, server, previous)
            else:
                yield from _render_server(rendering, group, server, previous)
        if rendering.kind is CatalogKind.TEMPLATE:
            group.templates = _limit_templates(group.by_name)
        self._groups[key] = group
        if shared_key is not None:
            self._newest_shared[shared_key] = group
        return group


def _limit_templates(templates: Iterable[str]) -> tuple[str, ...]:
    """Return the first templates, MATCHED_CHARS characters in all, without those longer than any URI."""
    short = [each for each in templates if len(each) <= LONGEST_URI]
    return tuple(each for each, size in zip(short, accumulate(map(len, short)), strict=True) if size <= MATCHED_CHARS)


def _collect_origins(
    sources: Mapping[str, Source], previous: ListGroup | None
) -> Generator[None, None, dict[str, tuple[Origin, ...]]]:
    """Return by server the origins of its list; those of `previous` where the list is the same."""
    origins: dict[str, tuple[Origin, ...]] = {}
    for server, source in sources.items():
        if previous is not None and previous.sources.get(server) is source:
            origins[server] = previous.origins[server]
            continue
        server_origins: list[Origin] = []
        for raw in source:
            yield
            name: object = payload.loads(raw).get("name")
            if isinstance(name, str):
                server_origins.append((server, name))
        origins[server] = tuple(server_origins)
    return origins


def _name_in_steps(
    rule: NameRule, origins: Mapping[str, tuple[Origin, ...]], previous: ListGroup | None
) -> Generator[None, None, Mapping[Origin, str]]:
    """Return the shown name of each origin; the names of `previous` if it has the same origins.

    A server without a list, as one that was just added, changes no name.
    """
    non_empty = {server: own for server, own in origins.items() if own}
    if previous is not None and non_empty == {server: own for server, own in previous.origins.items() if own}:
        return previous.names
    return (yield from rule.make_names_in_steps(chain.from_iterable(non_empty.values()))).names_by_origin


def _reuse_server(group: ListGroup, server: str, previous: ListGroup) -> None:
    """Copy into a group what the previous group has of a server whose list and names are the same."""
    _store_entries(group, server, previous.entries[server], previous)
    if server in previous.indexes:
        group.indexes[server] = previous.indexes[server]
    for entry in previous.entries[server]:
        group.by_name.setdefault(entry.name, entry)


def _render_server(rendering: ListRendering, group: ListGroup, server: str, previous: ListGroup | None) -> Steps:
    """Render a server's list into a group, in short steps; unchanged entries of `previous` are used again."""
    entries: list[ListEntry] = []
    for raw in group.sources[server]:
        yield
        entry: dict[str, Any] = payload.loads(raw)
        own_name: object = entry.get("name" if rendering.rule is not None else URI_MEMBERS[rendering.kind])
        if not isinstance(own_name, str):
            continue
        name = group.names.get((server, own_name)) if rendering.rule is not None else add_prefix(server, own_name)
        if name is None:
            continue
        key = name if rendering.rule is not None else own_name
        rendered = previous.by_name.get(key) if previous is not None else None
        if rendered is None or (rendered.server, rendered.own_name, rendered.name, rendered.source) != (
            server,
            own_name,
            name,
            raw,
        ):
            audience = read_audience(entry) if rendering.kind is CatalogKind.TOOL else EVERYBODY
            rendered = ListEntry(server, own_name, name, _render_entry(rendering, entry, server, name), raw, audience)
        entries.append(rendered)
        group.by_name.setdefault(key, rendered)
    _store_entries(group, server, tuple(entries))


def _store_entries(
    group: ListGroup, server: str, entries: tuple[ListEntry, ...], previous: ListGroup | None = None
) -> None:
    """Store a server's entries in a group, with those listed for models and pages; copied from `previous` if given."""
    group.entries[server] = entries
    if previous is not None:
        group.listed[server], group.listed_with_apps[server] = (
            previous.listed[server],
            previous.listed_with_apps[server],
        )
        if server in previous.pages:
            group.pages[server], group.app_tools[server] = previous.pages[server], previous.app_tools[server]
        return
    everything = group.listed_with_apps[server] = tuple(each.rendered for each in entries)
    for_models = [each.rendered for each in entries if each.audience.for_models]
    group.listed[server] = everything if len(for_models) == len(everything) else tuple(for_models)
    if pages := {each.audience.page for each in entries if each.audience.page is not None}:
        group.pages[server] = frozenset(pages)
        group.app_tools[server] = {each.own_name: each for each in reversed(entries)}


def _render_entry(rendering: ListRendering, entry: dict[str, Any], server: str, name: str) -> bytes:
    """Return an entry as hosts see it, as JSON: with its shown name and with URIs that name the server."""
    if rendering.rule is not None:
        entry = with_origin(entry, server, name)
    if rendering.flat and has_recursive_schema(entry):
        entry = flatten_schemas(entry)
    member = MEMBERS[rendering.kind]
    return payload.dumps(rewrite_uris({member: [entry]}, server)[member][0])


def index_in_steps(entries: Iterable[ListEntry]) -> Generator[None, None, Index]:
    """Return a search index of the tools that are for models; made in short steps, to not block the event loop."""
    texts: dict[str, tuple[str, ...]] = {}
    for each in entries:
        yield
        if each.audience.for_models:
            texts[each.name] = _read_searched_texts(each.rendered)
    return (yield from build_index_in_steps(texts))


def _read_searched_texts(entry: bytes) -> tuple[str, ...]:
    """Return the texts of a tool that a search looks at: name, title and description, as far as there are any."""
    tool = payload.loads(entry)
    return tuple(
        text for text in (tool.get(part) for part in ("name", "title", "description")) if isinstance(text, str)
    )


class ChainedLists(Sequence[bytes]):
    """Several lists as one sequence, without a copy of their entries."""

    def __init__(self, parts: Sequence[tuple[bytes, ...]]) -> None:
        self._parts = [part for part in parts if part]
        # By part, the index behind its last entry.
        self._ends = list(accumulate(map(len, self._parts)))

    def __len__(self) -> int:
        """Return how many entries there are."""
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, at: int | slice) -> bytes | tuple[bytes, ...]:
        """Return the entry at an index, or a tuple of those of a slice, without a copy of all entries."""
        if isinstance(at, int):
            first = at if at >= 0 else len(self) + at
            found = self[first : first + 1]
            if not found or first < 0:
                raise IndexError(at)
            return found[0]
        begin, end, step = at.indices(len(self))
        taken: list[bytes] = []
        for part, last in zip(self._parts, self._ends, strict=True):
            first = last - len(part)
            if begin < last and end > first:
                taken += part[max(begin - first, 0) : end - first]
        return tuple(taken[::step])

    def __iter__(self) -> Iterator[bytes]:
        """Return all entries, in order."""
        return (each for part in self._parts for each in part)

    def __eq__(self, other: object) -> bool:
        """Return whether the entries are equal; quick if the parts are the same objects."""
        if isinstance(other, ChainedLists) and self._parts == other._parts:
            return True
        if not isinstance(other, ChainedLists | tuple):
            return False
        entries = cast("Sequence[object]", other)
        return len(self) == len(entries) and all(map(eq, self, entries))

    __hash__ = None  # type: ignore[assignment]
