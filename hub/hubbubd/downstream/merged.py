"""The view of a profile: several servers as one, with names and URIs that tell them apart.

    catalog (all servers' lists) ──> _Tables, made anew when a list or the settings changed ──> lists and targets

What a principal may not call is left out when it asks; the tables are the same for all, so names never depend on who
looks.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hubbubd import __version__, payload
from hubbubd.config.mcp import ProfileSettings
from hubbubd.core.access import Permission, Principal
from hubbubd.core.catalog import Kind, list_id
from hubbubd.core.host_names import NameRule, Names, described
from hubbubd.core.host_uris import added, may_have_uris, owners, rewritten, stripped
from hubbubd.core.tool_search import Index, index
from hubbubd.downstream.own_tools import listed
from hubbubd.downstream.policy import Policy
from hubbubd.downstream.profiles import Introduction, Target
from hubbubd.errors import InvalidArgument, NotFound
from hubbubd.runtime.hub import Hub

INSTRUCTIONS: Final = 2000
"""Characters of the instructions of all servers: some hosts cut them a little beyond."""
INSTRUCTIONS_EACH: Final = 400
"""Characters of one server's."""

KEPT: Final = 32
"""Lists that are kept as they were last made, for principals that see the same servers."""

_NAMED: Final = {Kind.TOOL: "tool", Kind.PROMPT: "prompt"}
_URI: Final = {Kind.RESOURCE: "uri", Kind.TEMPLATE: "uriTemplate"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a list: its server, the name or URI of its own, and how it is shown."""

    server: str
    own: str
    name: str
    shown: bytes


@dataclass(slots=True, kw_only=True)
class _Tables:
    """All that follows from the catalog and the settings, as they were at `version`."""

    version: int
    settings: ProfileSettings
    servers: tuple[str, ...]
    entries: dict[Kind, tuple[_Entry, ...]]
    targets: dict[Kind, dict[str, Target]]
    listed: dict[tuple[Kind, frozenset[str]], tuple[bytes, ...]] = field(
        default_factory=dict[tuple[Kind, frozenset[str]], tuple[bytes, ...]]
    )
    indexes: dict[frozenset[str], Index] = field(default_factory=dict[frozenset[str], Index])


class Merged:
    """Implements `profiles.View` for a profile; `settings` returns its settings as they are now."""

    transparent = False

    def __init__(self, hub: Hub, name: str, settings: Callable[[], ProfileSettings]) -> None:
        self.name = f"p/{name}"
        self._hub = hub
        self._profile = name
        self._settings = settings
        self._made: _Tables | None = None

    @property
    def policy(self) -> Policy:
        """As `View.policy`."""
        return Policy.configured(self._settings(), named=True)

    def servers(self, principal: Principal) -> list[str]:
        """As `View.servers`."""
        return [name for name in self._tables.servers if principal.may(Permission.CALL, name)]

    def introduction(self, principal: Principal) -> Introduction:
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
        return Introduction(info, capabilities, _instructions(settings.instructions, told) or None)

    def entries(self, kind: Kind, principal: Principal) -> tuple[bytes, ...]:
        """As `View.entries`."""
        tables, seen = self._tables, frozenset(self.servers(principal))
        if (kind, seen) not in tables.listed:
            if len(tables.listed) >= KEPT:
                tables.listed.clear()
            found = [each for each in tables.entries[kind] if each.server in seen]
            own = listed(tables.settings) if kind is Kind.TOOL else ()
            if kind is Kind.TOOL and self.searched:
                found = [each for each in found if tables.settings.pins_tool(each.name)]
            tables.listed[kind, seen] = (*own, *(each.shown for each in found))
        return tables.listed[kind, seen]

    @property
    def searched(self) -> bool:
        """As `View.searched`."""
        return self._settings().tools == "search"

    def search(self, query: str, most: int, principal: Principal) -> list[bytes]:
        """As `View.search`."""
        tables, seen = self._tables, frozenset(self.servers(principal))
        known = {each.name: each.shown for each in tables.entries[Kind.TOOL] if each.server in seen}
        if seen not in tables.indexes:
            if len(tables.indexes) >= KEPT:
                tables.indexes.clear()
            tables.indexes[seen] = index({name: _texts(shown) for name, shown in known.items()})
        return [known[name] for name in tables.indexes[seen].best(query, most)]

    def target(self, kind: Kind, named: str, principal: Principal) -> Target:
        """As `View.target`. Raises InvalidArgument for a URI that several servers have."""
        return self._resource(named, principal) if kind in _URI else self._by_name(kind, named, principal)

    def shown(self, server: str, result: bytes) -> bytes:
        """As `View.shown`: URIs say which server they are of."""
        return payload.dumps(rewritten(payload.loads(result), server)) if may_have_uris(result) else result

    def _by_name(self, kind: Kind, named: str, principal: Principal) -> Target:
        target = self._tables.targets[kind].get(named)
        if target is None or not principal.may(Permission.CALL, target.server):
            raise NotFound("tool", named) if kind is Kind.TOOL else NotFound("prompt", named)
        return target

    def _resource(self, uri: str, principal: Principal) -> Target:
        seen = self.servers(principal)
        if (found := stripped(uri)) is not None and found[0] in seen and self._settings().resources:
            return Target(*found)
        uris, templates = (self._own(kind, seen) for kind in (Kind.RESOURCE, Kind.TEMPLATE))
        known = owners(uri, uris, templates)
        if len(known) > 1:
            several = " and ".join(added(name, uri) for name in known)
            raise InvalidArgument.field("params.uri", f"several servers have it: name one of them, {several}")
        if not known:
            raise NotFound("resource", uri)
        return Target(known[0], uri)

    def _own(self, kind: Kind, seen: Collection[str]) -> Mapping[str, Collection[str]]:
        own: dict[str, set[str]] = {}
        for each in self._tables.entries[kind]:
            if each.server in seen:
                own.setdefault(each.server, set()).add(each.own)
        return own

    @property
    def _tables(self) -> _Tables:
        made, settings = self._made, self._settings()
        if made is None or made.version != self._hub.catalog.version or made.settings != settings:
            made = self._made = self._make(settings)
        return made

    def _make(self, settings: ProfileSettings) -> _Tables:
        servers = tuple(name for name in self._hub.catalog.servers() if settings.has_server(name))
        lists = {kind: list(self._read(kind, servers)) for kind in Kind}
        rule = NameRule(alias=settings.alias, prefixed=settings.prefix == "always", longest=settings.max_tool_name)
        origins = {
            kind: [(server, entry["name"]) for server, entry in lists[kind] if _is_named(entry)] for kind in _NAMED
        }
        names = {kind: rule.names(origins[kind]) for kind in _NAMED}
        shown = {kind: tuple(_by_name(kind, lists[kind], names[kind], settings)) for kind in _NAMED}
        shown |= {kind: tuple(_by_uri(kind, lists[kind])) if settings.resources else () for kind in _URI}
        if not settings.prompts:
            shown[Kind.PROMPT] = ()
        targets = {kind: {each.name: Target(each.server, each.own) for each in shown[kind]} for kind in _NAMED}
        return _Tables(
            version=self._hub.catalog.version, settings=settings, servers=servers, entries=shown, targets=targets
        )

    def _read(self, kind: Kind, servers: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        for server in servers:
            for entry in self._hub.catalog.entries(list_id(server, kind)):
                yield server, payload.loads(entry)


def _by_name(
    kind: Kind, entries: list[tuple[str, dict[str, Any]]], names: Names, settings: ProfileSettings
) -> Iterator[_Entry]:
    for server, entry in entries:
        name = names.shown.get((server, entry["name"])) if _is_named(entry) else None
        if name is None or (kind is Kind.TOOL and not settings.has_tool(name)):
            continue
        document = rewritten({f"{_NAMED[kind]}s": [described(entry, server, name)]}, server)
        yield _Entry(server, entry["name"], name, payload.dumps(document[f"{_NAMED[kind]}s"][0]))


def _is_named(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("name"), str)


def _by_uri(kind: Kind, entries: list[tuple[str, dict[str, Any]]]) -> Iterator[_Entry]:
    member = "resources" if kind is Kind.RESOURCE else "resourceTemplates"
    for server, entry in entries:
        own = entry.get(_URI[kind])
        if isinstance(own, str):
            document = rewritten({member: [entry]}, server)
            yield _Entry(server, own, added(server, own), payload.dumps(document[member][0]))


def _texts(entry: bytes) -> tuple[str, ...]:
    """Return what a search looks at in a tool, its name first."""
    tool = payload.loads(entry)
    return tuple(
        text for text in (tool.get(part) for part in ("name", "title", "description")) if isinstance(text, str)
    )


def _instructions(first: str, told: Mapping[str, str]) -> str:
    parts = [first] if first else []
    parts += [f"## {server}\n{text[:INSTRUCTIONS_EACH]}" for server, text in told.items()]
    return "\n\n".join(parts)[:INSTRUCTIONS]
