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
    """Who may call a tool, and the page that shows its results: the server's own URI, or None without a page."""

    page: str | None = None
    for_models: bool = True
    for_pages: bool = True


EVERYBODY: Final = ToolAudience()
"""The audience of a tool that names none."""


def read_audience(tool: Mapping[str, Any]) -> ToolAudience:
    """Return whom a tool is for, and its page, as its entry in a server's list says."""
    meta_value: object = tool.get("_meta")
    if not isinstance(meta_value, Mapping):
        return EVERYBODY
    meta = cast("Mapping[str, Any]", meta_value)
    page, ui = find_page_uri(meta), meta.get("ui")
    visibility: object = cast("Mapping[str, Any]", ui).get("visibility") if isinstance(ui, Mapping) else None
    if isinstance(visibility, list | str):  # a list by the specification; a text is clear as well
        audiences = [visibility] if isinstance(visibility, str) else cast("list[object]", visibility)
        return ToolAudience(page, "model" in audiences, "app" in audiences)
    return ToolAudience(page) if page is not None else EVERYBODY


@dataclass(frozen=True, slots=True)
class PagesRead:
    """The servers whose pages a host has read. If not `is_complete`, it may have read pages of others as well."""

    servers: Collection[str] = ()
    is_complete: bool = False


def select_servers(candidates: Sequence[str], pages_read: PagesRead) -> Sequence[str]:
    """Return the servers whose tool a page may mean; all `candidates` have a tool of the name that the page calls.

    These are the candidates whose pages the host has read. If the host has read none of their pages, all candidates
    stay. None stays if it is certain (`is_complete`) that the host has read pages of other servers only.
    """
    matching = [each for each in candidates if each in pages_read.servers]
    return matching if matching or (pages_read.is_complete and pages_read.servers) else candidates
