"""Streams of calls that end, or are about to: each call is made once, or its caller gets an error."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2
from hubbub_client import HubbubError, Unauthenticated, Unavailable, connect
from hubbub_client.transport import discovery

from .call_stream import LIMIT_S, LIMITS, carried, done, said
from .conftest import ScriptedHub


def breaking(came: list[Any], *ends: Any) -> Any:
    """A stream that completes its first call and breaks at the second one, as these say one after the other."""
    left = list(ends)

    async def stream(steps: Any) -> AsyncIterator[Any]:
        yield said(ready=LIMITS)
        async for step in (step async for message in steps for step in message.steps):
            came.append(step)
            if len(came) > 1 and left:
                end = left.pop(0)
                if end is None:
                    return
                raise end
            yield said(id=step.start.id, completed=done(step.start.request))

    return stream


@pytest.mark.parametrize(
    ("end", "kind", "reason"),
    [
        (None, Unavailable, "STREAM_ENDED"),
        (("UNAVAILABLE", "STORE_UNAVAILABLE"), Unavailable, "STORE_UNAVAILABLE"),
        (("RESOURCE_EXHAUSTED", "WATCHER_TOO_SLOW"), Unavailable, "STREAM_ENDED"),
        (("INVALID_ARGUMENT", "MALFORMED_REQUEST"), Unavailable, "STREAM_ENDED"),
        (("UNAUTHENTICATED", "CREDENTIAL_ENDED"), Unauthenticated, "CREDENTIAL_ENDED"),
    ],
)
async def test_a_call_on_a_stream_that_breaks_fails_and_the_next_one_does_not(
    hub: Any, came: list[Any], refusal: Any, end: Any, kind: type[HubbubError], reason: str
) -> None:
    hub.streams["StreamCalls"] = breaking(came, end and refusal(*end))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            while not came:
                await client.call("s", "m")
            with pytest.raises(kind) as caught:
                await client.call("s", "m", call_id="mine")
            again = hub.carry()
            assert await client.call("s", "m", call_id="mine") == {"ok": True}
            await carried(client, again)
    assert (caught.value.reason, caught.value.metadata["call_id"]) == (reason, "mine")


async def test_a_call_that_a_hub_that_shuts_down_has_not_begun_is_made_in_another_way(
    hub: Any, came: list[Any], refusal: Any
) -> None:
    hub.streams["StreamCalls"] = breaking(came, refusal("UNAVAILABLE", "SHUTTING_DOWN"))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            while not came:
                await client.call("s", "m")
            assert await client.call("s", "m", call_id="mine") == {"ok": True}
    assert [step.start.request.spec.call_id for step in came][-1] == "mine"
    assert hub.requests("CallMethod")[-1].spec.call_id == "mine"


async def test_a_call_that_had_begun_when_its_hub_shut_down_fails(hub: Any, came: list[Any], refusal: Any) -> None:
    def aborted(_: Any) -> Any:
        raise refusal("UNAVAILABLE", "SHUTTING_DOWN", metadata={"call_id": "mine"})

    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            await carried(client, came)
            alone, hub.replies["CallMethod"] = len(hub.requests("CallMethod")), aborted
            with pytest.raises(Unavailable) as caught:
                await client.call("s", "m", call_id="mine")
    assert caught.value.reason == "SHUTTING_DOWN"
    assert (len(came), len(hub.requests("CallMethod"))) == (1, alone)


async def test_an_idle_stream_is_ended_by_its_caller_when_the_hub_shuts_down(hub: Any, came: list[Any]) -> None:
    idle, left = anyio.Event(), anyio.Event()

    async def stream(steps: Any) -> AsyncIterator[Any]:
        try:
            yield said(ready=LIMITS)
            async for step in (step async for message in steps for step in message.steps):
                came.append(step)
                yield said(id=step.start.id, completed=done(step.start.request))
                await idle.wait()
                yield said(closing=call_pb2.StreamCallsResponse.Closing())
        finally:
            left.set()

    hub.streams["StreamCalls"] = stream
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            while not came:
                await client.call("s", "m")
            idle.set()
            await left.wait()


async def test_a_stream_that_was_replaced_is_ended_with_the_connection(hub: Any, came: list[Any]) -> None:
    async def stream(steps: Any) -> AsyncIterator[Any]:
        yield said(ready=LIMITS)
        async for step in (step async for message in steps for step in message.steps):
            came.append(step)
            yield said(closing=call_pb2.StreamCallsResponse.Closing())

    hub.streams["StreamCalls"] = stream
    ended: list[str] = []

    async def under_way(client: Any) -> None:
        with pytest.raises(HubbubError) as caught:
            await client.call("s", "m", call_id="under way")
        ended.append(caught.value.reason)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            async with connect(data_dir=hub.data_dir) as client:
                while (opened := client._connection._call_streams._stream) is None:
                    await client.call("s", "m")
                group.start_soon(under_way, client)
                while opened.alive:
                    await anyio.sleep(0)
                await carried(client, hub.carry())
            while not ended:
                await anyio.sleep(0)
    assert ended == ["CLOSED"]


async def test_a_stream_whose_hub_shuts_down_takes_no_more_calls_and_those_under_way_end(
    hub: Any, came: list[Any]
) -> None:
    go_on, left = anyio.Event(), anyio.Event()

    async def stream(steps: Any) -> AsyncIterator[Any]:
        try:
            yield said(ready=LIMITS)
            async for step in (step async for message in steps for step in message.steps):
                came.append(step)
                if len(came) > 1:
                    yield said(closing=call_pb2.StreamCallsResponse.Closing())
                    await go_on.wait()
                yield said(id=step.start.id, completed=done(step.start.request))
        finally:
            left.set()

    hub.streams["StreamCalls"] = stream
    ended: list[Any] = []

    async def under_way(client: Any) -> None:
        ended.append(await client.call("s", "m", call_id="under way"))

    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client, anyio.create_task_group() as group:
            while not came:
                await client.call("s", "m")
            opened = client._connection._call_streams._stream
            group.start_soon(under_way, client)
            while opened.alive:
                await anyio.sleep(0)
            again = hub.carry()
            assert await client.call("s", "m", call_id="other") == {"ok": True}
            await carried(client, again)
            assert (ended, left.is_set()) == ([], False)
            go_on.set()
            await left.wait()  # it is the caller who ends it
    assert (len(came), ended) == (2, [{"ok": True}])


async def test_a_call_whose_token_has_ended_is_made_again_if_it_has_an_id(
    hub: Any, came: list[Any], refusal: Any
) -> None:
    hub.streams["StreamCalls"] = breaking(came, refusal("UNAUTHENTICATED", "CREDENTIAL_ENDED"))
    with anyio.fail_after(LIMIT_S):
        async with connect(data_dir=hub.data_dir) as client:
            while not came:
                await client.call("s", "m")
            hub.token, again = "rotated", hub.carry()
            (hub.data_dir / "client.json").write_text(f'{{"address": "{hub.address}", "token": "rotated"}}')
            with pytest.raises(Unauthenticated):  # without one it could be made twice
                await client.call("s", "m")
            assert await client.call("s", "m", call_id="mine") == {"ok": True}
            await carried(client, again)
    assert [each[2]["authorization"] for each in hub.seen if each[0] == "StreamCalls"][-1] == "Bearer rotated"


@pytest.fixture
def members(two: tuple[ScriptedHub, ScriptedHub], monkeypatch: pytest.MonkeyPatch) -> tuple[ScriptedHub, ScriptedHub]:
    """Two that are tried in order, and answer every call."""
    monkeypatch.setattr(discovery, "_shuffle", list[discovery.HubAddress])
    for each in two:
        each.replies["CallMethod"] = done
    return two


Members = tuple[ScriptedHub, ScriptedHub]


async def test_a_member_that_shuts_down_is_left_for_the_next(members: Members) -> None:
    left = anyio.Event()

    async def stream(steps: Any) -> AsyncIterator[Any]:
        try:
            yield said(ready=LIMITS)
            yield said(closing=call_pb2.StreamCallsResponse.Closing())
            async for step in (step async for message in steps for step in message.steps):
                yield said(id=step.start.id, completed=done(step.start.request))
        finally:
            left.set()

    first, second = members
    first.streams["StreamCalls"] = stream
    with anyio.fail_after(LIMIT_S):
        async with connect(f"{first.address},{second.address}", "secret") as client:
            while not second.requests("CallMethod"):
                assert await client.call("s", "m") == {"ok": True}
            await left.wait()
            assert client.address == second.address
    assert first.requests("CallMethod")


async def test_a_member_that_refuses_a_stream_as_it_shuts_down_is_left(members: Members, refusal: Any) -> None:
    async def refuse(_: Any) -> AsyncIterator[Any]:
        raise refusal("UNAVAILABLE", "SHUTTING_DOWN")
        yield

    first, second = members
    first.streams["StreamCalls"] = refuse
    with anyio.fail_after(LIMIT_S):
        async with connect(f"{first.address},{second.address}", "secret") as client:
            while not second.requests("CallMethod"):
                assert await client.call("s", "m") == {"ok": True}
            assert client.address == second.address


async def test_a_call_that_was_not_begun_is_made_at_the_next_member_that_is_kept_whatever_the_first_says(
    members: Members, refusal: Any
) -> None:
    came: list[str] = []
    on_its_way, go_on = anyio.Event(), anyio.Event()

    async def stream(steps: Any) -> AsyncIterator[Any]:
        yield said(ready=LIMITS)
        async for step in (step async for message in steps for step in message.steps):
            came.append(step.start.request.spec.call_id)
            if step.start.request.spec.call_id == "mine":
                yield said(closing=call_pb2.StreamCallsResponse.Closing())
                on_its_way.set()
                await go_on.wait()
                yield said(closing=call_pb2.StreamCallsResponse.Closing())
                raise refusal("UNAVAILABLE", "SHUTTING_DOWN")
            yield said(id=step.start.id, completed=done(step.start.request))

    first, second = members
    first.streams["StreamCalls"] = stream
    ended: list[Any] = []

    async def not_begun(client: Any) -> None:
        ended.append(await client.call("s", "m", call_id="mine"))

    with anyio.fail_after(LIMIT_S):
        async with connect(f"{first.address},{second.address}", "secret") as client:
            while (opened := client._connection._call_streams._stream) is None or not came:
                await client.call("s", "m")
            async with anyio.create_task_group() as group:
                group.start_soon(not_begun, client)
                await on_its_way.wait()
                while opened.alive:  # what the hub has said is on its way too
                    await anyio.sleep(0)
                while not second.requests("CallMethod"):
                    await client.call("s", "m")
                go_on.set()
            assert client.address == second.address
    assert ended == [{"ok": True}]
    assert [request.spec.call_id for request in second.requests("CallMethod")][-1] == "mine"
