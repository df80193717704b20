"""Search over the catalogs of all servers."""

from collections.abc import Sequence
from typing import Any

from hubbub_client.data.catalog import CatalogEntry
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_web.records.brief import clip

MAX_FOUND = 200
"""Entries that a search returns."""

_KEY_OF_KIND = {"resource": "uri", "template": "uriTemplate", "skill": "uri"}
"""What names an entry of a kind within its list, if not its `name`."""


async def search(hub: Hub, text: str) -> tuple[list[dict[str, Any]], int]:
    """Return entries that have all words of a text, the best first and at most MAX_FOUND, and how many there are."""
    words = text.lower().split()
    entries, _ = await hub.catalog.read()
    ranked = [(rank, entry) for entry in entries if (rank := _rank(entry, words)) is not None]
    ranked.sort(key=lambda pair: pair[0])
    return [_entry_json(entry) for _, entry in ranked[:MAX_FOUND]], len(ranked)


def _rank(entry: CatalogEntry, words: Sequence[str]) -> int | None:
    """Return 0 if name and title have all words, 1 if all texts of the entry together do, None if a word is missing."""
    name = f"{entry.name} {entry.title or ''}".lower()
    if all(word in name for word in words):
        return 0
    all_text = " ".join((name, entry.server, entry.description or "", entry.uri or "")).lower()
    return 1 if all(word in all_text for word in words) else None


def _entry_json(entry: CatalogEntry) -> dict[str, Any]:
    """Return the short form of an entry, for the list of what was found."""
    definition = as_object(entry.object)
    return {
        "server": entry.server,
        "kind": entry.kind,
        "key": str(definition.get(_KEY_OF_KIND.get(entry.kind or "", "name")) or entry.name),
        "name": clip(entry.name),
        "title": clip(entry.title or entry.name),
        "about": clip(entry.description or ""),
    }
