"""What one endpoint shows of the hub's servers.

A server's own endpoint is transparent: its names, URIs, order and capabilities are the server's.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from hubbubd import payload
from hubbubd.config.sections.mcp import DEFAULT, DEFAULT_PROFILE, ProfileSettings
from hubbubd.core.access import Permission, Principal
from hubbubd.core.hosts.app_tools import PagesRead, read_audience
from hubbubd.core.hosts.extensions import declared_by_endpoint, extension_entries
from hubbubd.core.hosts.host_uris import USUAL_SPELLING, Spelling
from hubbubd.core.servers.catalog import SOURCES, CatalogKind, list_id
from hubbubd.downstream.views.list_groups import URI_KINDS, URI_MEMBERS
from hubbubd.downstream.views.question_policy import QuestionPolicy
from hubbubd.errors import NotFound
from hubbubd.runtime.hub import Hub
from hubbubd.timing.turns import run_at_once, run_in_turns

PASSED_ON_CAPABILITIES = ("tools", "prompts", "resources", "completions", "logging", "experimental")
"""Capabilities of a server that a host may use through the hub, as the server declares them."""

EXAMINED_AT_ONCE: Final = 1000
"""Tools of a list that are looked at when they are needed; a longer list is looked at in turns of the loop."""


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """The server that has what a host names, and the server's own name or URI for it.

    `app`: a page of an app has named it.
    """

    server: str
    name: str
    app: bool = False


@dataclass(frozen=True, slots=True)
class EndpointIntroduction:
    """The introduction of an endpoint in a handshake or `server/discover`. The dicts are MCP JSON."""

    server_info: dict[str, Any]
    capabilities: dict[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | None = None


class EndpointView(Protocol):
    """What an endpoint shows to a principal. Servers that the principal may not call do not exist for it."""

    @property
    def name(self) -> str:
        """The unique name of the view, to which sessions are bound."""
        ...

    @property
    def policy(self) -> QuestionPolicy:
        """Whom the endpoint asks the questions of its servers, as configured now."""
        ...

    @property
    def transparent(self) -> bool:
        """Whether the endpoint shows one server as that server is.

        Such an endpoint passes on that a list has changed, even if the list is the same.
        """
        ...

    def servers(self, principal: Principal) -> list[str]:
        """Return the names of the servers shown, in order."""
        ...

    def shows(self, server: str, principal: Principal) -> bool:
        """Return whether a principal sees calls of a server: one that is shown, or the one for questions of hosts."""
        ...

    @property
    def has_people_tools(self) -> bool:
        """Whether hosts have tools that ask people."""
        ...

    def introduction(self, principal: Principal) -> EndpointIntroduction:
        """Return the introduction of the endpoint for a principal."""
        ...

    async def settle(self, kind: CatalogKind) -> None:
        """Prepare what is shown of a kind, in turns of the event loop, for `entries` and `find_entry`."""
        ...

    def is_settled(self, kind: CatalogKind) -> bool:
        """Return whether what is shown of a kind is ready, or can be made at once."""
        ...

    def entries(self, kind: CatalogKind, principal: Principal, *, apps: bool = False) -> Sequence[bytes]:
        """Return all entries of a kind, in order: MCP objects as JSON. Without `settle` before, they may be outdated.

        `apps`: also the tools that only pages may call, for a host that shows pages of apps.
        """
        ...

    def find_entry(self, kind: CatalogKind, name: str, principal: Principal) -> bytes | None:
        """Return the entry of a tool or prompt by its name; None if there is none."""
        ...

    def find_target(
        self, kind: CatalogKind, name: str, principal: Principal, pages_read: PagesRead | None = None
    ) -> ServerTarget:
        """Return the server that has a tool, prompt or resource, and the server's own name for it. Raises NotFound.

        `pages_read` are the servers whose pages of apps the host has read; None for a host that shows no pages. A page
        calls a tool by its server's own name for it, so such a name is looked up among these servers, too.
        """
        ...

    def render_result(self, server: str, result: bytes, spelled: Spelling = USUAL_SPELLING) -> bytes:
        """Return a server's result as this endpoint shows it; `spelled` maps own URIs to the host's spelling."""
        ...

    @property
    def searches_tools(self) -> bool:
        """Whether tools are searched for instead of listed."""
        ...

    async def search(self, query: str, limit: int, principal: Principal) -> list[bytes]:
        """Return the entries of the tools that fit a query best, the best first."""
        ...


class ConfiguredQuestionPolicy:
    """Makes the policy of an endpoint from settings, and makes it again only when the settings have changed."""

    def __init__(self, *, names_server: bool) -> None:
        """`names_server`: a question begins with the name of its server, as the endpoint has several servers."""
        self._names_server = names_server
        self._settings: ProfileSettings | None = None
        self._policy = QuestionPolicy()

    def for_settings(self, settings: ProfileSettings) -> QuestionPolicy:
        """Return the policy of a profile's settings; the same policy for the same settings object."""
        if settings is not self._settings:
            self._settings, self._policy = (
                settings,
                QuestionPolicy.from_settings(settings, names_server=self._names_server),
            )
        return self._policy


class ServerView:
    """The endpoint of one server."""

    transparent = True
    has_people_tools = False

    def __init__(self, hub: Hub, server: str) -> None:
        self.name = f"s/{server}"
        self._hub = hub
        self._server = server
        self._policy = ConfiguredQuestionPolicy(names_server=False)
        self._indexes: dict[CatalogKind, tuple[tuple[bytes, ...], dict[str, int]]] = {}
        """By kind, the list that was indexed, and the place of each name in it."""
        self._tools = _ServerTools()
        self._list_ids = {kind: list_id(server, kind) for kind in CatalogKind}

    @property
    def policy(self) -> QuestionPolicy:
        """Whom the endpoint asks the server's questions: as in the profile `default`."""
        return self._policy.for_settings(self._hub.configuration.settings.mcp_profiles.get(DEFAULT, DEFAULT_PROFILE))

    def servers(self, principal: Principal) -> list[str]:
        """Return the server's name, if a principal may call it."""
        return [self._server] if principal.may(Permission.CALL, self._server) else []

    def shows(self, server: str, principal: Principal) -> bool:
        """Return whether a principal sees calls of a server: of this one, if it may call it."""
        return server in self.servers(principal)

    def introduction(self, principal: Principal) -> EndpointIntroduction:
        """Return the server's own introduction, with the capabilities that hosts may use here. Raises NotFound."""
        record = self._hub.servers.get(self._server)
        server_capabilities: dict[str, Any] = (
            payload.loads(record.capabilities) if record.capabilities else self._probable_capabilities()
        )
        capabilities = {
            name: server_capabilities[name] for name in PASSED_ON_CAPABILITIES if name in server_capabilities
        }
        if extensions := declared_by_endpoint(extension_entries(server_capabilities)):
            capabilities["extensions"] = extensions
        info: dict[str, Any] = payload.loads(record.server_info) if record.server_info else {}
        for name, default in (("name", self._server), ("version", "0")):
            if not isinstance(info.get(name), str):
                info[name] = default  # hosts refuse to connect without it
        return EndpointIntroduction(info, capabilities, record.instructions)

    def _probable_capabilities(self) -> dict[str, Any]:
        """Return the probable capabilities of a server not connected yet: those of its last lists, else all kinds."""
        listed_kinds = [kind for kind in CatalogKind if self._hub.catalog.record(self._server, kind) is not None]
        capabilities: dict[str, Any] = {
            SOURCES[kind].capability: {"listChanged": True} for kind in listed_kinds or CatalogKind
        }
        return {**capabilities, "extensions": expected_extensions(self._hub, self._server)}

    async def settle(self, kind: CatalogKind) -> None:
        """Index the entries of a kind by their names, and find out whom tools are for, in turns."""
        source = self._list_entries(kind)
        if self._indexes.get(kind, ((), {}))[0] is not source:
            self._indexes[kind] = source, await run_in_turns(_index_names(source))
        if kind is CatalogKind.TOOL and self._tools.source is not source:
            self._tools = await run_in_turns(_examine_tools(source))

    def is_settled(self, kind: CatalogKind) -> bool:
        """Return whether a list can be returned at once: of tools, those for pages alone have to be found first."""
        source = self._list_entries(kind)
        return kind is not CatalogKind.TOOL or self._tools.source is source or len(source) <= EXAMINED_AT_ONCE

    def find_entry(self, kind: CatalogKind, name: str, principal: Principal) -> bytes | None:
        """Return the entry of a tool or prompt by its name; None if there is none, or `settle` was not called."""
        source, indexes = self._indexes.get(kind, ((), {}))
        return source[indexes[name]] if name in indexes and self.servers(principal) else None

    def _list_entries(self, kind: CatalogKind) -> tuple[bytes, ...]:
        """Return the list of the server as the catalog has it."""
        return self._hub.catalog.entries(self._list_ids[kind])

    def entries(self, kind: CatalogKind, principal: Principal, *, apps: bool = False) -> Sequence[bytes]:
        """Return all entries of a kind as the server lists them; without `apps` no tools that only pages may call."""
        if not self.servers(principal):
            return ()
        if apps or kind is not CatalogKind.TOOL:
            return self._list_entries(kind)
        return self._tools_by_audience().for_models

    def find_target(
        self, kind: CatalogKind, name: str, principal: Principal, pages_read: PagesRead | None = None
    ) -> ServerTarget:
        """Return this server with the name as the host sent it: the server itself decides whether the name exists.

        `app` of the target is set for a tool that only pages of apps may call. `pages_read` is not used: hosts and
        pages use the same names here, the server's own. Raises NotFound if the principal may not call the server.
        """
        if not self.servers(principal):
            raise NotFound("server", self._server)
        is_for_pages_alone = kind is CatalogKind.TOOL and name in self._tools_by_audience().for_pages_alone
        return ServerTarget(self._server, name, app=is_for_pages_alone)

    def _tools_by_audience(self) -> "_ServerTools":
        """Return the server's tools by audience: models, or pages of apps alone; examined again if the list is new."""
        source = self._list_entries(CatalogKind.TOOL)
        if self._tools.source is not source:
            self._tools = run_at_once(_examine_tools(source))
        return self._tools

    def render_result(self, server: str, result: bytes, spelled: Spelling = USUAL_SPELLING) -> bytes:
        """Return the result unchanged."""
        return result

    searches_tools = False

    async def search(self, query: str, limit: int, principal: Principal) -> list[bytes]:
        """Return nothing: tools are not searched for here."""
        return []


async def settle_lookup(view: EndpointView, kind: CatalogKind) -> None:
    """Wait until the lists are ready in which `find_target` looks for a name or URI of this kind.

    A URI is looked up in the lists of all URI_KINDS.
    """
    for each in URI_KINDS if kind in URI_MEMBERS else (kind,):
        await view.settle(each)


def expected_extensions(hub: Hub, server: str) -> dict[str, Any]:
    """Return a server's probable extensions, by name with empty settings, for use while its real ones are not known.

    They are the extensions of those kinds of which the catalog has a list from an earlier connection of the server.
    """
    listed = [SOURCES[kind] for kind in CatalogKind if hub.catalog.record(server, kind) is not None]
    return {source.extension: {} for source in listed if source.extension}


@dataclass(frozen=True, slots=True)
class _ServerTools:
    """A server's list of tools, and whom they are for."""

    source: tuple[bytes, ...] = ()
    for_models: tuple[bytes, ...] = ()
    for_pages_alone: frozenset[str] = frozenset()
    """The names of the tools that only pages of apps may call."""


def _examine_tools(source: tuple[bytes, ...]) -> Generator[None, None, _ServerTools]:
    """Return the tools of a list by their audience; examined in short steps."""
    for_models: list[bytes] = []
    for_pages_alone: set[str] = set()
    for entry in source:
        yield
        tool: dict[str, Any] = payload.loads(entry) if b'"visibility"' in entry else {}
        if read_audience(tool).for_models:
            for_models.append(entry)
        else:
            for_pages_alone.add(str(tool.get("name")))
    return _ServerTools(source, tuple(for_models) if for_pages_alone else source, frozenset(for_pages_alone))


def _index_names(source: tuple[bytes, ...]) -> Generator[None, None, dict[str, int]]:
    """Return by name the index of the first entry with it in a list; made in short steps."""
    indexes: dict[str, int] = {}
    for index, entry in enumerate(source):
        yield
        name: object = payload.loads(entry).get("name")
        if isinstance(name, str):
            indexes.setdefault(name, index)
    return indexes


def list_member(kind: CatalogKind) -> str:
    """Return the name of the member of a result that has a list of this kind."""
    return SOURCES[kind].member
