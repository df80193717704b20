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
from hubbubd.runtime.servers import Servers, Stale


class ServerService:
    """Implements hubbub.v1.ServerService."""

    def __init__(self, servers: Servers, files: Callable[[], Sequence[Path]]) -> None:
        """`files` returns those of the configuration, for advice on what to change in them."""
        self._servers = servers
        self._files = files

    @contextmanager
    def _advised(self) -> Generator[None]:
        """Name the file, in a refusal that has what would allow it (`toml`)."""
        try:
            yield
        except PermissionDenied as exc:
            if "toml" in exc.metadata and (file := next(iter(self._files()), None)) is not None:
                exc.metadata["file"] = str(file)
            raise

    async def add_server(self, request: pb.AddServerRequest) -> pb.AddServerResponse:
        config = specs.config_of(request.spec)
        access.configure(config.name)
        with specs.name_spec_fields(), self._advised():
            record = await self._servers.add(config, trusted=access.is_owner())
        return pb.AddServerResponse(server=_shown(record))

    async def update_server(self, request: pb.UpdateServerRequest) -> pb.UpdateServerResponse:
        """Change a server's spec, whole or by update mask; `expected_revision` guards it (optimistic concurrency)."""
        name = requests.identifier(request.spec.name, "spec.name")
        access.configure(name)
        mask = request.update_mask if request.HasField("update_mask") else None
        if mask is None:
            specs.check_spec(request.spec)
        owner = access.is_owner()
        with _told(), specs.name_spec_fields(), self._advised():
            record = await self._servers.change(
                name,
                lambda before: specs.apply_update(before, request.spec, mask),
                expected=_expected(request),
                # What the owner changes only in part may have been somebody else's.
                trusted=lambda before: owner and (before or mask is None),
            )
        return pb.UpdateServerResponse(server=_shown(record))

    async def remove_server(self, request: pb.RemoveServerRequest) -> pb.RemoveServerResponse:
        name = _named(request.name, Permission.ADMINISTER)
        with _told():
            await self._servers.remove(name, expected=_expected(request))
        return pb.RemoveServerResponse()

    async def get_server(self, request: pb.GetServerRequest) -> pb.GetServerResponse:
        """Return a server; with its spec, secrets withheld, to those who may administer it."""
        record = self._servers.get(_named(request.name, Permission.BROWSE))
        if not principal().may(Permission.ADMINISTER, record.name):
            return pb.GetServerResponse(server=_shown(record))
        spec, withheld = specs.render_spec(record.config)
        return pb.GetServerResponse(server=_shown(record), spec=spec, withheld=withheld)

    async def list_servers(self, request: pb.ListServersRequest) -> pb.ListServersResponse:
        """Return a page of servers, by name."""
        scope, backwards = access.browsing(), pages.is_backwards(request, common_pb2.ORDER_DESCENDING)
        chosen = requests.server_filter(request.filter, scope, access.listening())

        def rest(after: pages.Position | None) -> Iterator[ServerRecord]:
            """Yield the servers beyond a position; each record is made when its turn comes."""
            for name in sorted(self._servers.names(), reverse=backwards):
                if after is None or (name < after[1] if backwards else name > after[1]):
                    record = self._servers.get(name)
                    if chosen.matches(record):
                        yield record

        found, token = pages.page_of(rest, request, pages.by_name, _shown, of=request.filter, scope=scope)
        return pb.ListServersResponse(servers=found, next_page_token=token)

    async def connect_server(self, request: pb.ConnectServerRequest) -> pb.ConnectServerResponse:
        """Want a server connected; does not wait for the connection."""
        record = await self._servers.connect(_named(request.name, Permission.OPERATE))
        return pb.ConnectServerResponse(server=_shown(record))

    async def disconnect_server(self, request: pb.DisconnectServerRequest) -> pb.DisconnectServerResponse:
        record = await self._servers.disconnect(_named(request.name, Permission.OPERATE))
        return pb.DisconnectServerResponse(server=_shown(record))

    async def log_out_server(self, request: pb.LogOutServerRequest) -> pb.LogOutServerResponse:
        """Forget a server's OAuth tokens and registered client."""
        record = await self._servers.log_out(_named(request.name, Permission.OPERATE))
        return pb.LogOutServerResponse(server=_shown(record))

    async def get_roots(self, request: pb.GetRootsRequest) -> pb.GetRootsResponse:
        """Return the roots in force."""
        record = self._servers.get(_named(request.name, Permission.OPERATE))
        return pb.GetRootsResponse(
            roots=specs.render_roots(record.effective.roots),
            overridden=record.roots is not None,
            revision=record.revision,
        )

    async def set_roots(self, request: pb.SetRootsRequest) -> pb.SetRootsResponse:
        """Override the roots, and notify the server."""
        name = _named(request.name, Permission.OPERATE)
        roots = specs.parse_roots(request.roots, "roots") if request.HasField("roots") else None
        with _told():
            record = await self._servers.set_roots(name, roots, expected=_expected(request))
        return pb.SetRootsResponse(
            roots=specs.render_roots(record.effective.roots),
            overridden=record.roots is not None,
            revision=record.revision,
        )

    def watch_servers(self, request: pb.WatchServersRequest) -> AsyncGenerator[bytes, None]:
        """Stream servers: snapshot, then changes."""
        seen = access.listening()
        chosen = requests.server_filter(request.filter, access.browsing(), seen)
        watched = self._servers.watch(chosen, request.resume_token)
        return watch.responses(
            watched, pb.WatchServersResponse, partial(api_records.server, seen=seen), batches=request.allow_batches
        )


def _shown(record: ServerRecord) -> pb.Server:
    return api_records.server(record, access.listening())


def _expected(request: pb.UpdateServerRequest | pb.RemoveServerRequest | pb.SetRootsRequest) -> int | None:
    return request.expected_revision if request.HasField("expected_revision") else None


@contextmanager
def _told() -> Generator[None]:
    """Add the current state to a refusal for a stale revision, as far as the caller may see it."""
    try:
        yield
    except Stale as stale:
        now = pb.RevisionConflict(revision=stale.now.revision, roots=specs.render_roots(stale.now.effective.roots))
        if principal().may(Permission.ADMINISTER, stale.now.name):
            spec, withheld = specs.render_spec(stale.now.config)
            now.spec.CopyFrom(spec)
            now.withheld.extend(withheld)
        raise Detailed(stale, now) from None


def _named(name: str, permission: Permission) -> str:
    return access.use(requests.identifier(name, "name"), permission)
