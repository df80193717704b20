"""The rows that all browsers share: bounded, and resumable for those who were away."""

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2, inbox_pb2
from hubbub_client.data import conversion
from hubbub_client.data.records import Call, PendingRequest, Progress
from hubbub_client.data.watch_events import Progressed, Reset, Synced, Upsert
from hubbub_web.access.sessions import MAX_SESSIONS, People, Sessions
from hubbub_web.records import feed as feeds
from hubbub_web.records.brief import MAX_IDS, MAX_TEXT_CHARS, brief
from hubbub_web.records.feed import Feed

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
        feed.complete_snapshot(kind)
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
    for number in range(feeds.MAX_TOMBSTONES + 1):
        feed.put("call", str(number), {})
        feed.put("call", str(number), None)
    news, _ = await batch(feed, token)
    assert news[0] == {"reset": True}
    assert {"kind": "call", "id": "kept", "record": {}} in news
    assert len(news) <= feeds.MAX_TOMBSTONES + 2


def upsert(id_: str, state: Any = call_pb2.CALL_STATE_IN_PROGRESS, **fields: Any) -> Any:
    return Upsert("t", conversion.read(Call, call_pb2.Call(id=id_, state=state, **fields)))


async def calls_after(*steps: Any) -> dict[str, Any]:
    """What a browser gets of calls, by id, when the hub has sent all of this."""

    class Part:
        def __init__(self, *steps: Any) -> None:
            self._steps, self.told = steps, anyio.Event()

        async def watch(self) -> AsyncIterator[Any]:
            for step in self._steps:
                yield step
            self.told.set()
            await anyio.sleep_forever()

        async def whoami(self) -> None:
            """The hub is there."""

    feed, calls, rest = Feed(), Part(*steps), Part(Synced("t"))
    hub: Any = SimpleNamespace(servers=rest, inbox=rest, calls=calls, tasks=rest, catalog=rest, admin=rest)
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(feed.follow, hub)
            await calls.told.wait()
            await rest.told.wait()
            news, _ = await batch(feed, "")
            group.cancel_scope.cancel()
    return {each["id"]: each["record"] for each in news if each.get("kind") == "call"}


async def test_a_snapshot_after_a_reset_drops_only_what_it_does_not_have() -> None:
    found = await calls_after(
        upsert("gone"), upsert("kept"), Synced("a"), Reset("t", "other_store"), upsert("kept"), Synced("b")
    )
    assert found["gone"] is None
    assert found["kept"]["id"] == "kept"


async def test_progress_is_shown_until_the_call_changes_and_after_that() -> None:
    progress = Progress(call_id="c", progress=1, total=2, message=None)
    found = await calls_after(
        upsert("c"), Synced("a"), Progressed("t", progress), upsert("c", pending_request_ids=["r"])
    )
    assert (found["c"]["progress"]["progress"], found["c"]["pending_ids"]) == (1, ["r"])


async def test_of_what_has_ended_only_the_newest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MAX_DONE", 2)
    ended = [upsert(f"c{number}", call_pb2.CALL_STATE_COMPLETED) for number in range(3)]
    found = await calls_after(upsert("under way"), *ended, Synced("a"))
    assert {name for name, record in found.items() if record} == {"under way", "c1", "c2"}


def test_a_short_form_is_bounded_whatever_a_server_wrote() -> None:
    ids = [f"r{number}" for number in range(MAX_IDS + 1)]
    call = conversion.read(Call, call_pb2.Call(id="c", pending_request_ids=ids, perhaps_pending_request_ids=ids))
    assert brief(call)["pending_ids"] == brief(call)["perhaps_pending_ids"] == ids[1:]
    message = json.dumps({"message": "x" * 1000}).encode()
    asked = inbox_pb2.PendingRequest(id="r", kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM, request=message)
    assert len(brief(conversion.read(PendingRequest, asked))["question"]) == MAX_TEXT_CHARS


def test_the_oldest_session_is_over_when_there_are_too_many() -> None:
    sessions = Sessions(People(None))  # pyright: ignore[reportArgumentType] - nobody asks the hub
    entered = [sessions.begin_session() for _ in range(MAX_SESSIONS + 1)]
    over = [session.is_over for _, session in entered]
    assert over == [True] + [False] * MAX_SESSIONS


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"sure": {"type": "boolean", "title": "Deploy"}}, {"name": "sure", "title": "Deploy"}),
        ({"sure": {"type": "boolean"}}, {"name": "sure", "title": "sure"}),
        ({"sure": {"type": "boolean", "title": "x" * 1000}}, None),
        ({"sure": {"type": "boolean"}, "why": {"type": "string"}}, None),
        ({"sure": {"type": "string"}}, None),
        ({"x" * 1000: {"type": "boolean"}}, None),
        ({"sure": None}, None),
        ({}, None),
        (7, None),
    ],
)
def test_a_short_form_says_whether_yes_or_no_is_all_that_is_asked(properties: Any, expected: Any) -> None:
    params = json.dumps({"message": "?", "requestedSchema": {"properties": properties}}).encode()
    asked = inbox_pb2.PendingRequest(id="r", kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM, request=params)
    assert brief(conversion.read(PendingRequest, asked))["yes_or_no"] == expected


def test_a_question_that_a_list_cuts_off_is_not_answered_in_its_row() -> None:
    def of(message: str) -> object:
        params = json.dumps({"message": message, "requestedSchema": {"properties": {"ok": {"type": "boolean"}}}})
        kind = inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM
        asked = inbox_pb2.PendingRequest(id="r", kind=kind, request=params.encode())
        return brief(conversion.read(PendingRequest, asked))["yes_or_no"]

    assert of("x" * MAX_TEXT_CHARS) == {"name": "ok", "title": "ok"}
    assert of("x" * (MAX_TEXT_CHARS + 1)) is None
