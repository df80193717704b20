"""`hub.servers`: the configured MCP servers and the hub's connection to each."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any, Literal

from hubbub.v1 import common_pb2, server_pb2
from hubbub_client import events, payload
from hubbub_client.events import WatchEvent
from hubbub_client.link import Link, pages
from hubbub_client.payload import as_list
from hubbub_client.reading import read, result
from hubbub_client.records import Server
from hubbub_client.watch import follow

Roots = Sequence[Mapping[str, Any]] | Literal["ask"]


class Servers:
    """ServerService. Every method raises HubbubError; a server that does not exist is NotFound."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def list(self, limit: int | None = None) -> Sequence[Server]:
        """All servers, by name."""

        async def page(which: common_pb2.Page) -> tuple[Sequence[Server], str]:
            request = server_pb2.ListServersRequest(page=which)
            answer = await self._link.call(lambda hub: hub.servers.ListServers, request)
            return [read(Server, each) for each in answer.servers], answer.next_page_token

        return await pages(page, limit)

    async def get(self, name: str) -> Server:
        """One server."""
        answer = await self._link.call(lambda hub: hub.servers.GetServer, server_pb2.GetServerRequest(name=name))
        return read(Server, answer.server)

    async def add(self, spec: server_pb2.ServerSpec) -> Server:
        """Adds a server and starts connecting to it."""
        answer = await self._link.call(lambda hub: hub.servers.AddServer, server_pb2.AddServerRequest(spec=spec))
        return read(Server, answer.server)

    async def update(self, spec: server_pb2.ServerSpec) -> Server:
        """Replaces the spec of a server that was added over the API, and reconnects."""
        request = server_pb2.UpdateServerRequest(spec=spec)
        answer = await self._link.call(lambda hub: hub.servers.UpdateServer, request)
        return read(Server, answer.server)

    async def remove(self, name: str) -> None:
        """Disconnects and forgets a server that was added over the API."""
        await self._link.call(lambda hub: hub.servers.RemoveServer, server_pb2.RemoveServerRequest(name=name))

    async def connect(self, name: str) -> Server:
        """Wants the server connected; returns at once."""
        request = server_pb2.ConnectServerRequest(name=name)
        answer = await self._link.call(lambda hub: hub.servers.ConnectServer, request)
        return read(Server, answer.server)

    async def disconnect(self, name: str) -> Server:
        """Wants the server disconnected; its calls fail and its receiver tasks end."""
        request = server_pb2.DisconnectServerRequest(name=name)
        answer = await self._link.call(lambda hub: hub.servers.DisconnectServer, request)
        return read(Server, answer.server)

    async def roots(self, name: str) -> Roots:
        """What the hub tells the server when it asks for roots: a list of MCP roots, or `ask`."""
        answer = await self._link.call(lambda hub: hub.servers.GetRoots, server_pb2.GetRootsRequest(name=name))
        return _roots(answer.roots)

    async def set_roots(self, name: str, roots: Roots | None) -> Roots:
        """Sets the roots and tells the server; None goes back to its configuration. The roots now in force."""
        given = "" if roots is None else roots if isinstance(roots, str) else payload.dumps(list(roots)).decode()
        request = server_pb2.SetRootsRequest(name=name, roots=given)
        return _roots((await self._link.call(lambda hub: hub.servers.SetRoots, request)).roots)

    def watch(
        self, names: Collection[str] = (), *, resume_token: str | None = None
    ) -> AsyncGenerator[WatchEvent[Server], None]:
        """Snapshot and changes of servers (of all, without names)."""
        return follow(
            self._link,
            lambda hub: hub.servers.WatchServers,
            lambda token: server_pb2.WatchServersRequest(names=names, resume_token=token),
            lambda step: events.read(Server, step),
            resume_token,
        )


def _roots(text: str) -> Roots:
    return "ask" if text == "ask" else as_list(result(text.encode()))
