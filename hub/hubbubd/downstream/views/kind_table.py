"""Tables of what a profile shows of one kind of entries: lists, names and search indexes."""

from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass, field

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.hosts.tool_search import Index
from hubbubd.downstream.views.list_groups import ListEntry, ListGroup, index_in_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTable:
    """What a profile with these settings shows of a kind, by the catalog at `version`."""

    version: int
    settings: ProfileSettings
    groups: dict[str, ListGroup]
    """By server, the group that it is in."""

    distinct_groups: tuple[ListGroup, ...]
    """The same groups, each once: servers whose names may clash share one."""

    has_tool_filter: bool
    """Whether the profile leaves out tools by their names."""

    entries: dict[str, tuple[ListEntry, ...]]
    """By server, all entries that hosts may use, listed or not."""

    listed: dict[str, tuple[bytes, ...]]
    """By server, the entries that are listed, as JSON."""

    listed_with_apps: dict[str, tuple[bytes, ...]]
    """The same for hosts that show pages of apps: what pages need is listed, too."""

    indexes: dict[str, Index] = field(default_factory=dict[str, Index])
    """By server, search indexes where the profile shows only a part of the server's tools; made by the first search."""

    def index(self, server: str) -> Generator[None, None, Index]:
        """Return the search index of a server's tools; if there is none yet, make it in short steps and store it."""
        group, entries = self.groups[server], self.entries[server]
        # An index of all tools of a server is kept in the group, for all profiles that show them all.
        known_indexes = group.indexes if entries is group.entries[server] else self.indexes
        if server not in known_indexes:
            known_indexes[server] = yield from index_in_steps(entries)
        return known_indexes[server]

    def has_same_entries(self, server: str, group: ListGroup) -> bool:
        """Return whether the table was made with the same entries (by identity) that a group has of a server."""
        return server in self.groups and self.groups[server].entries[server] is group.entries[server]

    def find(self, shown_name: str) -> ListEntry | None:
        """Return the entry that hosts see under a name; None if there is none."""
        is_visible = self.settings.has_tool(shown_name) if self.has_tool_filter else True
        candidates = (group.by_name.get(shown_name) for group in self.distinct_groups) if is_visible else ()
        return next((entry for entry in candidates if entry is not None), None)

    def pages(self, server: str) -> Collection[str]:
        """Return the pages that a server's tools name, by the server's own URIs."""
        return self.groups[server].pages.get(server, ()) if server in self.groups else ()

    def find_app_tools(self, own_name: str, servers: Iterable[str]) -> list[ListEntry]:
        """Return the tools that their own server calls `own_name`, of those servers whose tools have pages."""
        groups = [(server, self.groups[server]) for server in servers if server in self.groups]
        tools = [group.app_tools[server].get(own_name) for server, group in groups if server in group.app_tools]
        return [
            each
            for each in tools
            if each is not None and (not self.has_tool_filter or self.settings.has_tool(each.name))
        ]


def filter_in_steps(
    entries: dict[str, tuple[ListEntry, ...]], is_wanted: Callable[[ListEntry], bool]
) -> Generator[None, None, dict[str, tuple[ListEntry, ...]]]:
    """Return the entries for which `is_wanted` returns True, by server; in short steps."""
    wanted: dict[str, tuple[ListEntry, ...]] = {}
    for server, server_entries in entries.items():
        wanted_entries: list[ListEntry] = []
        for entry in server_entries:
            yield
            if is_wanted(entry):
                wanted_entries.append(entry)
        wanted[server] = tuple(wanted_entries)
    return wanted
