"""Operators see which hosts are connected, and what each waits for."""

import gc
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from hubbub.v1 import mcp_pb2 as pb
from hubbubd.core.access import Role
from hubbubd.downstream import ReplayStream
from hubbubd.rpc.listeners.grpc_server import SERVICES, serve

from ..runtime.conftest import FORM
from ..runtime.peer import Outcome, Sent
from .conftest import LIMIT_S, Caller
from .mcp_host import NEW, OLD, Stage, envelope, request, stage, tool

LIST = SERVICES["McpService"].methods_by_name["ListHosts"]


@dataclass
class Operated:
    """A hub with hosts, and its operator."""

    stage: Stage
    api: Caller

    async def hosts(self, **asked: Any) -> list[pb.ConnectedHost]:
        """Those that are connected."""
        return list((await self.api(LIST, pb.ListHostsRequest(**asked))).hosts)

    async def until(self, count: int) -> list[pb.ConnectedHost]:
        """So many."""
        with anyio.fail_after(LIMIT_S):
            while len(found := await self.hosts()) != count:
                await anyio.sleep(0.005)
        return found


@pytest.fixture
async def made(tmp_path: Path) -> AsyncGenerator[Operated]:
    """A hub with hosts."""
    async with (
        stage(tmp_path) as made_,
        serve(made_.hub, listen="127.0.0.1:0", gate=made_.gate, grace_s=0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield Operated(made_, Caller(channel))


@pytest.mark.parametrize("new", [False, True], ids=[OLD, NEW])
async def test_what_a_host_waits_for_is_a_call_and_what_that_waits_for(made: Operated, new: bool) -> None:
    async def asks(sent: Sent) -> Outcome:
        await sent.ask("elicitation/create", FORM, on_wire=True).answered()
        return {"content": []}

    made.stage.peers["one"].behaviour = asks
    host = made.stage.host() if new else await made.stage.host().begin()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.new if new else host.post, tool(1))
        with anyio.fail_after(LIMIT_S):
            while not (shown := (await made.until(1))[0]).requests or not shown.requests[0].pending_request_ids:
                await anyio.sleep(0.005)
        (open_,) = shown.requests
        assert open_.method == "tools/call"
        (pending,) = open_.pending_request_ids
        assert made.stage.hub.inbox.get(pending).state == "open"
        assert made.stage.hub.calls.get(open_.call_id).method == "tools/call"
        assert await made.hosts(filter=pb.HostFilter(call_ids=[open_.call_id])) == [shown]
        assert await made.hosts(filter=pb.HostFilter(call_ids=["another"])) == []
        tasks.cancel_scope.cancel()


async def test_hosts_come_in_pages_by_principal_and_by_id(made: Operated) -> None:
    for name in ("ada", "bob"):
        host = await made.stage.named(name)
        await host.begin()
        await host.begin()
    assert {each.principal for each in await made.hosts(filter=pb.HostFilter(principals=["bob"]))} == {"bob"}
    (one, _, _, _) = await made.hosts()
    assert [each.id for each in await made.hosts(filter=pb.HostFilter(ids=[one.id]))] == [one.id]
    first = await made.api(LIST, pb.ListHostsRequest(page_size=3))
    second = await made.api(LIST, pb.ListHostsRequest(page_size=3, page_token=first.next_page_token))
    assert [each.principal for each in (*first.hosts, *second.hosts)] == ["bob", "bob", "ada", "ada"]


async def test_hosts_are_shown_to_those_who_may_see_everything(made: Operated) -> None:
    for role in Role:
        host = await made.stage.named(role.value, role)
        caller = Caller(made.api.channel, (("authorization", host.headers["authorization"]),))
        if role is Role.CALLER:
            assert (await caller.refused(LIST, pb.ListHostsRequest())).reason == "PERMISSION_DENIED"
        else:
            assert (await caller(LIST, pb.ListHostsRequest())).hosts == []


async def test_words_of_a_host_are_bounded_and_can_be_shown(made: Operated) -> None:
    odd = {"name": "x" * 5000, "version": "\ud800"}
    hello = request(0, "initialize", protocolVersion=OLD, capabilities={}, clientInfo=odd)
    assert (await made.stage.host().post(hello)).status_code == 200
    (shown,) = await made.hosts()
    assert (shown.name, shown.version) == ("x" * 100, "?")


async def test_a_process_without_a_session_is_one_host_with_its_stream_and_its_calls(made: Operated) -> None:
    host = made.stage.host()
    listen = envelope(request(1, "subscriptions/listen", notifications={}))
    headers = {"mcp_protocol_version": NEW, "mcp_method": "subscriptions/listen"}
    assert (await host.new(request(0, "server/discover"))).status_code == 200
    async with host.stream("POST", listen, **headers) as events:
        assert await events.next() is not None
        assert (await host.new(request(2, "tools/list"))).status_code == 200
        (shown,) = await made.hosts()
        assert shown.stream_open


async def test_a_host_with_a_stream_of_its_own_is_there_and_one_that_lost_it_is_gone_a_minute_later(
    made: Operated,
) -> None:
    host = await made.stage.host().begin()
    (shown,) = made.stage.hub.hosts.all()
    async with host.stream("GET"):
        with anyio.fail_after(LIMIT_S):
            while not (await made.hosts())[0].stream_open:
                await anyio.sleep(0.005)
        assert not shown.has_probably_left(shown.last_used_at + 10_000)
    with anyio.fail_after(LIMIT_S):
        while (await made.hosts())[0].stream_open:
            await anyio.sleep(0.005)
    assert [shown.has_probably_left(shown.last_used_at + after_s) for after_s in (59, 61)] == [False, True]


async def test_a_host_that_never_had_a_stream_is_gone_after_five_minutes(made: Operated) -> None:
    await made.stage.host().begin()
    (shown,) = made.stage.hub.hosts.all()
    assert [shown.has_probably_left(shown.last_used_at + after_s) for after_s in (299, 301)] == [False, True]


@pytest.mark.parametrize("new", [False, True])
async def test_a_request_says_for_how_long_it_is_held(made: Operated, new: bool) -> None:
    async def asks(sent: Sent) -> Outcome:
        await sent.ask("elicitation/create", FORM, on_wire=True).answered()
        return {}

    made.stage.peers["one"].behaviour = asks
    host = made.stage.host() if new else await made.stage.host().begin()
    send = host.new if new else host.post
    for wrong in ("soon", "-1", "nan"):
        refused = (await send(tool(1), hubbub_hold_s=wrong)).json()["error"]
        assert "hubbub-hold-s must be a number of seconds" in refused["message"]
    response = await send(tool(2), hubbub_hold_s="0")
    assert "ANSWER_AWAITED" in response.text


def streams() -> int:
    """How many streams of requests are kept for hosts."""
    gc.collect()
    return sum(isinstance(each, ReplayStream) for each in gc.get_objects())


async def test_requests_that_are_refused_for_their_time_leave_nothing(made: Operated) -> None:
    host = await made.stage.host().begin()
    before = streams()
    for number in range(10):
        assert "error" in (await host.post(tool(number), hubbub_hold_s="soon")).json()
    assert streams() == before
