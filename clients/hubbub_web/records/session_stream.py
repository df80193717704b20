"""The sessions of coding agents for one browser: all in short, or one in full; each line is the newest state."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import anyio

from hubbub_client.data.coding_sessions import CodingSession
from hubbub_client.hub import Hub
from hubbub_frontend.coding_sessions import SessionFeed, follow_session
from hubbub_frontend.display.coding_sessions import session_json, sort_sessions
from hubbub_web.records.brief import clip
from hubbub_web.records.feed import HEARTBEAT_S, json_line
from hubbub_web.records.followed_stream import FollowedStream

PAUSE_S: Final = 0.25
"""Pause between two lines, seconds, so that what changes quickly is coalesced."""

MAX_LISTED: Final = 200


class SessionStream(FollowedStream):
    """One stream: `follow` learns what there is, `lines` sends it. Without `session`, all sessions of all agents."""

    def __init__(self, hub: Hub, server: str = "", session: str = "") -> None:
        super().__init__()
        self._hub = hub
        self._server = server
        self._session = session
        self._feed = SessionFeed(hub, self._wake)
        # The one session in full, and why there is nothing newer; None until something is known.
        self._whole: dict[str, Any] | None = None

    async def follow(self) -> None:
        """Learn of changes to the one session, or to all sessions, forever."""
        if not self._session:
            await self._feed.follow()
            return
        async with aclosing(follow_session(self._hub, self._server, self._session)) as states:
            async for state in states:
                before = self._whole or {}
                is_read = isinstance(state, CodingSession)
                self._whole = {"session": session_json(state)} if is_read else before | {"problem": state}
                self._wake()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Yield the newest state after each change, and at least every HEARTBEAT_S seconds an empty line of JSON."""
        sent_state: object = None
        while not self._closed:
            changed = self._changed
            state = self._whole if self._session else self._list_agents()
            yield json_line(state if state is not None and state != sent_state else {})
            sent_state = state
            with anyio.move_on_after(HEARTBEAT_S):
                await changed.wait()
                await anyio.sleep(PAUSE_S)

    def _list_agents(self) -> dict[str, Any] | None:
        """Return the state of all agents and their sessions; None while it is unknown."""
        feed = self._feed
        if not feed.is_read and not feed.problem:
            return None
        sessions = sort_sessions(each for agent in feed.agents.values() for each in agent.sessions)
        return {
            "agents": [{"server": name, "problem": each.problem} for name, each in sorted(feed.agents.items())],
            "sessions": [_brief_session(each) for each in sessions[:MAX_LISTED]],
            "more": max(len(sessions) - MAX_LISTED, 0),
            "problem": feed.problem,
        }


def _brief_session(session: CodingSession) -> dict[str, Any]:
    """Return the short form of a session, for the list."""
    fields = session_json(session)
    short = {name: fields[name] for name in ("server", "id", "state", "started_at", "updated_at")}
    return short | {name: clip(fields[name]) for name in ("title", "agent", "cwd", "waiting_for", "end")}
