"""ServerService."""

from collections.abc import AsyncGenerator
from functools import partial

from hubbub.v1 import server_pb2 as pb
from hubbubd.core.access import Permission
from hubbubd.core.server import ServerRecord
from hubbubd.rpc import access, convert, pages, requests, watch
from hubbubd.runtime.servers import Servers


class ServerService:
    """The configured servers and their connections."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def add_server(self, request: pb.AddServerRequest) -> pb.AddServerResponse:
        """Adds a server."""
        config = requests.server_config(request.spec)
        access.configure(config.name)
        record = await self._servers.add(config)
        return pb.AddServerResponse(server=_shown(record))

    async def update_server(self, request: pb.UpdateServerRequest) -> pb.UpdateServerResponse:
        """Replaces a server's spec."""
        config = requests.server_config(request.spec)
        access.configure(config.name)
        record = await self._servers.update(config)
        return pb.UpdateServerResponse(server=_shown(record))

    async def remove_server(self, request: pb.RemoveServerRequest) -> pb.RemoveServerResponse:
        """Forgets a server."""
        await self._servers.remove(_named(request.name, Permission.ADMINISTER))
        return pb.RemoveServerResponse()

    async def get_server(self, request: pb.GetServerRequest) -> pb.GetServerResponse:
        """One server."""
        record = self._servers.get(_named(request.name, Permission.BROWSE))
        return pb.GetServerResponse(server=_shown(record))

    async def list_servers(self, request: pb.ListServersRequest) -> pb.ListServersResponse:
        """A page of servers, by name."""
        scope, of = access.browsing(), pb.ListServersRequest()
        known = [record for record in self._servers.all() if scope.has_server(record.name)]
        found, token = pages.page(known, request.page, pages.by_name, _shown, of, scope)
        return pb.ListServersResponse(servers=found, next_page_token=token)

    async def connect_server(self, request: pb.ConnectServerRequest) -> pb.ConnectServerResponse:
        """Wants a server connected."""
        record = await self._servers.connect(_named(request.name, Permission.OPERATE))
        return pb.ConnectServerResponse(server=_shown(record))

    async def disconnect_server(self, request: pb.DisconnectServerRequest) -> pb.DisconnectServerResponse:
        """Wants a server disconnected."""
        record = await self._servers.disconnect(_named(request.name, Permission.OPERATE))
        return pb.DisconnectServerResponse(server=_shown(record))

    async def get_roots(self, request: pb.GetRootsRequest) -> pb.GetRootsResponse:
        """The roots in force."""
        record = self._servers.get(_named(request.name, Permission.OPERATE))
        return pb.GetRootsResponse(roots=convert.roots(record), overridden=record.roots is not None)

    async def set_roots(self, request: pb.SetRootsRequest) -> pb.SetRootsResponse:
        """Sets the roots, and tells the server."""
        name = _named(request.name, Permission.OPERATE)
        record = await self._servers.set_roots(name, requests.roots(request.roots))
        return pb.SetRootsResponse(roots=convert.roots(record), overridden=record.roots is not None)

    def watch_servers(self, request: pb.WatchServersRequest) -> AsyncGenerator[bytes, None]:
        """Snapshot and changes."""
        seen = access.listening()
        chosen = requests.server_filter(request, access.browsing(), seen)
        events = self._servers.watch(chosen, request.resume_token)
        return watch.responses(events, pb.WatchServersResponse, partial(convert.server, seen=seen))


def _shown(record: ServerRecord) -> pb.Server:
    return convert.server(record, access.listening())


def _named(name: str, permission: Permission) -> str:
    return access.use(requests.identifier(name, "name"), permission)
