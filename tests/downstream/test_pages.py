"""Long lists, of which a host gets pages while they change."""

from typing import Any

import pytest

from hubbubd.downstream import lists as paged_lists

from .conftest import Opened, Refused, lists, settle


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


@pytest.mark.parametrize(
    ("then", "rest"),
    [
        (("a", "b", "c", "d"), ["c", "d"]),
        (("new", "a", "b", "c", "d"), ["c", "d"]),
        (("b", "c", "d"), ["c", "d"]),
        (("b",), []),
    ],
)
async def test_the_next_page_begins_behind_the_last_entry_wherever_that_is_by_now(
    place: Opened, monkeypatch: pytest.MonkeyPatch, then: tuple[str, ...], rest: list[str]
) -> None:
    monkeypatch.setattr(paged_lists, "PAGE_ENTRIES", 2)
    async with place(capabilities={"tools": {}}, listing=lists(tools=tools("a", "b", "c", "d"))) as at:
        host = at.new()
        first = await host.ask("tools/list")
        assert [each["name"] for each in first["tools"]] == ["a", "b"]
        at.peer.listing = lists(tools=tools(*then))
        await at.hub.catalog.refresh("one")
        await settle(3)
        second = await host.ask("tools/list", cursor=first["nextCursor"])
        assert [each["name"] for each in second["tools"]] == rest


@pytest.mark.parametrize("cursor", ["", "2", "2.", "2.x", "-1.x", "9" * 50, 2, [], "0.x"])
async def test_a_cursor_whose_entry_is_not_there_is_refused(place: Opened, cursor: object) -> None:
    async with place(capabilities={"tools": {}}, listing=lists(tools=tools("a", "b"))) as at:
        with pytest.raises(Refused) as refused:
            await at.new().ask("tools/list", cursor=cursor)
        assert refused.value.code == -32602
