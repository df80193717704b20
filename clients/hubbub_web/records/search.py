"""Search over the catalogs of all servers."""

from collections.abc import Sequence
from typing import Any

from hubbub_client.data.records import CatalogEntry
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_web.records.brief import clip

MAX_FOUND = 200
"""Entries that a search returns."""

_KEYS = {"resource": "uri", "template": "uriTemplate"}
"""What names an entry of a kind within its list, if not its `name`."""


async def search(hub: Hub, text: str) -> tuple[list[dict[str, Any]], int]:
    """Return entries that have all words of a text, the best first and at most MAX_FOUND, and how many there are."""
    words = text.lower().split()
    entries, _ = await hub.catalog.read()
    found = [(place, entry) for entry in entries if (place := _place(entry, words)) is not None]
    found.sort(key=lambda each: each[0])
    return [_short(entry) for _, entry in found[:MAX_FOUND]], len(found)


def _place(entry: CatalogEntry, words: Sequence[str]) -> int | None:
    """Return 0 if the name or title has all words, 1 if other texts are needed for that, None without all words."""
    it = as_object(entry.object)
    name = f"{entry.name} {entry.title or ''}".lower()
    if all(word in name for word in words):
        return 0
    whole = " ".join(
        (name, entry.server.lower(), *(str(it.get(key) or "").lower() for key in ("description", "uri", "uriTemplate")))
    )
    return 1 if all(word in whole for word in words) else None


def _short(entry: CatalogEntry) -> dict[str, Any]:
    it = as_object(entry.object)
    key = str(it.get(_KEYS.get(entry.kind or "", "name")) or entry.name)
    words = {"name": entry.name, "title": entry.title or entry.name, "about": str(it.get("description") or "")}
    shape = {name: clip(text) for name, text in words.items()}
    return {"server": entry.server, "kind": entry.kind, "key": key, **shape}
