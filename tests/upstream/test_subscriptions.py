"""Subscriptions to a stateless server: acknowledged first, then told, and every way in which one ends."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from hubbubd.errors import PeerError, UpstreamError

from ..raising import raising
from .conftest import Connect, Recorder, Scripted, event

Options = dict[str, Any]
WANTED = {"toolsListChanged": True}
CHANGED = "notifications/tools/list_changed"
ID = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture(params=["stdio", "http"])
def changing(request: pytest.FixtureRequest, stdio: Callable[..., Options], peer_scripts: Path) -> Options:
    """How to reach a server whose tools change."""
    if request.param == "stdio":
        return stdio("changing_server.py", "stdio")
    peer = request.getfixturevalue("http_peer")([sys.executable, str(peer_scripts / "changing_server.py"), "http"])
    return {"url": f"{peer.url}/mcp"}


async def add(link: Any, name: str) -> None:
    await link.request("tools/call", {"name": "add", "arguments": {"name": name}})


async def test_a_change_is_told_after_the_acknowledgement_and_until_the_subscription_is_given_up(
    changing: Options, connect: Connect, recorder: Recorder
) -> None:
    acknowledged: list[dict[str, Any]] = []
    async with connect(**changing) as link, anyio.create_task_group() as tasks:
        ready = anyio.Event()

        def acknowledge(told: dict[str, Any]) -> None:
            acknowledged.append(told)
            ready.set()

        await add(link, "nobody_listens")
        tasks.start_soon(link.listen, WANTED, acknowledge)
        await ready.wait()
        assert recorder.notifications == []
        await add(link, "one")
        await recorder.until(lambda: recorder.notifications)
        tasks.cancel_scope.cancel()
    assert acknowledged == [WANTED]
    assert [(method, call_id) for method, _, call_id in recorder.notifications] == [(CHANGED, None)]


async def test_several_subscriptions_are_each_acknowledged_for_themselves(changing: Options, connect: Connect) -> None:
    filters: list[dict[str, Any]] = [WANTED, {"promptsListChanged": True}, {"resourceSubscriptions": ["note://today"]}]
    told: dict[int, dict[str, Any]] = {}
    async with connect(**changing) as link, anyio.create_task_group() as tasks:
        for number, wanted in enumerate(filters):
            tasks.start_soon(link.listen, wanted, lambda honoured, number=number: told.update({number: honoured}))
        while len(told) < len(filters):
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert told == dict(enumerate(filters))


async def test_a_server_with_a_handshake_is_not_asked(stdio: Callable[..., Options], connect: Connect) -> None:
    async with connect(**stdio("changing_server.py", "stdio"), protocol="2025-11-25") as link:
        with raising(UpstreamError, "METHOD_NOT_IN_REVISION"):
            await link.listen(WANTED, print)


async def test_the_end_of_the_connection_ends_a_subscription(
    http_peer: Callable[..., Any], peer_scripts: Path, connect: Connect
) -> None:
    peer = http_peer([sys.executable, str(peer_scripts / "changing_server.py"), "http"])
    ended = anyio.Event()
    ready = anyio.Event()
    async with connect(url=f"{peer.url}/mcp") as link, anyio.create_task_group() as tasks:

        async def listen() -> None:
            with pytest.raises(UpstreamError):
                await link.listen(WANTED, lambda _: ready.set())
            ended.set()

        tasks.start_soon(listen)
        await ready.wait()
        peer.process.kill()
        await ended.wait()


def speaking(scripted: Scripted, listening: Callable[[Any], Response]) -> None:
    """Makes the server one of 2026-07-28 that answers `subscriptions/listen` like this, given the request's id."""

    async def discover(request: Request) -> Response:
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
        envelope = {"jsonrpc": "2.0", "id": json.loads(await request.body())["id"]}
        return JSONResponse(
            {**envelope, "result": {**found, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}}
        )

    async def listen(request: Request) -> Response:
        return listening(json.loads(await request.body())["id"])

    scripted.replaced |= {"server/discover": discover, "subscriptions/listen": listen}


def stream(*messages: dict[str, Any]) -> Response:
    return StreamingResponse(
        iter(event({"jsonrpc": "2.0", **message}) for message in messages), media_type="text/event-stream"
    )


def acknowledgement(request_id: Any, **more: Any) -> dict[str, Any]:
    params = {"notifications": WANTED, "_meta": {ID: request_id}, **more}
    return {"method": "notifications/subscriptions/acknowledged", "params": params}


async def listened(scripted: Scripted, connect: Connect) -> list[dict[str, Any]]:
    """What was acknowledged until the subscription ended."""
    acknowledged: list[dict[str, Any]] = []
    async with connect(url=scripted.url) as link:
        await link.listen(WANTED, acknowledged.append)
    return acknowledged


async def test_a_subscription_that_the_server_ends_has_ended_well(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    told = {"method": CHANGED, "params": {"_meta": {ID: 0}}}
    speaking(scripted, lambda id_: stream(acknowledgement(id_), told, {"id": id_, "result": {"_meta": {ID: id_}}}))
    assert await listened(scripted, connect) == [WANTED]
    assert [method for method, _, _ in recorder.notifications] == [CHANGED]


async def test_a_subscription_that_the_server_cancels_has_ended(scripted: Scripted, connect: Connect) -> None:
    def cancelled(id_: Any) -> Response:
        withdrawn = {"method": "notifications/cancelled", "params": {"requestId": id_, "reason": "too many"}}

        async def and_then_nothing() -> AsyncIterator[str]:
            for message in (acknowledgement(id_), withdrawn):
                yield event({"jsonrpc": "2.0", **message})
            await anyio.sleep_forever()

        return StreamingResponse(and_then_nothing(), media_type="text/event-stream")

    speaking(scripted, cancelled)
    with pytest.raises(PeerError, match="the server ended the subscription"):
        await listened(scripted, connect)


async def test_a_refused_subscription_says_so(scripted: Scripted, connect: Connect) -> None:
    error = {"code": -32601, "message": "Method not found"}
    speaking(scripted, lambda id_: JSONResponse({"jsonrpc": "2.0", "id": id_, "error": error}))
    with pytest.raises(PeerError) as caught:
        await listened(scripted, connect)
    assert caught.value.code == -32601


@pytest.mark.parametrize(
    "params",
    [{"_meta": {ID: 999}}, {"_meta": {ID: {}}}, {"_meta": None}, {"_meta": []}, {"notifications": None}, {}],
    ids=repr,
)
async def test_an_acknowledgement_of_nothing_that_was_asked_is_ignored(
    scripted: Scripted, connect: Connect, params: dict[str, Any]
) -> None:
    def wrong(id_: Any) -> Response:
        strange = acknowledgement(id_, **params) if params else {"method": "notifications/subscriptions/acknowledged"}
        return stream(strange, acknowledgement(id_), {"id": id_, "result": {}})

    speaking(scripted, wrong)
    assert await listened(scripted, connect) == [WANTED]
