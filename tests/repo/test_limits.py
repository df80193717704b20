"""The tables of settings say which bounds there are, with their defaults and what is beyond them."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hubbub_frontend.error_help import entries
from hubbubd.config import HubSettings, ServerConfig

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/configuration.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """The default and the text of each key of the table below a heading."""
    section = DOCUMENT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {name: (default, text) for name, default, text in ROW.findall(section)}


def is_bound(name: str) -> bool:
    return name.startswith("max_") or "_per_" in name


TABLES: list[tuple[type[BaseModel], str]] = [(HubSettings, "The hub"), (ServerConfig, "A server")]


@pytest.mark.parametrize(("settings", "heading"), TABLES)
def test_every_bound_by_count_or_rate_has_its_row_with_its_default(settings: Any, heading: str) -> None:
    table = rows(heading)
    bounds = [name for name in settings.model_fields if is_bound(name)]
    assert {name for name in table if is_bound(name)} == set(bounds)
    for name in bounds:
        wanted = settings.model_fields[name].default
        assert table[name][0] == ("as `max_watchers`" if wanted is None else f"`{wanted}`"), name


@pytest.mark.parametrize(("settings", "heading"), TABLES)
def test_every_bound_says_what_is_beyond_it(settings: Any, heading: str) -> None:
    beyond = re.compile(r"`[A-Z_]{4,}`|; then |, then |One more|the oldest go|others wait|likewise")
    assert [name for name, (_, text) in rows(heading).items() if is_bound(name) and not beyond.search(text)] == []


def test_every_reason_that_is_named_is_explained() -> None:
    texts = [text for _, heading in TABLES for name, (_, text) in rows(heading).items() if is_bound(name)]
    texts.append(DOCUMENT.partition("\n## Bounds without a setting\n")[2])
    reasons = {reason for text in texts for reason in re.findall(r"`([A-Z_]{4,})`", text)}
    assert len(reasons) > 15
    assert reasons - set(entries()) == set()
