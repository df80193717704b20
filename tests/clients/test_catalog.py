"""The catalog in the library and on the command line."""

from typing import Any

import pytest

from hubbub.v1 import catalog_pb2, common_pb2
from hubbub_client import connect


def _catalog(_: Any) -> Any:
    tool = catalog_pb2.CatalogEntry(server="a", kind=catalog_pb2.CATALOG_KIND_TOOL, object=b'{"name":"t","title":"T"}')
    fault = common_pb2.Fault(code="CALL_TIMEOUT", category=common_pb2.FAULT_CATEGORY_TIMEOUT, message="slow")
    states = ("FRESH", "STALE", "EMPTY", "ERROR", "UNKNOWN")
    lists = [
        catalog_pb2.CatalogList(
            server=state.lower(),
            kind=catalog_pb2.CATALOG_KIND_TOOL,
            freshness=catalog_pb2.Freshness.Value(f"FRESHNESS_{state}"),
            error=fault if state == "ERROR" else None,
        )
        for state in states
    ]
    return catalog_pb2.ListCatalogEntriesResponse(entries=[tool], lists=lists)


@pytest.mark.parametrize("json", [True, False])
async def test_the_catalog_warns_of_lists_that_cannot_be_relied_on(hub: Any, hubbub: Any, json: bool) -> None:
    hub.replies["ListCatalogEntries"] = _catalog
    ran = await hubbub("catalog", "tools", "--server", "a", json=json)
    assert ran.status == 0
    if json:
        assert ran.lines == [{"server": "a", "tool": {"name": "t", "title": "T"}}]
    else:
        assert ran.out.split() == ["server", "name", "description", "a", "t", "T"]
    warned = [line.partition(":")[0] for line in ran.err.splitlines()]
    assert warned == ["stale", "empty", "error", "unknown"]
    assert "CALL_TIMEOUT: slow" in ran.err
    (request,) = hub.requests("ListCatalogEntries")
    assert (request.filter.kinds, request.filter.server) == ([catalog_pb2.CATALOG_KIND_TOOL], "a")


async def test_the_catalog_is_read_over_all_its_pages_with_the_lists_of_the_first(hub: Any) -> None:
    def page(request: Any) -> Any:
        number = int(request.page_token or "0")
        entry = catalog_pb2.CatalogEntry(
            server="a", kind=catalog_pb2.CATALOG_KIND_TEMPLATE, object=b'{"name":"n%d","uriTemplate":"x:{y}"}' % number
        )
        lists = [] if number else [catalog_pb2.CatalogList(id="a/template", count=3)]
        token = str(number + 1) if number < 2 else ""
        return catalog_pb2.ListCatalogEntriesResponse(entries=[entry], next_page_token=token, lists=lists)

    hub.replies["ListCatalogEntries"] = page
    async with connect(data_dir=hub.data_dir) as client:
        entries, lists = await client.catalog.read("template", "a")
        assert [each.name for each in await client.catalog.templates()] == ["n0", "n1", "n2"]
    assert [(each.name, each.uri, each.title, each.description) for each in entries] == [
        (f"n{number}", "x:{y}", None, None) for number in range(3)
    ]
    assert [(each.id, each.count) for each in lists] == [("a/template", 3)]


SKILL = (
    b'{"uri":"skill://git/SKILL.md","frontmatter":{"name":"git","description":"How branches are named"},'
    b'"resources":[{"uri":"skill://git/SKILL.md"},{"uri":"skill://git/NAMES.md"}]}'
)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("skills",), ["How branches are named", "skill://git/SKILL.md"]),
        (("search", "branches"), ["How branches are named"]),
        (("show", "a", "skill://git/SKILL.md", "--kind", "skill"), ["NAMES.md", "read a skill://git/SKILL.md"]),
    ],
)
async def test_a_skill_is_shown_by_what_it_says_of_itself(
    hub: Any, hubbub: Any, words: tuple[str, ...], shown: list[str]
) -> None:
    entry = catalog_pb2.CatalogEntry(server="a", kind=catalog_pb2.CATALOG_KIND_SKILL, object=SKILL)

    def entries(_: Any) -> Any:
        return catalog_pb2.ListCatalogEntriesResponse(entries=[entry])

    hub.replies["ListCatalogEntries"] = entries
    ran = await hubbub("catalog", *words, json=False)
    assert ran.status == 0
    assert [text for text in shown if text not in ran.out] == []
    async with connect(data_dir=hub.data_dir) as client:
        (skill,) = await client.catalog.skills("a")
    assert (skill.name, skill.title, skill.uri) == ("git", None, "skill://git/SKILL.md")
