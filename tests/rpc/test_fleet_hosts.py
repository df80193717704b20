"""MCP hosts that go on at another member, which has not heard yet of what they began."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.downstream import EndpointSessions, McpEndpoint, McpHost, ProfileView, ServerView
from hubbubd.upstream.ports import Era

from ..downstream.conftest import handles, lists
from ..downstream.followed_tasks import ASKED, DONE, GIVEN, host_with_tasks, made, reached, result
from ..downstream.scripted import ME, REVISIONS, ScriptedHost, asks, host_at, principal
from ..runtime.peer import Outcome, Sent
from .conftest import LIMIT_S, until
from .fleet import Member, fleet, one
from .test_mcp_bridge import host as bridge
from .test_mcp_bridge import request

Two = tuple[Member, Member]
CALL: dict[str, Any] = {"name": "t"}


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    """A member that hears late of what others do, and the owner of the server `one`."""
    async with fleet(tmp_path) as made:
        late, owner = await made.start("a"), await made.start("b", one())
        await until(lambda: bool(owner.peer.links))
        late.store.held = True
        yield late, owner


def impatient(member: Member, who: str = ME) -> ScriptedHost:
    """A host at a profile that gets a ticket at once when people are asked."""
    kept = ProfileSettings(hold_s=0)
    endpoint = McpEndpoint(member.hub, ProfileView(member.hub, "p", lambda: kept), handles(member.hub))
    return ScriptedHost(endpoint, McpHost(principal=principal(who), revision=REVISIONS[Era.HANDSHAKE], capabilities={}))


async def said(member: Member, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The response to a call of a host without a session."""
    with anyio.fail_after(LIMIT_S):
        return await host_at(member.hub, Era.STATELESS, **options).send("tools/call", params)


def with_answer(response: dict[str, Any]) -> dict[str, Any]:
    """The request with which a host comes back that was asked."""
    asked = response["result"]
    (key,) = asked["inputRequests"]
    return {**CALL, "requestState": asked["requestState"], "inputResponses": {key: GIVEN}}


async def ticket_of(member: Member) -> str:
    """The ticket for a call that waits for a person. The server's questions name their calls."""
    asks(member.world, Era.STATELESS, ASKED)
    member.peer.capabilities = {"tools": {}}
    member.peer.listing = lists(tools=[{"name": "t", "inputSchema": {"type": "object"}}])
    await connect_anew(member)
    await until(lambda: bool(member.hub.catalog.entries("one/tool")))
    return (await impatient(member).call(name="one__t"))["result"]["_meta"]["hubbub/callId"]


async def connect_anew(member: Member) -> None:
    """The server is another one from now on."""
    await member.hub.servers.disconnect("one")
    await member.hub.servers.connect("one")


async def test_a_session_is_taken_up_there_and_ends_everywhere(two: Two) -> None:
    late, _ = two
    there, here = (EndpointSessions(member.hub) for member in two)
    at_late, at_owner = (McpEndpoint(member.hub, ServerView(member.hub, "one"), handles(member.hub)) for member in two)
    about = McpHost(principal=principal(ME), revision=REVISIONS[Era.HANDSHAKE], info={"name": "gemini"})
    session = await here.begin(about, at_owner)
    assert late.hub.host_sessions.get(session.key) is None
    taken_up = await there.find(session.id, about.principal, at_late)
    assert taken_up.host.info == {"name": "gemini"}
    late.store.release()
    await there.end(taken_up)
    await until(lambda: session.ended)
    assert await here.find(session.id, about.principal, at_owner) is None
    for sessions in (here, there):
        sessions.close()


async def test_a_state_is_good_there_and_an_answer_with_it_counts(two: Two) -> None:
    late, owner = two
    got = asks(owner.world, Era.HANDSHAKE, ASKED)
    asked = await said(owner, CALL)
    assert (await said(late, with_answer(asked)))["result"]["content"] == DONE
    assert got == [GIVEN]


@pytest.mark.parametrize("era", Era)
async def test_an_answer_to_a_question_of_which_it_has_not_heard_counts_there(two: Two, era: Era) -> None:
    late, owner = two
    got = asks(owner.world, era, ASKED, ASKED)
    await connect_anew(owner)
    await until(lambda: owner.hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
    first = await said(owner, CALL)
    late.store.release()
    second = await said(owner, with_answer(first))
    assert (await said(late, with_answer(second)))["result"]["content"] == DONE
    assert got == [GIVEN, GIVEN]


async def test_a_host_that_listens_there_is_told_of_a_task(two: Two) -> None:
    late, owner = two
    asks(owner.world, Era.HANDSHAKE, ASKED)
    task_id = await made(host_with_tasks(owner.hub))
    host = host_with_tasks(late.hub)
    listening = asyncio.create_task(host.send("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}))
    await until(lambda: bool(host.told))
    assert host.told[0][1]["notifications"]["taskIds"] == [task_id]
    listening.cancel()


async def test_an_answer_of_a_task_to_a_question_of_which_it_has_not_heard_counts_there(two: Two) -> None:
    late, owner = two
    got: list[Any] = []
    first, second = asyncio.Event(), asyncio.Event()

    async def behaviour(sent: Sent) -> Outcome:
        got.append(await sent.ask(*ASKED).answered())
        first.set()
        await second.wait()
        got.append(await sent.ask(*ASKED).answered())
        return {"content": DONE}

    owner.peer.behaviour = behaviour
    here, there = host_with_tasks(owner.hub), host_with_tasks(late.hub)
    task_id = await made(here)
    with anyio.fail_after(LIMIT_S):
        for asking in (second, asyncio.Event()):
            task = await reached(here, task_id, "input_required")
            (key,) = task["inputRequests"]
            await result(there, "tasks/update", taskId=task_id, inputResponses={key: GIVEN})
            await first.wait()
            late.store.release()
            asking.set()
        assert (await reached(here, task_id, "completed"))["result"]["content"] == DONE
    assert got == [GIVEN, GIVEN]


async def test_a_task_is_cancelled_there(two: Two) -> None:
    late, owner = two
    asks(owner.world, Era.HANDSHAKE, ASKED)
    task_id = await made(host_with_tasks(owner.hub))
    await result(host_with_tasks(late.hub), "tasks/cancel", taskId=task_id)
    assert owner.hub.calls.get(task_id).state.ended


async def test_a_bridge_that_comes_there_joins_the_call_that_it_has_begun(two: Two) -> None:
    late, owner = two
    asks(owner.world, Era.HANDSHAKE, ASKED)
    call = request(1, "tools/call", **CALL)
    async with bridge(owner.api, server="one") as stream:
        await stream.say(call)
        await until(lambda: bool(owner.hub.inbox.select(RequestFilter())))
    async with bridge(late.api, server="one") as stream:
        await stream.frame(messages=[payload.dumps(call)], again=True)
        await until(lambda: bool(late.hub.inbox.select(RequestFilter())))
        [question] = late.hub.inbox.select(RequestFilter())
        await late.hub.inbox.answer(question.id, Accept({"name": "x"}), "ada", answer_id=None, claim_id=None)
        assert (await stream.next())["result"]["content"] == DONE


async def test_what_is_somebody_else_s_is_not_there_either(two: Two) -> None:
    late, owner = two
    ticket = await ticket_of(owner)
    task_id = await made(host_with_tasks(owner.hub))
    asked = await said(owner, CALL)
    another = impatient(late, "somebody else")
    refused = [
        await another.call(name="hubbub_result", arguments={"call_id": ticket}),
        await host_with_tasks(late.hub, name="somebody else").send("tasks/get", {"taskId": task_id}),
        await said(late, with_answer(asked), name="somebody else"),
    ]
    assert [response["error"]["code"] for response in refused] == [INVALID_PARAMS] * 3


@pytest.mark.parametrize("task_id", ["task_1", "\ud800", "\0", "x" * 3000])
async def test_what_is_nowhere_is_not_found_there(two: Two, task_id: str) -> None:
    host = host_with_tasks(two[0].hub)
    assert (await host.send("tasks/get", {"taskId": task_id}))["error"]["code"] == INVALID_PARAMS
    ticket = await impatient(two[0]).call(name="hubbub_result", arguments={"call_id": task_id})
    assert ticket["error"]["data"]["reason"] == "CALL_NOT_FOUND"


async def test_a_member_without_its_database_does_not_say_that_something_is_not_there(two: Two) -> None:
    late, owner = two
    ticket = await ticket_of(owner)
    task_id = await made(host_with_tasks(owner.hub))
    again = with_answer(await said(owner, CALL))

    async def reason(asking: Awaitable[dict[str, Any]]) -> str:
        late.store.failures = 1
        return (await asking)["error"]["data"]["reason"]

    assert [
        await reason(impatient(late).call(name="hubbub_result", arguments={"call_id": ticket})),
        await reason(host_with_tasks(late.hub).send("tasks/get", {"taskId": task_id})),
        await reason(said(late, again)),
    ] == ["STORE_UNAVAILABLE"] * 3
