"""The lists of servers as profiles show them: made once for all profiles that show them the same way, in short steps.

    catalog (a server's list) ──> ListGroup: servers that are named together ──> the tables of profiles (`merged`)

With prefixes each server is named by itself, so a change of one server's list changes nothing else. Without, all names
are compared, but only lists that have changed are read. What an entry was shown as is used again while it is the same.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import eq
from typing import Any, Final, cast, overload
from weakref import WeakValueDictionary

from hubbubd import payload
from hubbubd.bounds import LONGEST_URI
from hubbubd.core.hosts.flat_schemas import flattened, may_recur
from hubbubd.core.hosts.host_names import NameRule, Origin, described
from hubbubd.core.hosts.host_uris import added, rewritten
from hubbubd.core.hosts.tool_search import Index, build_index_in_steps
from hubbubd.core.servers.catalog import CatalogKind

Steps = Generator[None, None, None]
Source = tuple[bytes, ...]
"""A server's list as the catalog has it."""

MATCHED_CHARS: Final = 128 * 1024
"""Characters of templates that an original URI is compared with; the others are reached by their shown URI."""

MEMBERS: Final = {
    CatalogKind.TOOL: "tools",
    CatalogKind.PROMPT: "prompts",
    CatalogKind.RESOURCE: "resources",
    CatalogKind.TEMPLATE: "resourceTemplates",
}
NAMED: Final = (CatalogKind.TOOL, CatalogKind.PROMPT)
URI: Final = {CatalogKind.RESOURCE: "uri", CatalogKind.TEMPLATE: "uriTemplate"}


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One entry of a list: its server, the name or URI of its own, how it is shown, and what the server said."""

    server: str
    own: str
    name: str
    shown: bytes
    source: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRendering:
    """How a profile shows lists of a kind. Those with an equal one share what is made."""

    kind: CatalogKind
    rule: NameRule | None = None
    """How names are made; None for URIs."""

    flat: bool = False
    """Whether recursive schemas are flattened."""

    def key(self, servers: tuple[str, ...]) -> object:
        """Return what these servers' group is known by."""
        rule = self.rule
        named = rule and (rule.prefixed, rule.longest, tuple(rule.alias.get(server) for server in servers))
        return self.kind, servers, named, self.flat


@dataclass(slots=True, weakref_slot=True, eq=False, kw_only=True)
class ListGroup:
    """Lists of servers that are named together, in the order of the servers."""

    sources: Mapping[str, Source]
    origins: Mapping[str, tuple[Origin, ...]]
    """By server, which names of its own its list has; empty for URIs."""
    names: Mapping[Origin, str]
    """How they are shown. A name that cannot be shown is missing."""
    entries: dict[str, tuple[ListEntry, ...]] = field(default_factory=dict[str, tuple[ListEntry, ...]])
    shown: dict[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    by_name: dict[str, ListEntry] = field(default_factory=dict[str, ListEntry])
    """By the name that hosts see; of URIs, by the server's own, as a group of these has one server."""
    indexes: dict[str, Index] = field(default_factory=dict[str, Index])
    """What searches look at, by server; made by the first search."""

    templates: tuple[str, ...] = ()
    """The templates that an original URI may fit, MATCHED_CHARS of them."""

    def is_of(self, sources: Mapping[str, Source]) -> bool:
        """Return whether it was made from these lists."""
        same = self.sources.keys() == sources.keys()
        return same and all(self.sources[server] is source for server, source in sources.items())

    def names_alike(self, server: str, other: "ListGroup") -> bool:
        """Return whether a server's list is the same in another group, and is shown by the same names."""
        if self.sources[server] is not other.sources.get(server):
            return False
        if self.names is other.names:
            return True
        return all(self.names.get(origin) == other.names.get(origin) for origin in self.origins.get(server, ()))


class ListGroups:
    """The groups that are in use by any profile."""

    def __init__(self) -> None:
        self._groups = WeakValueDictionary[object, ListGroup]()
        self._newest = WeakValueDictionary[object, ListGroup]()
        """The newest group of each rendering that names all servers together: the next one has most of its lists."""

    def known(self, way: ListRendering, sources: Mapping[str, Source]) -> ListGroup | None:
        """Return the group of these lists if it is made."""
        group = self._groups.get(way.key(tuple(sources)))
        return group if group is not None and group.is_of(sources) else None

    def making(self, way: ListRendering, sources: Mapping[str, Source]) -> Generator[None, None, ListGroup]:
        """Return the group of these lists, made in short steps unless it is known.

        Of a server whose list has not changed, nothing is read or made again.
        """
        if (known := self.known(way, sources)) is not None:
            return known
        key = way.key(tuple(sources))
        together = way.key(()) if way.rule is not None and not way.rule.prefixed else None
        before = self._groups.get(key) or self._newest.get(together)
        origins: dict[str, tuple[Origin, ...]] = {}
        names: Mapping[Origin, str] = {}
        if way.rule is not None:
            origins = yield from _origins(sources, before)
            names = yield from _names(way.rule, origins, before)
        group = ListGroup(sources=sources, origins=origins, names=names)
        for server in sources:
            if way.rule is not None and before is not None and group.names_alike(server, before):
                _take_over(group, server, before)
            else:
                yield from _show(way, group, server, before)
        if way.kind is CatalogKind.TEMPLATE:
            group.templates = _matched(group.by_name)
        self._groups[key] = group
        if together is not None:
            self._newest[together] = group
        return group


def _matched(templates: Iterable[str]) -> tuple[str, ...]:
    short = [each for each in templates if len(each) <= LONGEST_URI]
    return tuple(each for each, size in zip(short, accumulate(map(len, short)), strict=True) if size <= MATCHED_CHARS)


def _origins(
    sources: Mapping[str, Source], before: ListGroup | None
) -> Generator[None, None, dict[str, tuple[Origin, ...]]]:
    """Return by server which names its list has; those of `before` where the list is the same."""
    origins: dict[str, tuple[Origin, ...]] = {}
    for server, source in sources.items():
        if before is not None and before.sources.get(server) is source:
            origins[server] = before.origins[server]
            continue
        found: list[Origin] = []
        for raw in source:
            yield
            name: object = payload.loads(raw).get("name")
            if isinstance(name, str):
                found.append((server, name))
        origins[server] = tuple(found)
    return origins


def _names(
    rule: NameRule, origins: Mapping[str, tuple[Origin, ...]], before: ListGroup | None
) -> Generator[None, None, Mapping[Origin, str]]:
    """Return how the names are shown. A server without a list changes none, as one that has just been added."""
    named = {server: own for server, own in origins.items() if own}
    if before is not None and named == {server: own for server, own in before.origins.items() if own}:
        return before.names
    return (yield from rule.naming(chain.from_iterable(named.values()))).shown


def _take_over(group: ListGroup, server: str, before: ListGroup) -> None:
    """Show a server's list as it was shown before."""
    group.entries[server] = before.entries[server]
    group.shown[server] = before.shown[server]
    if server in before.indexes:
        group.indexes[server] = before.indexes[server]
    for entry in before.entries[server]:
        group.by_name.setdefault(entry.name, entry)


def _show(way: ListRendering, group: ListGroup, server: str, before: ListGroup | None) -> Steps:
    """Make what is shown of a server's list. An entry that is the same as before is used again."""
    made: list[ListEntry] = []
    for raw in group.sources[server]:
        yield
        entry: dict[str, Any] = payload.loads(raw)
        own: object = entry.get("name" if way.rule is not None else URI[way.kind])
        if not isinstance(own, str):
            continue
        name = group.names.get((server, own)) if way.rule is not None else added(server, own)
        if name is None:
            continue
        key = name if way.rule is not None else own
        shown = before.by_name.get(key) if before is not None else None
        if shown is None or (shown.server, shown.own, shown.name, shown.source) != (server, own, name, raw):
            shown = ListEntry(server, own, name, _shown(way, entry, server, name), raw)
        made.append(shown)
        group.by_name.setdefault(key, shown)
    group.entries[server] = tuple(made)
    group.shown[server] = tuple(each.shown for each in made)


def _shown(way: ListRendering, entry: dict[str, Any], server: str, name: str) -> bytes:
    """Return an entry as hosts see it."""
    if way.rule is not None:
        entry = described(entry, server, name)
    if way.flat and may_recur(entry):
        entry = flattened(entry)
    member = MEMBERS[way.kind]
    return payload.dumps(rewritten({member: [entry]}, server)[member][0])


def indexed(entries: Iterable[ListEntry]) -> Generator[None, None, Index]:
    """Return what a search looks at of tools, made in short steps."""
    texts: dict[str, tuple[str, ...]] = {}
    for each in entries:
        yield
        texts[each.name] = _texts(each.shown)
    return (yield from build_index_in_steps(texts))


def _texts(entry: bytes) -> tuple[str, ...]:
    """Return what a search looks at in a tool, its name first."""
    tool = payload.loads(entry)
    return tuple(
        text for text in (tool.get(part) for part in ("name", "title", "description")) if isinstance(text, str)
    )


class ChainedLists(Sequence[bytes]):
    """Lists in a row, without a copy of them."""

    def __init__(self, parts: Sequence[tuple[bytes, ...]]) -> None:
        self._parts = [part for part in parts if part]
        self._ends = list(accumulate(map(len, self._parts)))

    def __len__(self) -> int:
        """Return how many entries there are."""
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, at: int | slice) -> bytes | tuple[bytes, ...]:
        """Return an entry, or those between two places; costs what it returns."""
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
        """Return whether the entries are the same; quick where they are the same objects."""
        if isinstance(other, ChainedLists) and self._parts == other._parts:
            return True
        if not isinstance(other, ChainedLists | tuple):
            return False
        entries = cast("Sequence[object]", other)
        return len(self) == len(entries) and all(map(eq, self, entries))

    __hash__ = None  # type: ignore[assignment]
