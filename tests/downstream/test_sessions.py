"""Sessions of hosts: whose they are, how many there may be, when they end."""

import gc
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from hubbubd.bounds import INTRODUCTION_BYTES
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.downstream import (
    EndpointSession,
    EndpointSessions,
    HostLimits,
    HostOutbox,
    HostRequest,
    McpEndpoint,
    McpHost,
)
from hubbubd.downstream.hosts import introductions
from hubbubd.downstream.protocol.messages import PROTOCOL_VERSION, Refusal, RequestMessage
from hubbubd.errors import ResourceExhausted

from .conftest import World

ADA, BOB = (Principal(name=name, grants=(Grant(Role.CALLER),), credential=name) for name in ("ada", "bob"))


class Waiting:
    """An endpoint whose requests wait until they are let go."""

    def __init__(self, name: str = "s/one") -> None:
        self.view = SimpleNamespace(name=name)
        self.is_removed = False
        self.go = anyio.Event()

    def make_notifications(self, *_: Any) -> Any:
        """What a host receives between its requests: nothing."""
        return SimpleNamespace(close=lambda: None, resume=lambda *_: None)

    def add_host(self, host: McpHost) -> None:
        """Nobody looks."""

    def remove_host(self, host: McpHost) -> None:
        """Nobody looks."""

    async def serve(self, exchange: HostRequest) -> bytes:
        """Serves one."""
        await self.go.wait()
        return b"{}"


@pytest.fixture
def waiting() -> Waiting:
    """An endpoint."""
    return Waiting()


@pytest.fixture
async def sessions(world: World) -> AsyncGenerator[EndpointSessions]:
    """All sessions, three of each principal, each until it was idle for a minute."""
    async with world.hub() as hub:
        made = EndpointSessions(hub, lambda: HostLimits(sessions_per_principal=3, idle_s=60))
        yield made
        made.close()


async def opened(sessions: EndpointSessions, waiting: Waiting, principal: Principal = ADA) -> EndpointSession:
    """A new session."""
    return await sessions.begin(McpHost(principal=principal, revision="2025-11-25"), cast("McpEndpoint", waiting))


async def found(
    sessions: EndpointSessions,
    session: EndpointSession,
    principal: Principal = ADA,
    where: Waiting | McpEndpoint | None = None,
) -> bool:
    """Whether a principal's host has this session at an endpoint; else at its own."""
    return await sessions.find(session.id, principal, cast("McpEndpoint", where or session.endpoint)) is session


async def test_a_session_is_of_one_principal_at_one_endpoint(sessions: EndpointSessions, waiting: Waiting) -> None:
    session = await opened(sessions, waiting)
    assert await found(sessions, session)
    assert not await found(sessions, session, BOB)
    assert not await found(sessions, session, ADA, Waiting("s/two"))
    second = Waiting(waiting.view.name)  # of the name of one that is gone
    assert not await found(sessions, session, ADA, second)


async def test_a_session_ends_when_it_was_idle_for_so_long(sessions: EndpointSessions, waiting: Waiting) -> None:
    first, second = await opened(sessions, waiting), await opened(sessions, waiting)
    await anyio.sleep(40)
    assert await found(sessions, first)
    await anyio.sleep(40)
    assert (first.ended, second.ended) == (False, True)
    await anyio.sleep(40)
    assert first.ended
    assert not list(sessions)


async def test_a_session_with_a_request_or_a_stream_is_not_idle(sessions: EndpointSessions, waiting: Waiting) -> None:
    calling, listening = await opened(sessions, waiting), await opened(sessions, waiting)
    task = calling.begin(RequestMessage(1, "tools/call", {}), HostOutbox())
    outlet = listening.listen()
    await anyio.sleep(1000)
    assert not calling.ended
    assert not listening.ended
    waiting.go.set()
    assert await task == b"{}"
    listening.end_listening(outlet)
    await anyio.sleep(1000)
    assert calling.ended
    assert listening.ended


async def test_the_least_recently_used_session_makes_room_and_none_of_another_principal(
    sessions: EndpointSessions, waiting: Waiting
) -> None:
    bobs = await opened(sessions, waiting, BOB)
    first, second, third = [await opened(sessions, waiting) for _ in range(3)]
    assert await found(sessions, first)
    await opened(sessions, waiting)
    assert [each.ended for each in (bobs, first, second, third)] == [False, False, True, False]


async def test_sessions_that_all_have_something_to_do_are_not_ended(
    sessions: EndpointSessions, waiting: Waiting
) -> None:
    for _ in range(3):
        (await opened(sessions, waiting)).listen()
    with pytest.raises(ResourceExhausted) as refused:
        await opened(sessions, waiting)
    assert (refused.value.reason, refused.value.metadata["limit"]) == ("TOO_MANY_SESSIONS", "3")
    assert not (await opened(sessions, waiting, BOB)).ended


def alive() -> int:
    """How many sessions this process holds."""
    gc.collect()
    return sum(isinstance(each, EndpointSession) for each in gc.get_objects())


async def test_ten_thousand_sessions_that_are_dropped_leave_nothing(
    sessions: EndpointSessions, waiting: Waiting
) -> None:
    before = alive()
    for number in range(10_000):
        principal = Principal(name=f"p{number % 2}", grants=(), credential="x")
        (await opened(sessions, waiting, principal)).outlet.send(b"x" * 100)
    assert len(sessions) == 6
    assert alive() <= before + 6
    await anyio.sleep(120)
    assert len(sessions) == 0


async def test_a_host_that_listens_again_gets_what_waited(sessions: EndpointSessions, waiting: Waiting) -> None:
    session = await opened(sessions, waiting)
    session.outlet.send(b"1")
    first = session.listen()
    assert first.take_all() == [b"1"]
    session.outlet.send(b"2")
    second = session.listen()
    assert first.closed
    assert second.take_all() == [b"2"]
    session.end_listening(first)
    session.outlet.send(b"3")
    session.end_listening(second)
    session.outlet.send(b"4")
    assert session.listen().take_all() == [b"4"]


async def test_what_waits_for_a_host_that_never_listens_is_bounded(
    sessions: EndpointSessions, waiting: Waiting
) -> None:
    session = await opened(sessions, waiting)
    for _ in range(1000):
        session.outlet.send(b"x" * 1024)
    assert sum(map(len, session.outlet.take_all())) <= 256 * 1024


async def test_what_waited_is_not_told_to_whoever_may_do_less_by_now(
    sessions: EndpointSessions, waiting: Waiting
) -> None:
    session = await opened(sessions, waiting)
    session.outlet.send(b"about a server")
    less = Principal(name="ada", grants=(), credential="ada")
    assert await found(sessions, session, less)
    assert session.listen().take_all() == []


@pytest.mark.parametrize("part", ["clientInfo", "capabilities"])
async def test_what_a_host_says_of_itself_has_a_bound(part: str) -> None:
    for size, fits in ((1000, True), (INTRODUCTION_BYTES, False)):
        said: dict[str, Any] = {"name": size * "x"}
        old = RequestMessage(1, "initialize", {"protocolVersion": "2025-11-25", part: said})
        name = {"clientInfo": introductions.INFO, "capabilities": introductions.CAPABILITIES}[part]
        meta = {PROTOCOL_VERSION: "2026-07-28", introductions.CAPABILITIES: {}, name: said}
        new = RequestMessage(1, "tools/list", {"_meta": meta})
        for of, request in ((introductions.parse_handshake_host, old), (introductions.parse_stateless_host, new)):
            with nullcontext() if fits else pytest.raises(Refusal, match=f"{INTRODUCTION_BYTES} bytes"):
                of(request, ADA, "http")
