"""Sessions of hosts that outlive the hub: taken up as they were by the next process, and by other members."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.downstream import EndpointSession, EndpointSessions, HostLimits, McpEndpoint, McpHost, ServerView
from hubbubd.downstream.protocol.messages import ResponseMessage
from hubbubd.errors import ResourceExhausted, Unavailable
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, server
from .conftest import ADA, OLD, OldHost, Place, World, handles, lists, said, settle, until
from .scripted import asks

BOB = Principal(name="bob", grants=(Grant(Role.CALLER),), credential="bob")
URI = "file:///a"
ABLE = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
Lives = Callable[[], Any]


@pytest.fixture
def life(world: World) -> Lives:
    """Begins a life of the hub: `async with life() as at`. Each goes on with the store of the one before."""
    world.peer.era = Era.HANDSHAKE
    world.peer.capabilities = ABLE
    world.peer.listing = lists(resources=[{"uri": URI, "name": "a"}])

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Place]:
        async with world.hub(server()) as hub:
            await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
            await settle(3)
            at = Place(hub, world)
            yield at
            at.sessions.close()

    return begin


async def begun(at: Place, **about: Any) -> EndpointSession:
    """A session of ada's host."""
    return await at.sessions.begin(McpHost(principal=ADA, revision=OLD, **about), at.endpoint)


async def taken_up(at: Place, session: EndpointSession, principal: Principal = ADA) -> EndpointSession | None:
    """The session as another life of the hub has it."""
    return await at.sessions.find(session.id, principal, at.endpoint)


async def test_a_session_is_taken_up_for_its_principal_at_its_endpoint_alone(life: Lives) -> None:
    async with life() as at:
        before = await begun(at)
    async with life() as at:
        assert await taken_up(at, before, BOB) is None
        other = McpEndpoint(at.hub, ServerView(at.hub, "two"), handles(at.hub))
        assert await at.sessions.find(before.id, ADA, other) is None
        assert await at.sessions.find(before.id + "x", ADA, at.endpoint) is None
        assert await taken_up(at, before) is not None


async def test_what_a_session_is_told_of_goes_on(life: Lives) -> None:
    async with life() as at:
        host = OldHost(await begun(at))
        await host.ask("resources/subscribe", uri=URI)
        await host.ask("resources/subscribe", uri="file:///b")
        await host.ask("resources/unsubscribe", uri="file:///b")
        await host.ask("logging/setLevel", level="error")
    at.peer.sent.clear()
    async with life() as at:
        session = await taken_up(at, host.session)
        await until(lambda: not session.outlet.is_empty)
        updated = [message["params"] for message in said(session.outlet, "notifications/resources/updated")]
        assert updated == [{"uri": URI}]  # it may have changed meanwhile
        at.hub.subscriptions.handle_update("one", {"uri": URI})
        at.hub.subscriptions.handle_update("one", {"uri": "file:///b"})
        assert [message["params"]["uri"] for message in said(session.outlet)] == [URI]
        assert at.hub.log_levels.sent_level("one") == "error"
        assert [session.notifications.wants_log("one", level) for level in ("info", "error")] == [False, True]


async def test_an_answer_to_what_an_earlier_process_has_asked_is_none_to_what_this_one_asks(
    life: Lives, world: World
) -> None:
    got = asks(world, Era.HANDSHAKE, ("elicitation/create", FORM))

    async def asked_in_a_call(host: OldHost) -> tuple[Any, asyncio.Task[bytes]]:
        call = host.begin("tools/call", name="t")
        await until(lambda: not host.outlet.is_empty)
        (question,) = said(host.outlet, "elicitation/create")
        return question["id"], call

    async with life() as at:
        host = OldHost(await begun(at, capabilities={"elicitation": {"form": {}}}))
        before, call = await asked_in_a_call(host)
        call.cancel()
    async with life() as at:
        session = await taken_up(at, host.session)
        assert session is not None
        now, call = await asked_in_a_call(OldHost(session))
        session.receive(ResponseMessage(before, {"action": "accept", "content": {"name": "to the earlier one"}}))
        await settle(5)
        assert not call.done()
        answer = {"action": "accept", "content": {"name": "x"}}
        session.receive(ResponseMessage(now, answer))
        await call
        assert got == [answer]


async def test_a_session_that_was_ended_stays_so(life: Lives) -> None:
    async with life() as at:
        before = await begun(at)
        await at.sessions.end(before)
        assert before.ended
    async with life() as at:
        assert await taken_up(at, before) is None


async def test_a_session_that_cannot_be_ended_for_good_says_so(life: Lives, world: World) -> None:
    async with life() as at:
        session = await begun(at)
        world.store.failures = 1
        with pytest.raises(Unavailable):
            await at.sessions.end(session)
        assert await taken_up(at, session) is session
        await at.sessions.end(session)
        assert await taken_up(at, session) is None


async def test_a_session_ends_with_the_token_that_it_was_begun_with(life: Lives) -> None:
    async with life() as at:
        _, text = await at.hub.tokens.create("eve", [Grant(Role.CALLER)], by="t", ttl_s=None, may_name_others=False)
        eve = await at.hub.tokens.principal(text)
        session = await at.sessions.begin(McpHost(principal=eve, revision=OLD), at.endpoint)
        left = await at.sessions.begin(McpHost(principal=eve, revision=OLD), at.endpoint)
    async with life() as at:
        assert await taken_up(at, session, eve) is not None
        await at.hub.tokens.revoke("eve")
        await until(lambda: len(at.sessions) == 0)
        assert await taken_up(at, session, eve) is None
        assert await taken_up(at, left, eve) is None
    async with life() as at:
        assert await taken_up(at, session, eve) is None


async def test_a_session_is_idle_only_while_the_hub_runs(life: Lives) -> None:
    idle_s = HostLimits().idle_s
    async with life() as at:
        before = await begun(at)
        await anyio.sleep(idle_s / 2)
    await anyio.sleep(10 * idle_s)
    async with life() as at:
        await anyio.sleep(idle_s / 2)
        assert await taken_up(at, before) is not None
        await anyio.sleep(idle_s + 60)
        assert await taken_up(at, before) is None
    async with life() as at:
        assert len(at.sessions) == 0


async def test_hosts_are_served_while_the_store_cannot_be_written(life: Lives, world: World) -> None:
    async with life() as at:
        world.store.failures = 1
        host = OldHost(await begun(at))
        assert await taken_up(at, host.session) is host.session
        world.store.failures = 1
        assert await host.ask("logging/setLevel", level="error") == {}
        await at.sessions.end(host.session)
        assert await taken_up(at, host.session) is None


async def test_a_session_at_two_members_wants_the_same_at_both(life: Lives) -> None:
    async with life() as at:
        there = EndpointSessions(at.hub)
        here = OldHost(await begun(at))
        other = await there.find(here.session.id, ADA, at.endpoint)
        assert other is not None
        await here.ask("resources/subscribe", uri=URI)
        await here.ask("logging/setLevel", level="error")
        await settle()
        assert (other.notifications.level, other.notifications.resources.is_watched(URI)) == ("error", True)
        await OldHost(other).ask("resources/unsubscribe", uri=URI)
        assert not here.session.notifications.resources.is_watched(URI)
        await there.end(other)
        assert here.session.ended
        there.close()


async def test_a_session_that_listens_at_one_member_is_not_idle_at_another_one_that_has_it(
    life: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with life() as at:
        monkeypatch.setattr(type(at.hub.ownership), "me", "one-of-two")
        there = EndpointSessions(at.hub)
        here = await begun(at)
        assert await there.find(here.id, ADA, at.endpoint) is not None
        await anyio.sleep(30)  # too short a while for the record to say so
        outlet = here.listen()
        here.touch()
        await anyio.sleep(2 * HostLimits().idle_s)
        assert not here.ended
        here.end_listening(outlet)
        await anyio.sleep(2 * HostLimits().idle_s)
        assert here.ended
        there.close()


async def test_a_session_at_work_at_one_member_makes_no_room_at_another_one(
    life: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with life() as at:
        monkeypatch.setattr(type(at.hub.ownership), "me", "one-of-two")
        about = McpHost(principal=ADA, revision=OLD)
        there = EndpointSessions(at.hub, lambda: HostLimits(sessions_per_principal=1))
        here = await begun(at)
        assert await there.find(here.id, ADA, at.endpoint) is not None
        await anyio.sleep(30)  # the record says already that both members use it
        outlet = here.listen()
        for _ in range(20):
            await anyio.sleep(31)
            with pytest.raises(ResourceExhausted) as refused:
                await there.begin(about, at.endpoint)
            assert (refused.value.reason, refused.value.retry_after_s) == ("TOO_MANY_SESSIONS", 120)
        here.end_listening(outlet)
        await anyio.sleep(200)
        await there.begin(about, at.endpoint)
        assert here.ended
        there.close()
