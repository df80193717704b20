"""The lists of a server: what becomes of them, when they are fetched again, and what is too much."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from hubbubd.core.servers import catalog
from hubbubd.core.servers.catalog import CatalogKind, CatalogList, Freshness, ListRefused, Pages, Truncation
from hubbubd.errors import Category, Fault

NOW = 1000.0
BROKEN = Fault(code="SERVER_ERROR", category=Category.SERVER, message="no")
SLOW = Fault(code="CALL_TIMEOUT", category=Category.TIMEOUT, message="slow", retryable=True)
GONE = Fault(code="CONNECTION_LOST", category=Category.CONNECTION, message="gone", retryable=True)


def tools(freshness: Freshness = Freshness.FRESH, **more: Any) -> CatalogList:
    return CatalogList(**{"id": "s/tool", "server": "s", "kind": CatalogKind.TOOL, "freshness": freshness, **more})


@pytest.mark.parametrize("before", Freshness)
@pytest.mark.parametrize(
    ("kind", "count", "after"),
    [
        (CatalogKind.TOOL, 2, Freshness.FRESH),
        (CatalogKind.TOOL, 0, Freshness.EMPTY),
        (CatalogKind.RESOURCE, 0, Freshness.EMPTY),
        (CatalogKind.PROMPT, 0, Freshness.EMPTY),
        (CatalogKind.TEMPLATE, 0, Freshness.FRESH),
    ],
)
def test_a_fetched_list_is_fresh_and_an_empty_one_that_was_announced_is_shown_as_such(
    before: Freshness, kind: CatalogKind, count: int, after: Freshness
) -> None:
    record = catalog.after_fetch(tools(before, kind=kind, fault=BROKEN), count, 5.0, NOW)
    assert (record.freshness, record.fault) == (after, None)
    assert (record.fetched_at, record.count, record.ttl_s) == (NOW, count, 5.0)


@pytest.mark.parametrize("before", Freshness)
def test_a_failed_fetch_says_why_and_keeps_what_was_there(before: Freshness) -> None:
    record = catalog.after_failed_fetch(tools(before, count=3, fetched_at=1.0), BROKEN)
    assert (record.freshness, record.fault, record.count, record.fetched_at) == (Freshness.ERROR, BROKEN, 3, 1.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Freshness.UNKNOWN, Freshness.UNKNOWN),
        (Freshness.FRESH, Freshness.STALE),
        (Freshness.EMPTY, Freshness.STALE),
        (Freshness.STALE, Freshness.STALE),
        (Freshness.ERROR, Freshness.ERROR),
    ],
)
def test_a_list_that_may_have_changed_is_stale(before: Freshness, after: Freshness) -> None:
    assert catalog.as_outdated(tools(before)).freshness is after
    assert catalog.after_disconnect(tools(before)).freshness is after


@pytest.mark.parametrize(
    ("fetched_at", "fault", "after"),
    [
        (1.0, GONE, (Freshness.STALE, None)),
        (None, GONE, (Freshness.UNKNOWN, None)),
        (1.0, BROKEN, (Freshness.ERROR, BROKEN)),
    ],
)
def test_a_fetch_that_the_end_of_the_connection_broke_off_is_no_failure(
    fetched_at: float | None, fault: Fault, after: Any
) -> None:
    record = catalog.after_disconnect(tools(Freshness.ERROR, fetched_at=fetched_at, fault=fault))
    assert (record.freshness, record.fault) == after


@pytest.mark.parametrize(
    ("changes", "told", "due"),
    [
        ({"ttl_s": None}, True, math.inf),
        ({"ttl_s": None}, False, math.inf),
        ({"ttl_s": 600.0}, True, NOW + 600),
        ({"ttl_s": 1.0}, True, NOW + catalog.TTL_FLOOR_S),
        ({"ttl_s": 0.0}, True, math.inf),
        ({"ttl_s": 0.0}, False, NOW + catalog.TTL_FLOOR_S),
        ({"fault": BROKEN}, True, math.inf),
        ({"fault": SLOW, "ttl_s": 1.0}, True, NOW + catalog.RETRY_S),
        ({"fault": replace(SLOW, retry_after_s=500.0)}, True, NOW + 500),
        ({"fault": replace(SLOW, retry_after_s=999_999_999.0)}, True, NOW + 3600),
        ({"fault": replace(SLOW, retry_after_s=math.inf)}, True, NOW + 3600),
    ],
)
def test_when_a_list_is_fetched_again_without_a_word(changes: dict[str, Any], told: bool, due: float) -> None:
    assert catalog.next_fetch(tools(fetched_at=NOW, **changes), NOW, notifies=told) == due


CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}, "prompts": None}


def test_a_server_has_the_kinds_that_its_capabilities_announce() -> None:
    assert catalog.declared_kinds(CAPABILITIES) == (CatalogKind.TOOL, CatalogKind.RESOURCE, CatalogKind.TEMPLATE)
    assert catalog.announced_kinds(CAPABILITIES) == {CatalogKind.TOOL}
    assert catalog.declared_kinds({}) == ()


@pytest.mark.parametrize("declared", [{}, {"directoryRead": True}])
def test_a_server_has_skills_if_it_declares_their_extension(declared: dict[str, Any]) -> None:
    with_skills = {"extensions": {"io.modelcontextprotocol/skills": declared}, "resources": {"listChanged": True}}
    assert catalog.declared_kinds(with_skills)[-1] is CatalogKind.SKILL
    assert CatalogKind.SKILL in catalog.announced_kinds(with_skills)
    del with_skills["resources"]  # which the extension needs, but a list is a list
    assert (catalog.declared_kinds(with_skills), catalog.announced_kinds(with_skills)) == ((CatalogKind.SKILL,), set())


@pytest.mark.parametrize("extensions", [None, [], "skills", {"io.modelcontextprotocol/skills": None}])
def test_a_server_that_declares_extensions_in_another_shape_has_no_skills(extensions: object) -> None:
    assert catalog.declared_kinds({"extensions": extensions}) == ()


def test_a_notification_tells_of_the_lists_that_it_names() -> None:
    assert catalog.kinds_changed_by("notifications/tools/list_changed") == {CatalogKind.TOOL}
    assert catalog.kinds_changed_by("notifications/resources/list_changed") == {
        CatalogKind.RESOURCE,
        CatalogKind.TEMPLATE,
        CatalogKind.SKILL,
    }
    assert catalog.kinds_changed_by("notifications/prompts/list_changed") == {CatalogKind.PROMPT}
    assert catalog.kinds_changed_by("notifications/roots/list_changed") == frozenset()


def test_a_subscription_asks_for_what_is_wanted_and_holds_what_is_honoured() -> None:
    assert catalog.listen_filter([CatalogKind.RESOURCE, CatalogKind.TEMPLATE]) == {"resourcesListChanged": True}
    assert catalog.honoured_kinds({"resourcesListChanged": True, "toolsListChanged": False}) == {
        CatalogKind.RESOURCE,
        CatalogKind.TEMPLATE,
        CatalogKind.SKILL,
    }


def test_lists_are_ordered_by_server_and_then_by_kind() -> None:
    ids = [catalog.list_id(server, kind) for server in ("a", "a-b", "b") for kind in CatalogKind]
    assert sorted(set(ids), key=catalog.sort_key) == ids
    assert catalog.sort_key("") < catalog.sort_key(ids[0])


def page(*names: str, cursor: Any = None, **more: Any) -> dict[str, Any]:
    listed = {"tools": [{"name": name} for name in names], **more}
    return listed if cursor is None else {**listed, "nextCursor": cursor}


def test_pages_are_gathered_in_order_with_the_shortest_cache_time() -> None:
    pages = Pages("s", CatalogKind.TOOL)
    assert pages.add(page("a", "b", cursor="2", ttlMs=9000)) == "2"
    assert pages.add(page("c", cursor="3", ttlMs=500)) == "3"
    assert pages.add(page(ttlMs=700)) is None
    assert pages.entries == [b'{"name":"a"}', b'{"name":"b"}', b'{"name":"c"}']
    assert pages.ttl_s == 0.5


@pytest.mark.parametrize("cursor", ["", None])
def test_an_empty_cursor_is_the_end(cursor: Any) -> None:
    assert Pages("s", CatalogKind.TOOL).add({"tools": [], "nextCursor": cursor}) is None


def gathered(results: Iterable[dict[str, Any]]) -> Pages:
    """The pages that are asked for, until there is no next one."""
    pages = Pages("s", CatalogKind.TOOL)
    for result in results:
        if pages.add(result) is None:
            break
    return pages


def test_a_cursor_that_leads_back_is_the_end_of_the_list() -> None:
    pages = gathered([page("a", cursor="x"), page("b", cursor="y"), page("c", cursor="x"), page("d")])
    assert pages.entries == [b'{"name":"a"}', b'{"name":"b"}', b'{"name":"c"}']
    assert pages.truncation == Truncation(is_loop=True, reason="page 3")


def test_of_pages_without_end_so_many_are_read() -> None:
    pages = gathered(page("a", cursor=str(n)) for n in range(2 * catalog.MAX_PAGES))
    assert (len(pages.entries), pages.truncation) == (
        catalog.MAX_PAGES,
        Truncation(is_loop=False, reason="more than 1000 pages"),
    )


def test_of_too_many_entries_the_first_are_taken() -> None:
    listed = {"tools": [{}] * 30_000, "nextCursor": None}
    pages = gathered({**listed, "nextCursor": str(n)} for n in range(100))
    assert (len(pages.entries), pages.truncation) == (
        catalog.MAX_ENTRIES,
        Truncation(is_loop=False, reason="more than 100000 entries"),
    )


def test_of_too_many_bytes_the_first_are_taken() -> None:
    pages = gathered(page("x" * 1024 * 1024, cursor=str(n)) for n in range(100))
    assert (len(pages.entries), pages.truncation) == (
        15,
        Truncation(is_loop=False, reason="more than 16777216 bytes"),
    )


def test_a_list_that_fills_its_bounds_is_whole() -> None:
    pages = gathered([{"tools": [{}] * catalog.MAX_ENTRIES}])
    assert (len(pages.entries), pages.truncation) == (catalog.MAX_ENTRIES, None)


def refusal(result: dict[str, Any]) -> Fault:
    with pytest.raises(ListRefused) as caught:
        gathered([result])
    return caught.value.fault


@pytest.mark.parametrize("result", [{}, {"tools": None}, {"tools": {}}, {"resources": []}])
def test_a_result_without_the_list_is_refused(result: dict[str, Any]) -> None:
    fault = refusal(result)
    assert (fault.code, fault.retryable) == ("INVALID_RESPONSE", False)
