"""What servers offer, as records: their lists, and what is in them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hubbub_client import payload
from hubbub_client.data.literals import CatalogKind, Freshness
from hubbub_client.data.records import RECORDS, Fault, Record


@dataclass(frozen=True, kw_only=True)
class CatalogList(Record):
    """A server's list of tools, resources, templates, prompts or skills, with its freshness."""

    id: str
    server: str
    kind: CatalogKind
    freshness: Freshness
    fetched_at: datetime | None
    error: Fault | None
    count: int


@dataclass(frozen=True, kw_only=True)
class CatalogEntry(Record):
    """A tool, resource, template, prompt or skill of a server; `object` is the MCP object."""

    server: str
    kind: CatalogKind
    object: Any

    @property
    def name(self) -> str:
        """Return the entry's MCP name, empty if it has none."""
        return _string_at(payload.labels_of(self.kind, self.object), "name") or ""

    @property
    def title(self) -> str | None:
        """Return the entry's title for people; None if it has none."""
        return _string_at(payload.labels_of(self.kind, self.object), "title")

    @property
    def description(self) -> str | None:
        """Return the entry's description; None if it has none."""
        return _string_at(payload.labels_of(self.kind, self.object), "description")

    @property
    def uri(self) -> str | None:
        """Return the URI of a resource or of a skill's SKILL.md, or the URI template of a template, else None."""
        return _string_at(self.object, "uri") or _string_at(self.object, "uriTemplate")


def _string_at(value: object, key: str) -> str | None:
    """Return the string under a key of a JSON object; None if there is none, or the value is no object."""
    found = payload.as_object(value).get(key)
    return found if isinstance(found, str) else None


RECORDS.update({kind.__name__: kind for kind in (CatalogList, CatalogEntry)})
