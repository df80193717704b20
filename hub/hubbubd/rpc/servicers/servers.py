"""ServerService: the configured servers."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hubbub.v1 import common_pb2
from hubbub.v1 import server_pb2 as pb
from hubbubd.core.access import Permission
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import PermissionDenied
from hubbubd.rpc import specs
from hubbubd.rpc.auth import access
from hubbubd.rpc.context import principal
from hubbubd.rpc.messages import api_records, pages, requests, watch
from hubbubd.rpc.status import Detailed
from hubbubd.runtime.servers import Servers, StaleRevision


class ServerService:
    """Implements hubbub.v1.ServerService."""

    def __init__(self, servers: Servers, files: Callable[[], Sequence[Path]]) -> None:
        """`files` returns those of the configuration, for advice on what to change in them."""
        self._servers = servers
        self._files = files

    @contextmanager
    def _name_configuration_file(self) -> Generator[None]:
        """Add the configuration file's name to a refusal that the block raises with a line for it (`toml`)."""
        try:
            yield
        except PermissionDenied as exc:
            if "toml" in exc.metadata and (file := next(iter(self._files()), None)) is not None:
                exc.metadata["file"] = str(file)
            raise

    async def add_server(self, request: pb.AddServerRequest) -> pb.AddServerResponse:
        """Add a server by its spec, and return it."""
        config = specs.config_of(request.spec)
        access.check_administration(config.name)
        with specs.name_spec_fields(), self._name_configuration_file():
            record = await self._servers.add(config, trusted=access.is_owner())
        return pb.AddServerResponse(server=_render_server(record))

    async def update_server(self, request: pb.UpdateServerRequest) -> pb.UpdateServerResponse:
        """Change a server's spec, whole or by update mask; refused if `expected_revision` is given and stale."""
        name = requests.identifier(request.spec.name, "spec.name")
        access.check_administration(name)
        mask = request.update_mask if request.HasField("update_mask") else None
        if mask is None:
            specs.check_spec(request.spec)
        owner = access.is_owner()
        with _attach_current_state(), specs.name_spec_fields(), self._name_configuration_file():
            record = await self._servers.change(
                name,
                lambda before: specs.apply_update(before, request.spec, mask),
                expected=_expected_revision(request),
                # What the owner changes only in part may have been somebody else's.
                decide_trust=lambda before: owner and (before or mask is None),
            )
        return pb.UpdateServerResponse(server=_render_server(record))

    async def remove_server(self, request: pb.RemoveServerRequest) -> pb.RemoveServerResponse:
        """Disconnect and remove a server that was added over the API."""
        name = _authorized_name(request.name, Permission.ADMINISTER)
        with _attach_current_state():
            await self._servers.remove(name, expected=_expected_revision(request))
        return pb.RemoveServerResponse()

    async def get_server(self, request: pb.GetServerRequest) -> pb.GetServerResponse:
        """Return a server. Those who may administer it also get its spec, with placeholders for secrets."""
        record = self._servers.get(_authorized_name(request.name, Permission.BROWSE))
        if not principal().may(Permission.ADMINISTER, record.name):
            return pb.GetServerResponse(server=_render_server(record))
        spec, withheld = specs.render_spec(record.config)
        return pb.GetServerResponse(server=_render_server(record), spec=spec, withheld=withheld)

    async def list_servers(self, request: pb.ListServersRequest) -> pb.ListServersResponse:
        """Return a page of servers, by name."""
        scope, backwards = access.browsable_servers(), pages.is_backwards(request, common_pb2.ORDER_DESCENDING)
        server_filter = requests.server_filter(request.filter, scope, access.observable_servers())

        def servers_after(after: pages.Position | None) -> Iterator[ServerRecord]:
            """Yield the servers beyond a position; each record is made when its turn comes."""
            for name in sorted(self._servers.names(), reverse=backwards):
                if after is None or (name < after[1] if backwards else name > after[1]):
                    record = self._servers.get(name)
                    if server_filter.matches(record):
                        yield record

        servers, token = pages.page_ordered(
            servers_after, request, pages.name_position, _render_server, list_filter=request.filter, scope=scope
        )
        return pb.ListServersResponse(servers=servers, next_page_token=token)

    async def connect_server(self, request: pb.ConnectServerRequest) -> pb.ConnectServerResponse:
        """Note that a server is to be connected, and return it; does not wait for the connection."""
        record = await self._servers.connect(_authorized_name(request.name, Permission.OPERATE))
        return pb.ConnectServerResponse(server=_render_server(record))

    async def disconnect_server(self, request: pb.DisconnectServerRequest) -> pb.DisconnectServerResponse:
        """Note that a server is to be disconnected, which ends its calls; return the server."""
        record = await self._servers.disconnect(_authorized_name(request.name, Permission.OPERATE))
        return pb.DisconnectServerResponse(server=_render_server(record))

    async def log_out_server(self, request: pb.LogOutServerRequest) -> pb.LogOutServerResponse:
        """Forget a server's OAuth tokens and registered client."""
        record = await self._servers.log_out(_authorized_name(request.name, Permission.OPERATE))
        return pb.LogOutServerResponse(server=_render_server(record))

    async def get_roots(self, request: pb.GetRootsRequest) -> pb.GetRootsResponse:
        """Return the roots in force."""
        record = self._servers.get(_authorized_name(request.name, Permission.OPERATE))
        return pb.GetRootsResponse(
            roots=specs.render_roots(record.effective_config.roots),
            overridden=record.roots is not None,
            revision=record.revision,
        )

    async def set_roots(self, request: pb.SetRootsRequest) -> pb.SetRootsResponse:
        """Set the roots of a server, or go back to those of its configuration; notify it, return the roots in force."""
        name = _authorized_name(request.name, Permission.OPERATE)
        roots = specs.parse_roots(request.roots, "roots") if request.HasField("roots") else None
        with _attach_current_state():
            record = await self._servers.set_roots(name, roots, expected=_expected_revision(request))
        return pb.SetRootsResponse(
            roots=specs.render_roots(record.effective_config.roots),
            overridden=record.roots is not None,
            revision=record.revision,
        )

    def watch_servers(self, request: pb.WatchServersRequest) -> AsyncGenerator[bytes, None]:
        """Stream servers: snapshot, then changes."""
        seen = access.observable_servers()
        chosen = requests.server_filter(request.filter, access.browsable_servers(), seen)
        watched = self._servers.watch(chosen, request.resume_token)
        return watch.serialize_events(
            watched, pb.WatchServersResponse, partial(api_records.server, seen=seen), batches=request.allow_batches
        )


def _render_server(record: ServerRecord) -> pb.Server:
    """Return a server as a message, as far as the caller may see it."""
    return api_records.server(record, access.observable_servers())


def _expected_revision(request: pb.UpdateServerRequest | pb.RemoveServerRequest | pb.SetRootsRequest) -> int | None:
    """Return the revision that the caller has seen; None if the change is to be made in any case."""
    return request.expected_revision if request.HasField("expected_revision") else None


@contextmanager
def _attach_current_state() -> Generator[None]:
    """Add the current state to a refusal for a stale revision, as far as the caller may see it."""
    try:
        yield
    except StaleRevision as stale:
        now = pb.RevisionConflict(
            revision=stale.now.revision, roots=specs.render_roots(stale.now.effective_config.roots)
        )
        if principal().may(Permission.ADMINISTER, stale.now.name):
            spec, withheld = specs.render_spec(stale.now.config)
            now.spec.CopyFrom(spec)
            now.withheld.extend(withheld)
        raise Detailed(stale, now) from None


def _authorized_name(name: str, permission: Permission) -> str:
    """Return the server's name if the caller has this permission on it.

    Raises InvalidArgument, NotFound, PermissionDenied.
    """
    return access.check_server(requests.identifier(name, "name"), permission)
