"""Two members that share a store: who has seen something at one is shown nothing older at the other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import hubbub_client
from hubbub.v1 import admin_pb2, call_pb2
from hubbub_client.transport import discovery
from hubbub_client.transport.revisions import SeenRevision
from hubbubd.config import HubSettings
from hubbubd.rpc import revision
from hubbubd.rpc.context import amend_context
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from ..clients.frozen import proxy
from ..runtime.foreign import Follower
from .conftest import LIMIT_S, TOKEN, Refusal, explain, gate, settled

CREDENTIALS = ("authorization", f"Bearer {TOKEN}")
OF_ALL: Any = admin_pb2.ListTokensRequest().SerializeToString()
LIST = "/hubbub.v1.AdminService/ListTokens"


@dataclass
class Served:
    """A member at its address."""

    store: Follower
    hub: Hub
    address: str

    @property
    def newest(self) -> str:
        return f"{self.store.id} {self.store.revision}"

    async def ask(self, seen: str | None, path: str = LIST) -> tuple[bytes, dict[str, Any]]:
        """The response to a request with this metadata, and the metadata at its end."""
        metadata = [CREDENTIALS, *([] if seen is None else [("hubbub-revision", seen)])]
        async with grpc.aio.insecure_channel(self.address) as channel:
            method: Any = channel.unary_unary(path)
            rpc = method(OF_ALL, metadata=metadata)
            return await rpc, dict(await rpc.trailing_metadata())

    async def refused(self, seen: str) -> tuple[Refusal, dict[str, Any]]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(seen)
        return explain(caught.value), dict(caught.value.trailing_metadata() or ())


@asynccontextmanager
async def member(store: SqliteStore, name: str, directory: Path) -> AsyncGenerator[Served]:
    (directory / name).mkdir()
    settings = HubSettings(data_dir=directory / name)
    follower = Follower(store, name)
    connector = McpConnector(TokenFile.open(directory / name))
    async with (
        Hub.open(follower, connector, {}, settings) as hub,  # pyright: ignore[reportArgumentType]
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=2) as address,
    ):
        yield Served(follower, hub, address)


Two = tuple[Served, Served]


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Two]:
    monkeypatch.setattr(discovery, "_shuffle", list[discovery.HubAddress])
    store = await SqliteStore.open(":memory:")
    async with settled(), AsyncExitStack() as stack:
        members = [await stack.enter_async_context(member(store, name, tmp_path)) for name in "ab"]
        yield members[0], members[1]
    await store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision, "BEHIND_S", 0.05)


async def make_token(at: Served, name: str = "new") -> None:
    async with hubbub_client.connect(at.address, TOKEN) as client:
        await client.tokens.create(name, [hubbub_client.Grant(role="viewer")])


async def test_who_says_nothing_of_revisions_is_told_nothing(two: Two) -> None:
    assert "hubbub-revision" not in (await two[0].ask(None))[1]


async def test_a_member_says_which_revision_it_has(two: Two) -> None:
    assert (await two[0].ask("-"))[1]["hubbub-revision"] == two[0].newest
    before = two[0].store.revision
    await make_token(two[0])
    assert two[0].store.revision > before
    assert (await two[0].ask("-"))[1]["hubbub-revision"] == two[0].newest


async def test_an_rpc_waits_until_its_member_has_what_its_caller_has_seen(two: Two) -> None:
    a, b = two
    b.store.held = True
    await make_token(a)
    asked = asyncio.ensure_future(b.ask(a.newest))
    others = b.store.waiting
    with anyio.fail_after(LIMIT_S):
        while b.store.waiting == others:
            await anyio.sleep(0.001)
        assert not admin_pb2.ListTokensResponse.FromString((await b.ask(None))[0]).tokens  # it is behind
        b.store.release()
        response, _ = await asked
    assert [each.name for each in admin_pb2.ListTokensResponse.FromString(response).tokens] == ["new"]
    assert b.store.waiting == others


@pytest.mark.usefixtures("impatient")
async def test_a_member_that_stays_behind_says_so_and_does_nothing(two: Two) -> None:
    a, b = two
    others = b.store.waiting
    b.store.held = True
    await make_token(a)
    refusal, metadata = await b.refused(a.newest)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "BEHIND")
    assert metadata["hubbub-revision"] == b.newest
    assert any(kind.__name__ == "RetryInfo" for kind in refusal.details)
    assert b.store.waiting == others


@pytest.mark.parametrize("seen", ["", "x", "1", "id one", "id 1 2"])
async def test_metadata_that_is_no_revision_is_refused(two: Two, seen: str) -> None:
    refusal, _ = await two[0].refused(seen)
    assert (refusal.code, [*refusal.violations]) == (grpc.StatusCode.INVALID_ARGUMENT, ["metadata.hubbub-revision"])


async def test_a_revision_of_another_history_is_not_waited_for(two: Two) -> None:
    await two[0].ask("0123456789abcdef 9007199254740991")


@pytest.mark.usefixtures("impatient")
async def test_nobody_without_a_credential_makes_a_member_wait(two: Two) -> None:
    ahead = [("hubbub-revision", f"{two[0].store.id} 9007199254740991")]
    async with grpc.aio.insecure_channel(two[0].address) as channel:
        well: Any = health_pb2_grpc.HealthStub(channel)
        assert (await well.Check(health_pb2.HealthCheckRequest(), metadata=ahead)).status
        method: Any = channel.unary_unary(LIST)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await method(OF_ALL, metadata=ahead)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_stream_of_calls_says_it_in_its_messages(two: Two) -> None:
    async with grpc.aio.insecure_channel(two[0].address) as channel:
        open_stream: Any = channel.stream_stream(
            "/hubbub.v1.CallService/StreamCalls",
            request_serializer=call_pb2.StreamCallsRequest.SerializeToString,
            response_deserializer=call_pb2.StreamCallsResponse.FromString,
        )
        for metadata, told in [([CREDENTIALS], ""), ([CREDENTIALS, ("hubbub-revision", "-")], two[0].newest)]:
            stream = open_stream(metadata=metadata)
            first = await stream.read()
            assert first.steps[0].HasField("ready")
            assert first.revision == told
            stream.cancel()


async def test_the_token_of_a_watch_has_the_revision_up_to_which_it_has_shown_changes(two: Two) -> None:
    seen = SeenRevision()
    async with hubbub_client.connect(two[0].address, TOKEN) as client:
        await make_token(two[0])
        async for event in client.inbox.watch():
            seen.note_token(event.resume_token)
            break
    assert seen.metadata() == ("hubbub-revision", two[0].newest)


@pytest.mark.parametrize("way", ["write", "refused write", "watch"])
async def test_a_client_that_moves_reads_nothing_older_than_it_has_seen(two: Two, way: str) -> None:
    a, b = two
    b.store.held = True
    others = b.store.waiting
    with anyio.fail_after(LIMIT_S):
        async with AsyncExitStack() as stack:
            at_a = await stack.enter_async_context(proxy(int(a.address.rpartition(":")[2])))
            client = await stack.enter_async_context(hubbub_client.connect(f"{at_a.address},{b.address}", TOKEN))
            await _see(client, a, way)
            await at_a.end()
            listing = asyncio.ensure_future(client.tokens.list())
            while b.store.waiting == others:
                await anyio.sleep(0.001)
            b.store.release()
            assert [each.name for each in await listing] == ["new"]
            assert client.address == b.address


async def _see(client: hubbub_client.Hub, at: Served, way: str) -> None:
    """Have a client see that there is a token."""
    if way != "write":
        await make_token(at)
    if way == "watch":
        async with aclosing(client.inbox.watch()) as events:
            await anext(events)
    else:
        with nullcontext() if way == "write" else pytest.raises(hubbub_client.AlreadyExists):
            await client.tokens.create("new", [hubbub_client.Grant(role="viewer")])


@pytest.mark.parametrize("told", ["another-history 99", "{} x", "{}"])
async def test_what_another_member_says_of_no_revision_here_is_passed_over(told: str) -> None:
    store = await SqliteStore.open(":memory:")
    heard: list[int] = []
    amend_context(note_revision=heard.append)
    with anyio.fail_after(revision.BEHIND_S / 2):
        await revision.wait_for_trailing_revision(
            store, ((revision.METADATA_KEY, told.format(store.id)), ("other", "x")), None
        )
    assert not heard
    await store.close()
