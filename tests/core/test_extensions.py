"""Extensions of MCP: what hosts see of those of servers, and what is kept of those of hosts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.core.hosts.extensions import (
    APP_PAGE,
    UI,
    declared_by_endpoint,
    declared_by_profile,
    select_stored_entries,
    shows_apps,
)

TASKS = "io.modelcontextprotocol/tasks"
PAGES = {UI: {"mimeTypes": [APP_PAGE]}}


PROFILES: list[tuple[list[dict[str, Any]], bool, dict[str, Any]]] = [
    ([], False, {}),
    ([{TASKS: {}, "x/y": {}}], False, {}),
    ([{}], True, PAGES),
    ([{UI: {}}], False, PAGES),
    ([{UI: 5}, {}], False, PAGES),
    ([{UI: {"mimeTypes": ["a/b"]}}, PAGES], False, {UI: {"mimeTypes": ["a/b", APP_PAGE]}}),
    ([{UI: {"mimeTypes": ["a/b", 5, "x" * 1000]}}], True, {UI: {"mimeTypes": [APP_PAGE, "a/b"]}}),
]


@pytest.mark.parametrize(("servers", "has_pages", "declared"), PROFILES)
def test_a_profile_declares_the_pages_of_its_servers(
    servers: list[dict[str, Any]], has_pages: bool, declared: dict[str, Any]
) -> None:
    assert declared_by_profile(servers, has_pages=has_pages) == declared


@pytest.mark.parametrize(
    ("entries", "declared"), [({}, {}), ({"x/y": {}}, {}), ({**PAGES, "x/y": {}}, PAGES), ({UI: []}, PAGES)]
)
def test_the_endpoint_of_a_server_declares_what_works_through_the_hub(
    entries: dict[str, Any], declared: dict[str, Any]
) -> None:
    assert declared_by_endpoint(entries) == declared


NAMES = st.sampled_from([UI, TASKS, "io.example/a", "io.example/b"]) | st.text(max_size=300)
ENTRIES = st.none() | st.text(max_size=300) | st.dictionaries(st.text(max_size=5), st.text(max_size=400), max_size=3)
LISTS = st.fixed_dictionaries({"mimeTypes": st.lists(st.text(max_size=200) | st.integers(), max_size=20)})


@given(st.dictionaries(NAMES, ENTRIES | LISTS, max_size=30))
def test_what_is_kept_of_a_host_is_short_and_says_the_same_of_what_the_hub_reads(said: dict[str, Any]) -> None:
    kept = select_stored_entries({"extensions": said})
    assert (TASKS in kept, UI in kept) == (TASKS in said, UI in said)
    assert shows_apps({"extensions": kept}) == shows_apps({"extensions": said})
    assert len(payload.dumps(kept)) < 1024
    assert select_stored_entries({"extensions": kept}) == kept


@pytest.mark.parametrize("capabilities", [{}, {"extensions": None}, {"extensions": [UI]}, {"extensions": UI}])
def test_a_host_without_the_extension_shows_no_pages(capabilities: dict[str, Any]) -> None:
    assert not shows_apps(capabilities)
    assert select_stored_entries(capabilities) == {}
