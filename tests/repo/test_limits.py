"""The table of limits says what the settings are."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hubbub_frontend.explained import entries
from hubbubd.config import HubSettings, ServerConfig

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/limits.md").read_text()
HUB, SERVER = DOCUMENT.split("## Of a server")
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|(?:.*\|)? ([^|]+) \|$", re.MULTILINE)

TABLES: list[tuple[type[BaseModel], str]] = [(HubSettings, HUB), (ServerConfig, SERVER)]


@pytest.mark.parametrize(("settings", "text"), TABLES)
def test_every_limit_is_a_setting_with_the_default_that_the_table_gives(settings: Any, text: str) -> None:
    rows = ROW.findall(text)
    assert rows
    for name, default, _ in rows:
        wanted = settings.model_fields[name].default
        assert default == ("as `max_watchers`" if wanted is None else str(wanted)), name


def test_every_limit_by_count_or_rate_has_its_row() -> None:
    limits = {n for n in HubSettings.model_fields if n.startswith("max_") or "_per_" in n}
    assert {name for name, *_ in ROW.findall(HUB)} == limits
    limits = {n for n in ServerConfig.model_fields if n.startswith("max_")}
    assert {name for name, *_ in ROW.findall(SERVER)} == limits


def test_every_reason_in_the_tables_is_explained() -> None:
    reasons = re.findall(r"`([A-Z_]{4,})`", HUB + SERVER)
    assert reasons
    for reason in reasons:
        assert reason in entries()
