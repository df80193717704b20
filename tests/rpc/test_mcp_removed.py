"""What hosts get whose profile is removed while they use it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.downstream import BridgedHosts, HostOutbox, McpEndpoints

from ..downstream.conftest import ADA, handles
from ..runtime.peer import never
from .conftest import LIMIT_S
from .mcp_host import NEW, OLD, Stage, envelope, request, stage

MINE = "/mcp/p/mine"
URI = "hubbub://s/one/file:///a"
READ = request(1, "resources/read", uri=URI)
LISTEN = request(7, "subscriptions/listen", notifications={"toolsListChanged": True})


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub with the profile `mine`, in which a server never answers."""
    async with stage(tmp_path, "one", mcp_profiles={"mine": ProfileSettings()}) as made_:
        made_.peers["one"].behaviour = never
        yield made_


@pytest.mark.parametrize("new", [False, True], ids=[OLD, NEW])
async def test_a_request_under_way_ends_and_says_what_is_gone(made: Stage, new: bool) -> None:
    host = made.host(MINE) if new else await made.host(MINE).begin()
    answers: list[Any] = []

    async def call() -> None:
        answers.append(await (host.new(READ, mcp_name=URI) if new else host.post(READ)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await made.arrived()
        await made.reload(mcp_profiles={})
    assert answers[0].json()["error"]["data"] == {"reason": "PROFILE_NOT_FOUND", "profile": "mine"}
    after = await (host.new(READ, mcp_name=URI) if new else host.post(READ))
    assert (after.status_code, after.json()["error"]["data"]["reason"]) == (404, "PROFILE_NOT_FOUND")


async def test_streams_end(made: Stage) -> None:
    host = await made.host(MINE).begin()
    about = {"mcp_protocol_version": NEW, "mcp_method": LISTEN["method"]}
    async with (
        host.stream("GET") as own,
        made.host(MINE).stream("POST", envelope(LISTEN), **about) as listening,
    ):
        acknowledged = await listening.next()
        assert acknowledged is not None
        await made.reload(mcp_profiles={})
        (last,) = await listening.rest()
        assert last.data["error"]["data"]["reason"] == "PROFILE_NOT_FOUND"
        assert await own.rest() == []


async def test_a_host_goes_on_in_its_session_once_its_profile_is_there_again(made: Stage) -> None:
    host = await made.host(MINE).begin()
    await made.reload(mcp_profiles={})
    assert (await host.post(request(2, "ping"))).status_code == 404
    await made.reload(mcp_profiles={"mine": ProfileSettings()})
    assert (await host.post(request(3, "ping"))).json()["result"] == {}


async def test_a_host_behind_a_bridge_is_told_before_its_stream_ends(made: Stage) -> None:
    hub, outlet = made.hub, HostOutbox()
    endpoint = McpEndpoints(hub, handles(hub)).find_profile("mine")
    host = BridgedHosts(hub.calls, hub.clock.steady).add_stream(ADA, "k" * 16, endpoint, outlet)
    host.receive(json.dumps(envelope(READ)).encode())
    await made.arrived()
    await made.reload(mcp_profiles={})
    with anyio.fail_after(LIMIT_S):
        await endpoint.wait_until_removed()
    assert b"PROFILE_NOT_FOUND" in outlet.take_all()[0]
