"""The library and the hub together, over one stream of calls."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import hubbub_client
from hubbubd.core.access import Grant, Role
from hubbubd.core.calls import CallState
from hubbubd.runtime.hub import Hub

from ..upstream.conftest import Scripted, event, scripted
from .conftest import LIMIT_S, TOKEN, Until
from .test_call_stream import good, under_way

__all__ = ["good", "scripted"]


async def connected(hub: Hub, client: hubbub_client.Hub, principal: str = "local") -> None:
    """Calls until the hub has a stream of this principal, and the library uses it."""
    with anyio.fail_after(LIMIT_S):
        while not hub.quotas.call_streams.held(principal):
            await client.call_tool("good", "any")
        await client.call_tool("good", "any")


@pytest.fixture
async def client(hub: Hub, address: str, good: str) -> AsyncIterator[hubbub_client.Hub]:
    """A client whose calls go over a stream."""
    async with hubbub_client.connect(address, TOKEN) as opened:
        await connected(hub, opened)
        yield opened


async def test_results_and_errors_are_those_of_the_server(client: hubbub_client.Hub) -> None:
    assert (await client.call_tool("good", "any")).text == "hi"
    with pytest.raises(hubbub_client.UpstreamError) as caught:
        await client.get_prompt("good", "none", call_id="mine")
    assert (caught.value.reason, caught.value.metadata["call_id"]) == ("SERVER_ERROR", "mine")
    with pytest.raises(hubbub_client.InvalidArgument) as invalid:
        await client.call("good", "")
    assert [path for path, _ in invalid.value.violations] == ["spec.method"]


async def test_a_call_that_is_given_up_is_cancelled_in_the_hub(
    hub: Hub, client: hubbub_client.Hub, until: Until
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: client.call("away", "tools/list", call_id="gone"))
        group.start_soon(lambda: client.call("away", "tools/list", call_id="beside"))
        await under_way(until, hub, 2)
        with pytest.raises(TimeoutError), anyio.fail_after(0):
            await client.call("away", "tools/list", call_id="late")
        group.cancel_scope.cancel()
    await until(lambda: all(hub.calls.get(each).state is CallState.CANCELLED for each in ("gone", "beside")))
    assert (await client.call_tool("good", "any")).text == "hi"
    assert hub.quotas.call_streams.held("local") == 1


async def test_progress_comes_with_the_call(hub: Hub, client: hubbub_client.Hub, scripted: Scripted) -> None:
    async def reports(request: Request) -> Response:
        asked: Any = await request.json()
        token = asked["params"]["_meta"]["progressToken"]
        said: list[Any] = [
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 3}},
            {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}},
        ]
        return StreamingResponse((event(each) for each in said), media_type="text/event-stream")

    scripted.replaced = {"tools/call": reports}
    seen: list[float] = []
    await client.call_tool("good", "any", on_progress=lambda progress: seen.append(progress.progress))
    assert seen == [3]
    assert not hub.quotas.streams.held("local"), "it needed no watch"


async def test_a_token_that_is_revoked_ends_the_calls_made_with_it(
    hub: Hub, address: str, good: str, until: Until
) -> None:
    _, secret = await hub.tokens.create("ada", [Grant(Role.CALLER)], by="test", ttl_s=None, may_name_others=False)
    ended: list[str] = []

    async def call(client: hubbub_client.Hub) -> None:
        with pytest.raises(hubbub_client.Unauthenticated) as caught:
            await client.call("away", "tools/list", call_id="hers")
        ended.append(caught.value.reason)

    async with hubbub_client.connect(address, secret) as client, anyio.create_task_group() as group:
        await connected(hub, client, "ada")
        group.start_soon(call, client)
        await until(lambda: hub.quotas.calls.held("ada") == 1)
        await hub.tokens.revoke("ada")
    assert ended == ["CREDENTIAL_ENDED"]
    await until(lambda: hub.calls.get("hers").state is CallState.CANCELLED)
