"""Skills (SEP-2640): what servers declare of them, and which of their methods an endpoint has.

A skill is a folder with a SKILL.md, whose files are resources. `skills/list` is a list of the catalog like any other.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from hubbubd.core.servers.catalog import SKILLS

DIRECTORY_READ: Final = "resources/directory/read"

METHODS: Final = frozenset({"skills/list", "skills/get", DIRECTORY_READ})


def declared_skills(servers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entry of skills for servers with these entries of extensions; empty if none of them has skills."""
    declared = [each for entries in servers if (each := _skills_entry(entries)) is not None]
    if not declared:
        return {}
    reads_directories = any(each.get("directoryRead") is True for each in declared)
    return {SKILLS: {"directoryRead": True} if reads_directories else {}}


def serves_method(entries: Mapping[str, Any], method: str) -> bool:
    """Return whether an endpoint that declares these entries of extensions has a method of METHODS."""
    entry = _skills_entry(entries)
    return entry is not None and (method != DIRECTORY_READ or entry.get("directoryRead") is True)


def _skills_entry(entries: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the entry of skills among entries of extensions; None if there is none."""
    entry: object = entries.get(SKILLS)
    return cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else None
