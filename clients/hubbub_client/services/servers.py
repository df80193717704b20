"""`hub.servers`: the configured MCP servers and the hub's connection to each."""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace

from google.protobuf.field_mask_pb2 import FieldMask

from hubbub.v1 import server_pb2
from hubbub_client.data import specs, watch_events
from hubbub_client.data.conversion import read
from hubbub_client.data.records import Server
from hubbub_client.data.specs import ConfiguredServer, Roots, ServerSpec
from hubbub_client.data.watch_events import WatchEvent
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService
from hubbub_client.watch import follow_watch


class Servers(HubService):
    """ServerService. Every method raises HubbubError; NotFound if the server does not exist."""

    async def list(self, limit: int | None = None) -> Sequence[Server]:
        """Return all servers, sorted by name."""

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[Server], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            request = server_pb2.ListServersRequest(**page_fields)
            response = await self._connection.call(lambda hub: hub.servers.ListServers, request)
            return [read(Server, each) for each in response.servers], response.next_page_token

        return await fetch_pages(fetch_page, limit)

    async def get(self, name: str) -> ConfiguredServer:
        """Return one server, with its `spec` if the caller may see it; the hub withholds secrets in the spec."""
        response = await self._connection.call(
            lambda hub: hub.servers.GetServer, server_pb2.GetServerRequest(name=name)
        )
        server = read(ConfiguredServer, response.server)
        if not response.HasField("spec"):
            return server
        return replace(server, spec=specs.from_message(response.spec, response.withheld))

    async def add(self, spec: ServerSpec) -> Server:
        """Add a server, begin to connect to it, and return it. Raises ValueError for a spec that cannot be sent."""
        request = server_pb2.AddServerRequest(spec=specs.to_message(spec))
        response = await self._connection.call(lambda hub: hub.servers.AddServer, request)
        return read(Server, response.server)

    async def update(
        self, spec: ServerSpec, *, only: Collection[str] | None = None, revision: int | None = None
    ) -> Server:
        """Change a server that was added over the API, reconnect if needed, and return it.

        `only` names the options to take from the spec (None sets the default); without it, all are taken. With the
        `revision` that was read, raises RevisionConflict if the server has changed since. Raises ValueError for a spec
        that cannot be sent.
        """
        mask = None if only is None else FieldMask(paths=specs.field_paths(*only))
        message = specs.to_message(spec)
        request = server_pb2.UpdateServerRequest(spec=message, update_mask=mask, expected_revision=revision)
        with specs.raise_conflicts():
            response = await self._connection.call(lambda hub: hub.servers.UpdateServer, request)
        return read(Server, response.server)

    async def remove(self, name: str, *, revision: int | None = None) -> None:
        """Disconnect and remove a server that was added over the API; `revision` as in `update`."""
        request = server_pb2.RemoveServerRequest(name=name, expected_revision=revision)
        with specs.raise_conflicts():
            await self._connection.call(lambda hub: hub.servers.RemoveServer, request)

    async def connect(self, name: str) -> Server:
        """Set the desired state of a server to connected, and return the server at once."""
        request = server_pb2.ConnectServerRequest(name=name)
        response = await self._connection.call(lambda hub: hub.servers.ConnectServer, request)
        return read(Server, response.server)

    async def disconnect(self, name: str) -> Server:
        """Set the desired state of a server to disconnected, and return it; its calls and receiver tasks end."""
        request = server_pb2.DisconnectServerRequest(name=name)
        response = await self._connection.call(lambda hub: hub.servers.DisconnectServer, request)
        return read(Server, response.server)

    async def log_out(self, name: str) -> Server:
        """Forget the OAuth tokens of a server and the client that the hub registered there, and return the server.

        A server whose desired state is connected is connected again; then a person is asked to let the hub in.
        """
        request = server_pb2.LogOutServerRequest(name=name)
        response = await self._connection.call(lambda hub: hub.servers.LogOutServer, request)
        return read(Server, response.server)

    async def roots(self, name: str) -> Roots:
        """Return the roots that the hub gives the server: a list of MCP roots, or `ask` for a person."""
        response = await self._connection.call(lambda hub: hub.servers.GetRoots, server_pb2.GetRootsRequest(name=name))
        return specs.read_roots(response.roots)

    async def set_roots(self, name: str, roots: Roots | None, *, revision: int | None = None) -> Roots:
        """Set a server's roots (None: those of its configuration), notify the server, and return its roots.

        `revision` as in `update`.
        """
        message = None if roots is None else specs.roots_message(roots)
        request = server_pb2.SetRootsRequest(name=name, roots=message, expected_revision=revision)
        with specs.raise_conflicts():
            return specs.read_roots((await self._connection.call(lambda hub: hub.servers.SetRoots, request)).roots)

    def watch(
        self, names: Collection[str] = (), *, resume_token: str | None = None
    ) -> AsyncGenerator[WatchEvent[Server], None]:
        """Watch the named servers, or all: a snapshot, then changes."""
        condition = server_pb2.ServerFilter(names=names)
        return follow_watch(
            self._connection,
            lambda hub: hub.servers.WatchServers,
            server_pb2.WatchServersRequest(filter=condition),
            lambda step: watch_events.read(Server, step),
            resume_token,
        )
