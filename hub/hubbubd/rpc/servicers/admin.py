"""AdminService: status, store, tokens, audit log, reload."""

import asyncio
import hashlib
import os
import platform
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from typing import BinaryIO, TypeVar

import anyio
from anyio import to_thread

from hubbub.v1 import admin_pb2 as pb
from hubbub.v1 import common_pb2
from hubbub_shared import __version__
from hubbubd.config.servers.server import REVISIONS
from hubbubd.core.access import EVERYTHING, Permission, Principal, Scope
from hubbubd.core.filters import CallFilter, RequestFilter, TaskFilter
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.errors import NotFound, PermissionDenied, ResourceExhausted
from hubbubd.rpc.context import principal
from hubbubd.rpc.messages import api_records, pages, requests, values
from hubbubd.runtime.diagnostics.findings import Finding
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import Token
from hubbubd.runtime.servers import Configuration
from hubbubd.store import NoRoom

E = TypeVar("E", bound=StrEnum)
_Counts = pb.GetStatusResponse

CHUNK_BYTES = 256 * 1024
"""Bytes of a copy in one message, far below the 4 MiB that gRPC clients take by default."""
ALIVE_S = 5.0
"""Seconds between keep-alives to the caller while a backup is being made."""


class AdminService:
    """Implements hubbub.v1.AdminService."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get_status(self, _request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        """Return the hub's state: how many records of each kind are in which state, store, configuration, versions."""
        hub = self._hub
        requests = list(hub.inbox.select(RequestFilter()))
        open_requests = [request for request in requests if request.state is RequestState.OPEN]
        return pb.GetStatusResponse(
            version=__version__,
            pid=os.getpid(),
            started_at=values.timestamp(hub.started_at),
            servers=[
                _Counts.ServerCount(state=api_records.SERVER_STATES[state], count=count)
                for state, count in _count_states(server.connection.state for server in hub.servers.all())
            ],
            pending_requests=[
                _Counts.PendingRequestCount(state=api_records.REQUEST_STATES[state], count=count)
                for state, count in _count_states(request.state for request in requests)
            ],
            calls=[
                _Counts.CallCount(state=api_records.CALL_STATES[state], count=count)
                for state, count in _count_states(call.state for call in hub.calls.select(CallFilter()))
            ],
            tasks=[
                _Counts.TaskCount(status=api_records.TASK_STATUSES[status], count=count)
                for status, count in _count_states(task.status for task in hub.tasks.select(TaskFilter()))
            ],
            watchers=hub.watcher_count(),
            store=api_records.store(await hub.store.stats()),
            loop_tasks=len(asyncio.all_tasks()),
            read_at=values.timestamp(hub.clock.now()),
            versions=_versions(),
            serving=hub.health.is_serving,
            store_problem=hub.health.problem,
            last_commit_at=None if hub.health.committed_at is None else values.timestamp(hub.health.committed_at),
            open_pending_requests=[
                _Counts.PendingRequestKindCount(kind=api_records.REQUEST_KINDS[kind], count=count)
                for kind, count in _count_states(request.kind for request in open_requests)
            ],
            oldest_open_at=values.timestamp(min(r.created_at for r in open_requests)) if open_requests else None,
            config=_render_config(hub.configuration),
            doubted_time=values.duration(hub.ages.doubted_s) if hub.ages.doubted_s else None,
            telemetry=pb.TelemetryStatus(on=bool(hub.telemetry_endpoint), endpoint=hub.telemetry_endpoint),
        )

    async def check_hub(self, _request: pb.CheckHubRequest) -> pb.CheckHubResponse:
        """Run the diagnostics of a live hub."""
        check_running_hub = await to_thread.run_sync(_import_checks)
        findings = await check_running_hub(self._hub, os.environ)
        return pb.CheckHubResponse(findings=map(api_records.finding, findings))

    async def get_store_stats(self, _request: pb.GetStoreStatsRequest) -> pb.GetStoreStatsResponse:
        """Return size and revisions of the store."""
        return pb.GetStoreStatsResponse(store=api_records.store(await self._hub.store.stats()))

    async def compact_store(self, _request: pb.CompactStoreRequest) -> pb.CompactStoreResponse:
        """Run retention and free unused space on disk; return the number deleted, and the store before and after."""
        before, after, deleted = await self._hub.retention.compact()
        compaction = pb.Compaction(deleted=deleted, before=api_records.store(before), after=api_records.store(after))
        return pb.CompactStoreResponse(compaction=compaction)

    async def backup_store(self, _request: pb.BackupStoreRequest) -> AsyncGenerator[bytes, None]:
        """Stream a copy of the store in chunks, and at the end its SHA-256; bookmarks while the copy is being made."""
        copy_task = asyncio.create_task(self._copy_store())
        try:
            while not copy_task.done():
                await asyncio.wait([copy_task], timeout=ALIVE_S)
                if not copy_task.done():
                    yield pb.BackupStoreResponse(bookmark=common_pb2.WatchBookmark()).SerializeToString()
            copy = copy_task.result()
            size, digest = os.fstat(copy.fileno()).st_size, hashlib.sha256()
            while chunk := await to_thread.run_sync(copy.read, CHUNK_BYTES):
                digest.update(chunk)
                yield pb.BackupStoreResponse(size_bytes=size, chunk=chunk).SerializeToString()
            end = pb.BackupEnd(sha256=digest.hexdigest())
            yield pb.BackupStoreResponse(size_bytes=size, end=end).SerializeToString()
        finally:
            # The copy is closed even if the caller has disconnected while it was being made.
            copy_task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([copy_task])
            if not copy_task.cancelled() and copy_task.exception() is None:
                copy_task.result().close()

    async def create_token(self, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
        """Create a token, and return it with its secret.

        A caller that may not name others cannot create one that may: PermissionDenied (NAMING_NOT_ALLOWED).
        """
        caller = principal()
        if request.may_name_others and not caller.may_name_others:
            raise PermissionDenied(
                "a caller that may not name others cannot create a token that may", reason="NAMING_NOT_ALLOWED"
            )
        record, secret = await self._hub.tokens.create(
            requests.token_name(request.name),
            requests.parse_grants(request.grants),
            by=caller.name,
            ttl_s=requests.token_ttl_s(request.ttl),
            may_name_others=request.may_name_others,
            hold_s=requests.token_hold_s(request),
        )
        return pb.CreateTokenResponse(token=api_records.token(record), secret=secret)

    async def list_tokens(self, request: pb.ListTokensRequest) -> pb.ListTokensResponse:
        """Return a page of tokens, newest first: all to an administrator, to others the log-ins that they granted."""
        names, caller = requests.token_names(request.filter), principal()
        tokens = self._hub.tokens.all()
        records = [each for each in tokens if (not names or each.name in names) and _may_end(caller, each)]
        page, token = pages.page_records(
            records,
            request,
            pages.newest_position,
            api_records.token,
            list_filter=request.filter,
            # Only binds page tokens to who may see what: the records are chosen above.
            scope=EVERYTHING
            if caller.may_everywhere(Permission.ADMINISTER)
            else Scope(frozenset(), own_principal=caller.name),
            backwards=pages.is_oldest_first(request),
        )
        return pb.ListTokensResponse(tokens=page, next_page_token=token)

    async def revoke_token(self, request: pb.RevokeTokenRequest) -> pb.RevokeTokenResponse:
        """End a token, or a log-in that the caller has granted. Raises NotFound, also if the caller may not end it."""
        name, caller = requests.identifier(request.name, "name"), principal()
        if not any(each.name == name and _may_end(caller, each) for each in self._hub.tokens.all()):
            raise NotFound("token", name)
        record = await self._hub.tokens.revoke(name)
        return pb.RevokeTokenResponse(token=api_records.token(record))

    async def reload_config(self, _request: pb.ReloadConfigRequest) -> pb.ReloadConfigResponse:
        """Read the configuration again, and return what has changed by it, and what needs a restart."""
        reloaded = await self._hub.configuration.reload()
        changes = pb.ConfigChanges(
            added=reloaded.servers.added,
            changed=reloaded.servers.changed,
            removed=reloaded.servers.removed,
            settings=reloaded.settings,
            needs_restart=reloaded.needs_restart,
        )
        return pb.ReloadConfigResponse(changes=changes)

    async def get_self(self, _request: pb.GetSelfRequest) -> pb.GetSelfResponse:
        """Return the caller's principal."""
        return pb.GetSelfResponse(caller=api_records.principal(principal()))

    async def list_audit_entries(self, request: pb.ListAuditEntriesRequest) -> pb.ListAuditEntriesResponse:
        """Return a page of the audit log, newest first."""
        audit_filter = requests.audit_filter(request.filter)
        entries, token = pages.page_ordered(
            lambda after: self._hub.audit.newest(
                audit_filter, pages.age_position(after), pages.is_oldest_first(request)
            ),
            request,
            pages.newest_position,
            api_records.audit_entry,
            list_filter=request.filter,
            scope=EVERYTHING,
        )
        return pb.ListAuditEntriesResponse(entries=entries, next_page_token=token)

    async def trust_clock(self, _request: pb.TrustClockRequest) -> pb.TrustClockResponse:
        """Let the hub trust its clock again, and count the time that it doubted; return that time."""
        return pb.TrustClockResponse(trusted_time=values.duration(await self._hub.ages.trust_clock()))

    async def _copy_store(self) -> BinaryIO:
        """Return a copy of the store as an open file. Raises ResourceExhausted (NO_ROOM_FOR_BACKUP)."""
        try:
            return await self._hub.store.copy()
        except NoRoom as exc:
            raise ResourceExhausted(str(exc), reason="NO_ROOM_FOR_BACKUP") from None


def _import_checks() -> Callable[[Hub, Mapping[str, str]], Awaitable[list[Finding]]]:
    """Import the diagnostics of a live hub; called in a thread, as an import on the loop stops it."""
    from hubbubd.runtime.diagnostics import checks  # lazy: operators need it, not the start

    return checks.check_running_hub


def _render_config(configuration: Configuration) -> pb.ConfigStatus:
    """Return which configuration the hub runs with: files, time and problem of the last reload."""
    state = configuration.state
    return pb.ConfigStatus(
        files=map(str, state.files),
        loaded_at=values.timestamp(state.loaded_at),
        problem=state.problem,
        needs_restart=state.needs_restart,
        watched=configuration.is_watching_files,
    )


@cache
def _versions() -> pb.Versions:
    """Return the versions of what the hub is built on, and the revisions of MCP that it speaks."""
    return pb.Versions(
        python=platform.python_version(),
        mcp=version("mcp"),
        grpc=version("grpcio"),
        revisions=sorted(REVISIONS, reverse=True),
    )


def _count_states(states: Iterable[E]) -> list[tuple[E, int]]:
    """Return each state with how often it occurs, in the order of the states."""
    return sorted(Counter(states).items())


def _may_end(caller: Principal, token: Token) -> bool:
    """Return whether a caller may know of a token and end it: an administrator, or the granter of a log-in."""
    return caller.may_everywhere(Permission.ADMINISTER) or (
        token.login is not None and token.login.granted_by == caller.name
    )
