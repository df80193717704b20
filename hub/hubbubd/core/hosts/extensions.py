"""Extensions of MCP: what the hub tells hosts of those that its servers declare, and what it keeps of those of hosts.

An extension is declared as `capabilities.extensions[IDENTIFIER]`, an object. The hub tells a host only of what works
through the endpoint that the host uses.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.hosts.skills import declared_skills
from hubbubd.core.tasks import EXTENSION as TASKS

UI: Final = "io.modelcontextprotocol/ui"
"""MCP Apps (SEP-1865): tools have pages, which hosts show."""

APP_PAGE: Final = "text/html;profile=mcp-app"
"""The MIME type of pages."""

MAX_MIME_TYPES: Final = 4
"""MIME types of an entry that are looked at."""

MAX_MIME_TYPE: Final = 64
"""Characters of a MIME type; a longer one is left out."""

MAX_STORED_BYTES: Final = 512
"""Bytes of a host's entries that are stored, as JSON: there are many sessions, and each is in memory and stored."""


def extension_entries(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entries of extensions in the capabilities of a host or server; empty if they have another shape."""
    return _as_mapping(capabilities.get("extensions"))


def page_mime_types(entries: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the MIME types of pages that the entry of MCP Apps names, the first few; none without such an entry."""
    listed: object = _as_mapping(entries.get(UI)).get("mimeTypes")
    candidates = cast("list[object]", listed)[:MAX_MIME_TYPES] if isinstance(listed, list) else []
    return tuple(dict.fromkeys(each for each in candidates if isinstance(each, str) and _is_short_and_plain(each)))


def _is_short_and_plain(text: str) -> bool:
    """Return whether a MIME type is short enough to keep, and printable ASCII."""
    return len(text) <= MAX_MIME_TYPE and text.isascii() and text.isprintable()


def shows_apps(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a host with these capabilities shows pages."""
    return "extensions" in capabilities and UI in extension_entries(capabilities)


def app_entry(capabilities: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a host's entry of MCP Apps, reduced to its MIME types, as nobody reads more; None if it has no entry."""
    return {"mimeTypes": list(page_mime_types(extension_entries(capabilities)))} if shows_apps(capabilities) else None


def declared_by_profile(servers: Iterable[Mapping[str, Any]], *, has_pages: bool) -> dict[str, Any]:
    """Return the extensions that a profile declares to hosts. `servers` has the entries of extensions of each server.

    `has_pages` says whether any tool that is shown has a page: a server with pages need not declare the extension.
    """
    entries_by_server = list(servers)
    declared: dict[str, Any] = {}
    if has_pages or any(UI in entries for entries in entries_by_server):
        mime_types = [APP_PAGE] if has_pages else []  # a server may declare pages without their types
        mime_types += (each for entries in entries_by_server for each in page_mime_types(entries))
        declared[UI] = {"mimeTypes": list(dict.fromkeys(mime_types or [APP_PAGE]))[:MAX_MIME_TYPES]}
    return declared


def declared_by_endpoint(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extensions that the endpoint of one server declares: what the hub serves of the server's own."""
    return declared_by_profile((entries,), has_pages=False) | declared_skills((entries,))


def select_stored_entries(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a host's extensions to store with its session.

    The entries that the hub itself reads (tasks and pages) are stored in any case, without members that the hub does
    not read. Other entries are stored as long as they fit into the rest of MAX_STORED_BYTES.
    """
    entries = extension_entries(capabilities)
    stored: dict[str, Any] = {TASKS: {}} if TASKS in entries else {}
    if (ui := app_entry(capabilities)) is not None:
        stored[UI] = ui
    bytes_left = MAX_STORED_BYTES - len(payload.dumps(stored))
    for name, entry in entries.items():
        if name in stored or len(name) > bytes_left:
            continue
        entry_bytes = len(payload.dumps({name: entry}))
        if entry_bytes <= bytes_left:
            stored[name] = dict(_as_mapping(entry))
            bytes_left -= entry_bytes
    return stored


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
