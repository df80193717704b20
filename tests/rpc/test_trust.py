"""Who may add servers that start any command: who shows the hub's own token, in their own name, and nobody else."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

import hubbub_client
from hubbub.v1 import server_pb2
from hubbub_client import ServerSpec
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub

from .conftest import TOKEN, Caller, Refusal, opened, spec_of
from .test_bad_input import METHODS
from .test_tls import Secured, mutual

__all__ = ["mutual"]

ANYTHING = spec_of(name="mine", command="/no/such/program", args=["--any", "thing"])
NEAR = spec_of(name="near", url="http://127.0.0.2:9/mcp")
ALLOWED = spec_of(name="mine", url="http://127.0.0.1:9/mcp")


@dataclass
class Provider:
    """An identity provider, of whose tokens the hub takes any that begin with `jwt-`."""

    async def principal(self, token: str) -> Principal | None:
        """The principal of a token; None if it is of another kind."""
        if not token.startswith("jwt-"):
            return None
        return Principal(name="oidc:local", grants=(Grant(Role.ADMIN),), credential="oidc:local")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub that trusts the owner."""
    async with opened(tmp_path, trust_local=True) as hub:
        yield hub


@pytest.fixture
async def served(hub: Hub) -> AsyncIterator[grpc.aio.Channel]:
    """That hub, which knows a provider."""
    gate = Gate(TOKEN, hub.clock, [hub.tokens, Provider()])
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate, grace_s=2))
        yield await stack.enter_async_context(grpc.aio.insecure_channel(address))


def bearing(channel: grpc.aio.Channel, token: str, **more: str) -> Caller:
    named = tuple((f"hubbub-{key}", value) for key, value in more.items())
    return Caller(channel, (("authorization", f"Bearer {token}"), *named))


async def made(hub: Hub, name: str, *, may_name_others: bool = False) -> str:
    """The secret of a new token of an admin."""
    _, secret = await hub.tokens.create(
        name, [Grant(Role.ADMIN)], by="test", ttl_s=None, may_name_others=may_name_others
    )
    return secret


@asynccontextmanager
async def _others(hub: Hub, channel: grpc.aio.Channel) -> AsyncIterator[dict[str, Caller]]:
    trusted = await made(hub, "bridge", may_name_others=True)
    yield {
        "a token of an admin": bearing(channel, await made(hub, "ada")),
        "a token that names the owner": bearing(channel, trusted, **{"as": "local"}),
        "the owner's token for somebody else": bearing(channel, TOKEN, **{"as": "ada"}),
        "the owner's token for somebody who took the owner's name": bearing(channel, TOKEN, **{"as": "local"}),
        "the same in UTF-8": Caller(channel, (("authorization", f"Bearer {TOKEN}"), ("hubbub-as-bin", b"local"))),
        "a token of the identity provider": bearing(channel, "jwt-1"),
    }


async def add(caller: Caller, spec: server_pb2.ServerSpec) -> server_pb2.Server:
    return (await caller(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec))).server


async def refused(caller: Caller, spec: server_pb2.ServerSpec) -> Refusal:
    return await caller.refused(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec))


async def get(caller: Caller, name: str = "mine") -> server_pb2.Server:
    return (await caller(METHODS["GetServer"], server_pb2.GetServerRequest(name=name))).server


def change(spec: server_pb2.ServerSpec, *paths: str) -> server_pb2.UpdateServerRequest:
    mask = {"update_mask": FieldMask(paths=paths)} if paths else {}
    return server_pb2.UpdateServerRequest(spec=spec, **mask)


@pytest.mark.usefixtures("processes")
async def test_the_owner_adds_any_command_and_a_server_on_this_machine(served: grpc.aio.Channel) -> None:
    owner = bearing(served, TOKEN)
    for spec in (ANYTHING, NEAR):
        assert (await add(owner, spec)).trusted
        assert (await get(owner, spec.name)).trusted


async def test_no_other_principal_does(hub: Hub, served: grpc.aio.Channel) -> None:
    async with _others(hub, served) as others:
        for who, caller in others.items():
            found = [(await refused(caller, spec)).reason for spec in (ANYTHING, NEAR)]
            assert found in (["COMMAND_NOT_ALLOWED", "HOST_NOT_ALLOWED"], ["NAMING_NOT_ALLOWED"] * 2), who
    assert hub.servers.names() == ["away"]


async def test_no_holder_of_a_certificate_does(mutual: Secured) -> None:
    async with mutual.caller(mutual.authority.issue_client("root")) as admin:
        assert (await refused(admin, ANYTHING)).reason == "COMMAND_NOT_ALLOWED"
        assert (await refused(admin, NEAR)).reason == "HOST_NOT_ALLOWED"
        assert not (await add(admin, ALLOWED)).trusted


@pytest.mark.usefixtures("processes")
async def test_a_server_of_the_owner_is_not_for_others_to_change(hub: Hub, served: grpc.aio.Channel) -> None:
    owner, ada = bearing(served, TOKEN), bearing(served, await made(hub, "ada"))
    await add(owner, ANYTHING)
    evil = spec_of(name="mine", command="/bin/sh", args=["-c", "true"])
    for request in (change(evil), change(evil, "stdio"), change(ANYTHING), change(ANYTHING, "queue")):
        assert (await ada.refused(METHODS["UpdateServer"], request)).reason == "COMMAND_NOT_ALLOWED"
    now = await get(owner)
    assert now.trusted
    await ada(METHODS["UpdateServer"], change(ALLOWED))
    assert not (await get(owner)).trusted


async def test_others_may_connect_a_server_of_the_owner_and_it_stays_trusted(
    hub: Hub, served: grpc.aio.Channel
) -> None:
    owner, ada = bearing(served, TOKEN), bearing(served, await made(hub, "ada"))
    await add(owner, NEAR)
    await ada(METHODS["DisconnectServer"], server_pb2.DisconnectServerRequest(name="near"))
    await ada(METHODS["ConnectServer"], server_pb2.ConnectServerRequest(name="near"))
    assert (await get(owner, "near")).trusted


async def test_what_the_owner_changes_in_part_is_trusted_only_if_it_was(hub: Hub, served: grpc.aio.Channel) -> None:
    owner, ada = bearing(served, TOKEN), bearing(served, await made(hub, "ada"))
    await add(ada, ALLOWED)
    slower = spec_of(name="mine", url="http://127.0.0.1:9/mcp", call_timeout_s=7)
    await owner(METHODS["UpdateServer"], change(slower, "timeouts"))
    assert not (await get(owner)).trusted
    await owner(METHODS["UpdateServer"], change(slower))
    assert (await get(owner)).trusted
    await owner(METHODS["UpdateServer"], change(ALLOWED, "timeouts"))
    assert (await get(owner)).trusted


async def test_a_refusal_says_what_to_paste(hub: Hub, served: grpc.aio.Channel) -> None:
    found = await refused(bearing(served, await made(hub, "ada")), ANYTHING)
    wanted = '{ command = "/no/such/program", args = ["..."] }'
    assert found.metadata["toml"].startswith("[hub]\nallow_commands = [\n")
    assert wanted in found.metadata["toml"]
    assert "thing" not in str(found)  # arguments may be secret


@pytest.mark.usefixtures("processes")
async def test_the_library_shows_who_is_trusted(address: str) -> None:
    async with hubbub_client.connect(address=address, token=TOKEN) as mine:
        await mine.servers.add(ServerSpec(name="mine", command="/no/such/program"))
        server = await mine.servers.get("mine")
        assert server.trusted
        assert server.to_json()["trusted"]
