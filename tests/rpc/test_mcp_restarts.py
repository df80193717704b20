"""Hosts with a session, over HTTP, whose hub ends and is there again: they go on as if nothing had been."""

import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd.rpc.mcp import transport

from ..runtime.peer import gives, never
from .conftest import LIMIT_S, until
from .mcp_host import Host, Stage, request, stage, tool

Lives = Callable[..., Any]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that takes a moment gets its stream."""
    monkeypatch.setattr(transport, "PRIME_S", 0.01)


@pytest.fixture
def life(tmp_path: Path) -> Lives:
    """Begins a life of the hub, with the store of the one before, or of the one that is killed at this moment."""
    lives: list[Path] = []

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Stage]:
        directory = tmp_path / str(len(lives))
        directory.mkdir()
        if lives:
            for name, content in _read_at_one_moment(lives[-1]).items():
                (directory / name).write_bytes(content)
        lives.append(directory)
        async with stage(directory, store_file=directory / "hub.db") as made:
            yield made

    return begin


def _read_at_one_moment(directory: Path) -> dict[str, bytes]:
    """The files of a store as they are when a hub is killed: all at one moment, though the hub goes on to write."""
    earlier: dict[str, bytes] = {}
    while (now := {file.name: file.read_bytes() for file in directory.glob("hub.db*")}) != earlier:
        earlier = now
    return now


def again(at: Stage, host: Host) -> Host:
    """The same host, at the next process of the hub."""
    return Host(at.http, host.path, host.headers)


async def hub_wrote(at: Stage) -> None:
    """Returns once the store has what the hub has noted."""
    with anyio.fail_after(LIMIT_S):
        while (await at.hub.store.snapshot("call/")).entries == ():
            await anyio.sleep(0.01)


async def begun(at: Stage, host: Host, id_: Any = 7) -> str:
    """The id of an event of a call that its server does not end, and that is in the store."""
    async with host.stream("POST", tool(id_)) as events:
        first = await events.next()
    await at.arrived()
    await hub_wrote(at)
    return first.id or ""


async def the_answer(host: Host, last: str) -> Any:
    """The only message of a stream that is resumed after an event, and ends with it."""
    async with host.stream("GET", last_event_id=last) as events:
        (only,) = await events.rest()
    return only.data


async def test_a_host_goes_on_in_its_session_however_the_hub_ended(life: Lives) -> None:
    async with life() as at:
        host = await at.host().begin()
        async with life() as after_kill:
            assert "result" in (await again(after_kill, host).post(tool(1))).json()
    async with life() as after_end:
        host = again(after_end, host)
        assert (await host.post(request(2, "tools/list"))).status_code == 200
        assert (await host.send("DELETE")).status_code == 200
    async with life() as at:
        assert (await again(at, host).post(request(3, "ping"))).status_code == 404


async def test_a_call_that_ended_with_the_hub_is_answered_at_once(life: Lives) -> None:
    async with life() as at:
        at.peers["one"].behaviour = never
        host = await at.host().begin()
        last = await begun(at, host, "id-7")
        async with life() as after_kill:
            host = again(after_kill, host)
            for _ in range(2):  # a host that has not got the answer repeats itself
                said = await the_answer(host, last)
                assert (said["id"], said["error"]["data"]["reason"]) == ("id-7", "HUB_RESTARTED")
            assert (await host.post(request(8, "ping"))).json()["result"] == {}


async def test_a_request_of_which_nothing_is_known_is_answered_as_well(life: Lives) -> None:
    async with life() as at:
        at.peers["one"].behaviour = never
        host = await at.host().begin()
        stream, _, number = (await begun(at, host)).partition(".")
    said = json.loads(base64.urlsafe_b64decode(stream + "=="))
    unknown = base64.urlsafe_b64encode(json.dumps([*said[:-1], "call_unknown"]).encode()).decode().rstrip("=")
    async with life() as at:
        said = await the_answer(again(at, host), f"{unknown}.{number}")
        assert (said["id"], said["error"]["data"]["reason"]) == (7, "HUB_RESTARTED")


async def test_the_result_of_a_call_that_ended_before_the_hub_did_is_fetched_from_the_next_one(life: Lives) -> None:
    go = anyio.Event()

    async with life() as at:
        at.peers["one"].behaviour = gives({"content": [{"type": "text", "text": "it is done"}]}, once=go)
        host = await at.host().begin()
        last = await begun(at, host)
        go.set()
        await at.hub.calls.drain()
    async with life() as at:
        said = await the_answer(again(at, host), last)
        assert said["result"]["content"] == [{"type": "text", "text": "it is done"}]


async def test_a_stream_of_another_session_or_principal_is_not_resumed(life: Lives) -> None:
    async with life() as at:
        at.peers["one"].behaviour = never
        host = await at.host().begin()
        other = await (await at.named("other")).begin()
        last = await begun(at, host)
        async with life() as after_kill:
            for each in (other, await at.host().begin()):
                refused = await again(after_kill, each).send("GET", last_event_id=last)
                assert refused.status_code in (400, 404)


async def test_a_session_ends_with_its_token(life: Lives) -> None:
    async with life() as at:
        host = await (await at.named("other")).begin()
        await at.hub.tokens.revoke("other")
        stolen = await at.named("other")
        await until(lambda: not at.hub.host_sessions.all())
        session = {key: host.headers[key] for key in ("mcp-session-id", "mcp-protocol-version")}
        second = Host(at.http, headers=stolen.headers | session)
        assert (await second.post(request(1, "ping"))).status_code == 404


@pytest.mark.parametrize("path", ["/mcp", "/mcp/p/default", "/mcp/s/one"])
@pytest.mark.parametrize("appended", ["/", "/mcp"])
async def test_a_host_may_append_what_it_believes_that_each_endpoint_ends_with(
    life: Lives, path: str, appended: str
) -> None:
    async with life() as at:
        host = await at.host(path + appended).begin()
        assert (await Host(at.http, path, host.headers).post(request(1, "ping"))).json()["result"] == {}
        assert (await at.host(f"{path}/other").send("DELETE")).status_code == 404
