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
"""That of a tool that says nothing of it."""


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
    """The servers whose pages a host has read; whether that is all, or only what one of its connections has read."""

    servers: Collection[str] = ()
    whole: bool = False


def select_servers(candidates: Sequence[str], read: PagesRead) -> Sequence[str]:
    """Return those of the candidates, the servers with a tool that a page calls, whose page this may be.

    These are the servers whose pages the host has read. If it has read none of the candidates', the page may be of any
    of them; of none, if all that the host has read is known, and is of others.
    """
    among_read = [each for each in candidates if each in read.servers]
    return among_read if among_read or (read.whole and read.servers) else candidates
