"""Members of a fleet in one process: hubs over one store in memory, that reach each other over mutual TLS."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from hubbub_frontend.certs import Authority, CertificateFiles
from hubbubd.config import ServerConfig
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.rpc.fleet import FleetPort
from hubbubd.rpc.fleet.forwards.forwarding import Forwarding
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.ownership import Owner
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.telemetry.meter import OFF as UNMEASURED
from hubbubd.telemetry.meter import Meter

from ..runtime.conftest import World, server
from ..runtime.foreign import Follower
from ..runtime.noted import Noted
from ..runtime.peer import Peer
from .conftest import Caller, gate, settled, until

LARGE = 17 * 1024 * 1024


class Believed:
    """What one member believes of whose each server is."""

    owns_all = False

    def __init__(self, name: str) -> None:
        self.me = self.name = name
        self.owners: dict[str, Owner] = {}
        self.members: list[Owner] = []
        self._listeners: list[Callable[[str], None]] = []

    def owns(self, server: str) -> bool:
        owner = self.owners.get(server)
        return owner is not None and owner.member == self.name

    def may_act(self) -> bool:
        return True

    def owner(self, server: str) -> Owner | None:
        return None if self.owns(server) else self.owners.get(server)

    def is_free(self, server: str) -> bool:
        return server not in self.owners

    def others(self) -> list[Owner]:
        return [member for member in self.members if member.member != self.name]

    def on_change(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def hear(self, server: str, owner: Owner | None) -> None:
        """It hears of a server's owner."""
        if owner is None:
            self.owners.pop(server, None)
        else:
            self.owners[server] = owner
        for listener in self._listeners:
            listener(server)


@dataclass
class Member:
    """A member that runs. `api` calls it; `address` is where."""

    name: str
    hub: Hub
    world: World
    believed: Believed
    port: FleetPort
    forwarding: Forwarding
    address: str
    api: Caller
    stack: AsyncExitStack

    @property
    def owner(self) -> Owner:
        """This member, as owner."""
        return Owner(self.name, 1, self.port.address)

    @property
    def store(self) -> Follower:
        """The store as it has it."""
        assert isinstance(self.world.store, Follower)
        return self.world.store

    @property
    def peer(self) -> Peer:
        """Its server `one`."""
        return self.world.peer


@dataclass
class Fleet:
    """A store that members share, and their authority."""

    directory: Path
    store: SqliteStore
    authority: Authority
    stack: AsyncExitStack
    members: dict[str, Member] = field(default_factory=dict[str, Member])

    @staticmethod
    def settings_of(name: str, authority: Authority, pair: CertificateFiles | None = None) -> FleetSettings:
        """The settings of a member, by default with a certificate of its own."""
        pair = pair or authority.issue_member(name)
        return FleetSettings(name=name, listen="127.0.0.1:0", ca=authority.file, cert=pair.cert, key=pair.key)

    async def start(
        self, name: str, *servers: ServerConfig, traced: bool = False, meter: Meter = UNMEASURED, **settings: Any
    ) -> Member:
        """Start a member with these servers of its own."""
        stack = AsyncExitStack()
        await self.stack.enter_async_context(stack)
        port = FleetPort(self.settings_of(name, self.authority), LARGE)
        believed = Believed(name)
        world = World(Follower(self.store, name), ownership=believed, tracer=Noted() if traced else None, meter=meter)
        world.settings |= settings
        for config in servers:
            believed.owners[config.name] = Owner(name, 1, port.address)
        hub = await stack.enter_async_context(world.hub(*servers))
        forwarding = await stack.enter_async_context(port.serve(hub, term=1))
        serving = serve(
            hub,
            listen="127.0.0.1:0",
            gate=gate(hub),
            grace_s=0,
            max_message_bytes=LARGE,
            middleware=(forwarding.wrap,),
        )
        address = await stack.enter_async_context(serving)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
        member = Member(name, hub, world, believed, port, forwarding, address, Caller(channel), stack)
        self.members[name] = member
        self._introduce()
        return member

    def _introduce(self) -> None:
        owners = {s: m.owner for m in self.members.values() for s in m.believed.owners if m.believed.owns(s)}
        for member in self.members.values():
            member.believed.members = [each.owner for each in self.members.values()]
            for name, owner in owners.items():
                if member.believed.owners.get(name) != owner:
                    member.believed.hear(name, owner)


@asynccontextmanager
async def fleet(directory: Path) -> AsyncIterator[Fleet]:
    """A fleet without members."""
    store = await SqliteStore.open(":memory:")
    async with settled(), AsyncExitStack() as stack:
        yield Fleet(directory, store, Authority.open(directory / "fleet"), stack)
    await store.close()


def one(**options: Any) -> ServerConfig:
    """The server `one`."""
    return server(**options)


class Wire:
    """A way to an address that can be cut, as when the machine behind it is gone."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[str]:
        """Its address."""
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            host, port = self._listening.sockets[0].getsockname()
            yield f"{host}:{port}"
        finally:
            await self.cut()

    async def cut(self) -> None:
        """Nothing passes any more, and nobody answers."""
        if self._listening is not None:
            self._listening.close()
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._to.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        for source, target in ((reader, back), (there, writer)):
            self._open.add(target)
            task = asyncio.create_task(self._pass_on(source, target))
            self._tasks.add(task)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.transport.abort()
        self._open.discard(target)


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet without members."""
    async with fleet(tmp_path) as made:
        yield made


@pytest.fixture
async def owner(made: Fleet) -> Member:
    """A member with the server `one`."""
    owner = await made.start("b", one())
    await until(lambda: bool(owner.peer.links))
    return owner


Two = tuple[Member, Member]


@pytest.fixture
async def two(made: Fleet, owner: Member) -> Two:
    """The ingress, and the owner of the server `one`."""
    return await made.start("a"), owner
