"""Tools with pages (MCP Apps): who may call a tool, and which one a page calls by its server's own name for it.

A host passes on what a page calls as it is. So the name says nothing of the server, and the page is of one whose pages
the host has read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from hubbubd.core.hosts.host_uris import find_page_uri


@dataclass(frozen=True, slots=True)
class ToolAudience:
    """Whom a tool is for, and the page that shows its results, by its server's own URI."""

    page: str | None = None
    for_models: bool = True
    for_pages: bool = True


EVERYBODY: Final = ToolAudience()
"""The audience of a tool that names none."""


def read_audience(tool: Mapping[str, Any]) -> ToolAudience:
    """Return whom a tool is for, and its page, as its entry in a server's list says."""
    given: object = tool.get("_meta")
    if not isinstance(given, Mapping):
        return EVERYBODY
    meta = cast("Mapping[str, Any]", given)
    page, ui = find_page_uri(meta), meta.get("ui")
    visibility: object = cast("Mapping[str, Any]", ui).get("visibility") if isinstance(ui, Mapping) else None
    if isinstance(visibility, list | str):  # a text is no list, but it is plain what it means
        named = [visibility] if isinstance(visibility, str) else cast("list[object]", visibility)
        return ToolAudience(page, "model" in named, "app" in named)
    return ToolAudience(page) if page is not None else EVERYBODY


@dataclass(frozen=True, slots=True)
class PagesRead:
    """The servers whose pages a host has read. If not `is_complete`, it may have read pages of others as well."""

    servers: Collection[str] = ()
    is_complete: bool = False


def select_servers(candidates: Sequence[str], read: PagesRead) -> Sequence[str]:
    """Return which of the `candidates`, the servers that have a tool of a name, a page may mean that calls this name.

    These are the candidates whose pages the host has read. If the host has read no page of theirs, all candidates stay.
    But none stays if it is certain (`is_complete`) that the host has read pages, and of other servers only.
    """
    among_read = [each for each in candidates if each in read.servers]
    return among_read if among_read or (read.is_complete and read.servers) else candidates
