"""The rows that all browsers share: bounded, and resumable for those who were away."""

import json
from typing import Any

import anyio

from hubbub_web import feed as feeds
from hubbub_web.feed import Feed

from ..e2e.conftest import LIMIT_S


async def batch(feed: Feed, token: str) -> tuple[list[dict[str, Any]], str]:
    """What a browser with this token gets next, and its new token."""
    found: list[dict[str, Any]] = []
    with anyio.fail_after(LIMIT_S):
        async for chunk in feed.lines(token):
            found += map(json.loads, chunk.splitlines())
            if "token" in found[-1]:
                break
    return found[:-1], found[-1]["token"]


def ready() -> Feed:
    """A feed that has heard all that the hub has."""
    feed = Feed()
    for kind in feeds.WATCHES:
        feed.synced(kind)
    return feed


async def test_a_slow_browser_gets_the_newest_state_of_each_record_once() -> None:
    feed = ready()
    _, token = await batch(feed, "")
    for number in range(1000):
        feed.put("call", "one", {"number": number})
    feed.put("call", "two", {})
    news, _ = await batch(feed, token)
    assert news == [
        {"kind": "call", "id": "one", "record": {"number": 999}},
        {"kind": "call", "id": "two", "record": {}},
    ]


async def test_a_browser_that_was_away_is_told_what_is_gone() -> None:
    feed = ready()
    feed.put("call", "one", {})
    _, token = await batch(feed, "")
    feed.put("call", "one", None)
    news, _ = await batch(feed, token)
    assert news == [{"kind": "call", "id": "one", "record": None}]


async def test_a_browser_that_was_away_for_too_long_begins_anew() -> None:
    feed = ready()
    feed.put("call", "kept", {})
    _, token = await batch(feed, "")
    for number in range(feeds.MAX_GONE + 1):
        feed.put("call", str(number), {})
        feed.put("call", str(number), None)
    news, _ = await batch(feed, token)
    assert news[0] == {"reset": True}
    assert {"kind": "call", "id": "kept", "record": {}} in news
    assert len(news) <= feeds.MAX_GONE + 2


async def test_nothing_is_told_before_everything_is_known() -> None:
    feed = Feed()
    feed.put("call", "one", {})
    lines = feed.lines("")
    with anyio.fail_after(LIMIT_S):
        assert await anext(lines) == b"{}\n"
    await lines.aclose()
