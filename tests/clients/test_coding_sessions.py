"""Sessions of coding agents, as frontends read and follow them."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hubbub_client
from hubbub_client.data.coding_sessions import CodingSession, read_session, read_sessions, state_uri
from hubbub_frontend.coding_sessions import SessionFeed
from hubbub_frontend.display.coding_sessions import read_tool_failure, render_session, session_json, sort_sessions
from hubbub_web.records.session_stream import SessionStream

from .coding_agents import STATE, Agents, contents
from .conftest import ScriptedHub


def session(**changes: Any) -> CodingSession:
    return read_session("coder", contents({**STATE, **changes}))


def test_a_session_is_read_whole_and_drawn_with_its_plan_its_steps_and_what_it_waits_for() -> None:
    text = render_session(session(), "Allow npm test?").plain
    for line in (
        "state         waiting",
        "about         Round the prices",
        "Allow npm test?",
        "agent         opencode 1.2",
        "folder        /srv/shop",
        "✓ Read\n▸ Write\n· Test",
        "I round the prices.\ufffd[31m",
        "/srv/shop/prices.py",
        "✗ npm test\n✓ Read prices.py",
    ):
        assert line in text
    assert session().updated_at.isoformat() == "2026-11-29T10:05:00.500000+00:00"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"state": "idle", "stopReason": "end_turn"}, ""),
        ({"state": "idle", "stopReason": "max_tokens"}, "the turn ended: max tokens"),
        ({"state": "working", "stopReason": "cancelled"}, ""),
        ({"state": "idle", "error": "AGENT_ENDED: it died"}, "AGENT_ENDED: it died"),
        ({"state": "surprising"}, ""),
    ],
)
def test_how_a_turn_ended_is_said_unless_it_just_did(changes: dict[str, Any], end: str) -> None:
    shown = session_json(session(**changes))
    assert (shown["end"], shown["state"]) == (end, changes["state"].replace("surprising", "unknown"))


def test_sessions_that_wait_come_first_then_those_that_work_then_the_newest() -> None:
    states = [
        session(id="old", state="idle", updatedAt="2026-11-01T00:00:00Z"),
        session(id="odd", state="idle", updatedAt="no time", startedAt=5),
        session(id="new", state="idle"),
        session(id="works", state="working"),
        session(id="waits"),
    ]
    assert [each.id for each in sort_sessions(states)] == ["waits", "works", "new", "old", "odd"]


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"contents": []},
        {"contents": [{"text": "{"}]},
        {"contents": [{"text": 1}]},
        contents({"a": 1}),
        contents(1),
    ],
)
def test_what_is_no_list_of_sessions_is_refused_in_words(result: Any) -> None:
    with pytest.raises(ValueError, match=r"resource|list of sessions"):
        read_sessions("coder", result)
    with pytest.raises(ValueError, match=r"resource|state of the session"):
        read_session("coder", result)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["content", "title", "paths"]), inner),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from(list(STATE)), JSON), max_size=3))
def test_whatever_a_server_says_of_sessions_is_drawn(given_states: list[dict[str, Any]]) -> None:
    for each in read_sessions("coder", contents(given_states)):
        assert render_session(each).plain
        json.dumps(session_json(each))
    assert len(read_sessions("coder", contents([{}] * 600))) == 500


def test_the_address_of_a_session_cannot_lead_elsewhere() -> None:
    assert state_uri("a/../b?c") == "acp://session/a%2F..%2Fb%3Fc/state"


def test_why_a_tool_failed_is_its_own_words() -> None:
    assert read_tool_failure({"isError": True, "content": [{"type": "text", "text": "SESSION_BUSY: wait"}]}) == (
        "SESSION_BUSY: wait"
    )
    assert (read_tool_failure({"isError": True}), read_tool_failure({"content": []})) == ("it failed", "")


async def until(feed: SessionFeed, wanted: Callable[[], bool], changes: list[anyio.Event]) -> None:
    with anyio.fail_after(20):
        while not wanted():
            await changes[0].wait()


async def test_agents_are_found_followed_and_forgotten_and_a_bad_one_disturbs_no_other(hub: ScriptedHub) -> None:
    agents = Agents(hub, coder=[STATE], odd={"contents": []})
    changes = [anyio.Event()]

    def changed() -> None:
        changes[0].set()
        changes[0] = anyio.Event()

    async with hubbub_client.connect(data_dir=hub.data_dir) as client, anyio.create_task_group() as group:
        feed = SessionFeed(client, changed)
        group.start_soon(feed.follow)
        await until(
            feed, lambda: all(name in feed.agents and feed.agents[name].is_read for name in ("coder", "odd")), changes
        )
        assert [each.state for each in feed.agents["coder"].sessions] == ["waiting"]
        assert "no text" in feed.agents["odd"].problem
        agents.sessions["coder"] = [{**STATE, "state": "idle"}]
        agents.say()
        await until(feed, lambda: feed.agents["coder"].sessions[0].state == "idle", changes)
        del agents.sessions["odd"]
        agents.say()
        await until(feed, lambda: "odd" not in feed.agents, changes)
        group.cancel_scope.cancel()


async def test_the_page_gets_all_sessions_in_short_and_one_in_full(hub: ScriptedHub) -> None:
    agents = Agents(hub, coder=[{**STATE, "title": "x" * 500}])

    async def first(stream: SessionStream, member: str) -> Any:
        with anyio.fail_after(20):
            async for line in stream.lines():
                if (state := json.loads(line)).get(member):
                    return state
        return None

    async with hubbub_client.connect(data_dir=hub.data_dir) as client, anyio.create_task_group() as group:
        whole = SessionStream(client)
        group.start_soon(whole.follow)
        state = await first(whole, "sessions")
        assert (state["agents"], len(state["sessions"][0]["title"])) == ([{"server": "coder", "problem": ""}], 300)
        assert "text" not in state["sessions"][0]
        agents.sessions["coder"] = {"contents": [{"text": json.dumps(STATE)}]}
        one = SessionStream(client, "coder", "s1")
        group.start_soon(one.follow)
        assert (await first(one, "session"))["session"]["plan"][1] == {"content": "Write", "status": "in_progress"}
        assert hub.requests("WatchResource")[-1].uri == "acp://session/s1/state"
        lost = SessionStream(client, "nosuch", "s1")
        group.start_soon(lost.follow)
        assert (await first(lost, "problem"))["problem"] == "no server 'nosuch'"
        group.cancel_scope.cancel()
