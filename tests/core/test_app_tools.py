"""Whom tools with pages are for, and whose tool a page calls."""

from typing import Any

import pytest

from hubbubd.core.hosts.app_tools import EVERYBODY, PagesRead, ToolAudience, read_audience, select_servers

PAGE = "ui://a"
METAS: list[tuple[Any, ToolAudience]] = [
    (None, EVERYBODY),
    ([], EVERYBODY),
    ({"ui": 5, "other": 1}, EVERYBODY),
    ({"ui": {"resourceUri": PAGE}}, ToolAudience(PAGE)),
    ({"ui/resourceUri": PAGE}, ToolAudience(PAGE)),
    ({"ui": {"visibility": ["app"]}}, ToolAudience(None, for_models=False)),
    ({"ui": {"visibility": "app"}}, ToolAudience(None, for_models=False)),
    ({"ui": {"resourceUri": PAGE, "visibility": ["model"]}}, ToolAudience(PAGE, for_pages=False)),
    ({"ui": {"visibility": ["model", "app", {}]}}, EVERYBODY),
    ({"ui": {"visibility": []}}, ToolAudience(None, for_models=False, for_pages=False)),
    ({"ui": {"visibility": None}}, EVERYBODY),
]


@pytest.mark.parametrize(("meta", "audience"), METAS)
def test_a_tool_says_whom_it_is_for(meta: Any, audience: ToolAudience) -> None:
    assert read_audience({"name": "t", "_meta": meta}) == audience


@pytest.mark.parametrize(
    ("candidates", "read", "selected"),
    [
        ("a", PagesRead(), "a"),
        ("ab", PagesRead(is_complete=True), "ab"),
        ("ab", PagesRead({"b"}), "b"),
        ("ab", PagesRead({"a", "b"}, is_complete=True), "ab"),
        ("a", PagesRead({"b"}), "a"),
        ("a", PagesRead({"b"}, is_complete=True), ""),
        ("ab", PagesRead({"c"}, is_complete=True), ""),
    ],
)
def test_a_page_is_of_a_server_whose_pages_were_read(candidates: str, read: PagesRead, selected: str) -> None:
    assert [*select_servers([*candidates], read)] == [*selected]
