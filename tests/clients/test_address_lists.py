"""Several addresses of one hub: how they are written, and where they are shown."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from grpc import ChannelConnectivity

from hubbub.v1 import admin_pb2, catalog_pb2, inbox_pb2, server_pb2
from hubbub_cli.syntax import completion
from hubbub_client import connect
from hubbub_client.errors import InvalidArgument, Unavailable
from hubbub_client.transport import discovery, retries
from hubbub_client.transport.addresses import order_to_try
from hubbub_client.transport.channel import MAX_RETIRED, Channels
from hubbub_client.transport.discovery import MAX_ADDRESSES, HubLocation, discover_all
from hubbub_client.transport.revisions import SeenRevision

from .conftest import Ran, Refusal, ScriptedHub

LIMIT_S = 60


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HUBBUB_")]:
        monkeypatch.delenv(name)


def test_a_process_has_an_order_of_its_own_and_keeps_it() -> None:
    given = ",".join(f"127.0.0.1:{port}" for port in range(1, 17))
    orders = [[each.address for each in discover_all(HubLocation(given, "t"))] for _ in range(3)]
    assert orders[0] == orders[1] == orders[2]
    assert sorted(orders[0]) == sorted(given.split(","))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("127.0.0.1:1,127.0.0.1", "'127.0.0.1' is not HOST:PORT"),
        ("127.0.0.1:1,,127.0.0.1:2", "an empty address"),
        ("127.0.0.1:1,", "an empty address"),
        ("127.0.0.1:1,http://a:2", "http://a:2 is not on this machine"),
        (",".join(["127.0.0.1:1"] * (MAX_ADDRESSES + 1)), "17 addresses are too many"),
        ("dns:///a", "'dns:///a' is not HOST:PORT"),
        ("dns://server/a:1", "is not HOST:PORT"),
    ],
)
def test_an_address_that_is_none_is_named(given: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says.replace("(", r"\(")):
        discover_all(HubLocation(given, "t"))


def test_all_addresses_come_with_the_same_token_and_those_off_this_machine_with_tls() -> None:
    found = discover_all(HubLocation("127.0.0.1:1, a:2,dns:///b:3,dns:///localhost:4,https://127.0.0.1:5", "t"))
    assert {(each.target, each.token, each.tls is not None) for each in found} == {
        ("127.0.0.1:1", "t", False),
        ("a:2", "t", True),
        ("dns:///b:3", "t", True),
        ("dns:///localhost:4", "t", False),
        ("127.0.0.1:5", "t", True),
    }


def test_the_token_of_client_json_is_for_its_own_addresses_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "client.json").write_text('{"address": "127.0.0.1:1, 127.0.0.1:2", "token": "filed"}')
    for given, token in [(None, "filed"), ("127.0.0.1:2,127.0.0.1:1", "filed"), ("127.0.0.1:1,127.0.0.1:3", None)]:
        assert {each.token for each in discover_all(HubLocation(given, None, tmp_path))} == {token}


@pytest.mark.parametrize(
    ("at", "left", "order"),
    [
        (None, None, "123"),
        ("2", None, "231"),
        ("2", "2", "231"),
        (None, "2", "312"),
        (None, "3", "123"),
        ("9", "9", "123"),
    ],
)
def test_the_next_address_is_the_one_after_that_left_last(at: str | None, left: str | None, order: str) -> None:
    found = discover_all(HubLocation("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "t"))
    whole = {None: None, **{str(n): f"127.0.0.1:{n}" for n in range(1, 10)}}
    endpoints = sorted(found, key=lambda each: each.address)
    assert "".join(each.address[-1] for each in order_to_try(endpoints, whole[at], whole[left])) == order


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ([], "-"),
        (["h 5"], "h 5"),
        (["h 5", "h 3"], "h 5"),
        (["h 5", "h 7"], "h 7"),
        (["h 5", "other 2"], "other 2"),
        (["h 5", "", "7", "h", "h x", "h -1", "a\nb 9", "h 1 2", f"{'h' * 65} 9"], "h 5"),
        ([f"h {10**40}"], f"h {2**53 - 1}"),
    ],
)
def test_the_newest_revision_of_the_last_history_is_sent(said: list[str], sent: str) -> None:
    seen = SeenRevision()
    for each in said:
        seen.note_revision(each)
    assert seen.metadata() == ("hubbub-revision", sent)


@pytest.mark.parametrize("token", ["", "t", "é", "\udcff", "aGVsbG8", "====", "aCBkIDUgMCAx"])
def test_a_token_that_says_nothing_of_revisions_is_passed_over(token: str) -> None:
    seen = SeenRevision()
    seen.note_token(token)
    assert seen.metadata()[1] == "-"


Two = tuple[ScriptedHub, ScriptedHub]


@pytest.fixture
def members(two: Two) -> Two:
    """Both say what a command wants to know."""
    for each in two:
        status = admin_pb2.GetStatusResponse(version="1", serving=True)
        status.store.id = "history"
        each.replies |= {
            "GetStatus": lambda _, status=status: status,
            "ListServers": lambda _: server_pb2.ListServersResponse(servers=[server_pb2.Server(name="time")]),
            "CheckHub": lambda _: admin_pb2.CheckHubResponse(),
            "ListCatalogEntries": lambda _: catalog_pb2.ListCatalogEntriesResponse(),
            "ListPendingRequests": lambda _: inbox_pb2.ListPendingRequestsResponse(),
        }
    return two


async def test_the_status_says_which_of_how_many_addresses_it_is_of(members: Two, hubbub: Callable[..., Any]) -> None:
    several = f"{members[0].address},{members[1].address}"
    done: Ran = await hubbub("--address", several, "--token", "secret", "status", json=False)
    words = " ".join(done.out.split())
    assert any(f"serving at {each.address}, one of 2 addresses" in words for each in members), done
    done = await hubbub("--address", members[0].address, "--token", "secret", "status", json=False)
    assert f"serving at {members[0].address}, started" in " ".join(done.out.split())


async def test_the_doctor_looks_at_all_addresses(members: Two, hubbub: Callable[..., Any], free_port: int) -> None:
    several = f"{members[0].address},{members[1].address},127.0.0.1:{free_port}"
    done: Ran = await hubbub("--address", several, "--token", "secret", "doctor")
    found = {line["about"]: line for line in done.lines}
    at = next(each for each in members if f"address {each.address}" in found)
    assert found[f"address {at.address}"]["verdict"] == "ok"
    assert found[f"address 127.0.0.1:{free_port}"]["verdict"] == "warn"
    assert "one of 3 addresses" in found["hub"]["message"]
    at.replies["GetStatus"] = lambda _: admin_pb2.GetStatusResponse(
        version="1", serving=True, store=admin_pb2.StoreStatus(id="another")
    )
    verdicts = [
        (line["about"], line["verdict"])
        for line in (await hubbub("--address", several, "--token", "secret", "doctor")).lines
    ]
    assert any(about.startswith("address ") and verdict == "fail" for about, verdict in verdicts)


async def test_names_are_completed_by_whichever_address_answers(members: Two, free_port: int) -> None:
    params = {"address": f"127.0.0.1:{free_port},{members[1].address}", "token": "secret"}
    context: Any = SimpleNamespace(params={}, find_root=lambda: SimpleNamespace(params=params))
    with anyio.fail_after(LIMIT_S):
        assert await asyncio.to_thread(completion.servers, context, "t") == ["time"]


async def test_a_command_goes_on_where_the_first_address_is_dead(
    members: Two, hubbub: Callable[..., Any], free_port: int
) -> None:
    several = {"HUBBUB_ADDRESS": f"127.0.0.1:{free_port},{members[1].address}", "HUBBUB_TOKEN": "secret"}
    done: Ran = await hubbub("servers", "list", env=several)
    assert [line["name"] for line in done.lines] == ["time"]
    dead = {**several, "HUBBUB_ADDRESS": f"127.0.0.1:{free_port},127.0.0.1:1"}
    done = await hubbub("servers", "list", env=dead)
    assert done.error["reason"] == "HUB_UNREACHABLE"
    for each in (f"127.0.0.1:{free_port}: nobody listens there", "127.0.0.1:1: nobody listens there"):
        assert each in done.error["message"]


@pytest.mark.parametrize(("asked", "pause"), [(0.5, 0.5), (None, 0.0), (3600.0, retries.LONGEST_PAUSE_S)])
def test_a_member_cannot_have_its_caller_wait_for_long(asked: float | None, pause: float) -> None:
    assert retries.retry_pause_s(Unavailable("x", reason="OWNER_CHANGING", retry_after_s=asked)) == pause


async def test_whoever_hears_late_that_an_address_has_failed_does_not_leave_the_next_one(
    two: tuple[ScriptedHub, ScriptedHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_shuffle", list[discovery.HubAddress])
    asked, late = anyio.Event(), anyio.Event()

    async def refuse_late(_: Any) -> Any:
        asked.set()
        await late.wait()
        raise Refusal("UNAVAILABLE", "STORE_UNAVAILABLE")

    def refuse(_: Any) -> Any:
        raise Refusal("UNAVAILABLE", "STORE_UNAVAILABLE")

    two[0].replies |= {"GetServer": refuse_late, "ListServers": refuse}
    two[1].replies["GetServer"] = lambda _: server_pb2.GetServerResponse(server=server_pb2.Server(name="b"))
    two[1].replies["ListServers"] = lambda _: server_pb2.ListServersResponse(servers=[server_pb2.Server(name="b")])
    with anyio.fail_after(LIMIT_S):
        async with connect(f"{two[0].address},{two[1].address}", "secret") as client:
            slow = asyncio.ensure_future(client.servers.get("b"))
            await asked.wait()
            assert (await client.servers.list())[0].name == "b"
            late.set()
            assert (await slow).name == "b"
            assert client.address == two[1].address
    assert len(two[0].requests("GetServer")) == 1


async def test_of_channels_that_are_retired_the_oldest_are_closed() -> None:
    channels = Channels()
    endpoints = discover_all(HubLocation(",".join(f"127.0.0.1:{port}" for port in range(1, 3 + MAX_RETIRED)), "t"))
    opened = [channels.channel_to(each) for each in endpoints]
    for each in endpoints:
        await channels.retire(each)
    shut = [channel.get_state() is ChannelConnectivity.SHUTDOWN for channel in opened]
    assert shut == [True, True] + [False] * MAX_RETIRED
    await channels.close()
