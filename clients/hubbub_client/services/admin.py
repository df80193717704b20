"""`hub.admin`: status, reload and checks of the hub."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from google.protobuf.wrappers_pb2 import StringValue

from hubbub.v1 import admin_pb2
from hubbub_client.data.conversion import read
from hubbub_client.data.records import RECORDS, Record, StateCount, StoreStatus
from hubbub_client.services.service import HubService
from hubbub_client.services.tokens import Caller

# grpc.health.v1.HealthCheckResponse.ServingStatus
SERVING = 1

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Versions(Record):
    """Versions of the software that a hub runs on, and the revisions of MCP that it speaks, newest first."""

    python: str | None
    mcp: str | None
    grpc: str | None
    revisions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ConfigStatus(Record):
    """Sources of a hub's settings; `problem` is set if the files have changed and cannot be used."""

    files: tuple[str, ...]
    loaded_at: datetime | None
    problem: str | None
    needs_restart: tuple[str, ...]
    watched: bool


@dataclass(frozen=True, kw_only=True)
class TelemetryStatus(Record):
    """Whether a hub exports traces, metrics and logs, and where to."""

    on: bool
    endpoint: str | None


@dataclass(frozen=True, kw_only=True)
class Reload(Record):
    """Changes that a reload of the configuration made: names of servers and of settings of the hub."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    settings: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """Result of one check of the hub, with advice if something is wrong."""

    about: str
    verdict: Verdict | None
    message: str | None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class HubStatus(Record):
    """State of the hub and its parts."""

    version: str | None
    pid: int
    started_at: datetime | None
    servers: tuple[StateCount, ...]
    requests: tuple[StateCount, ...]
    calls: tuple[StateCount, ...]
    tasks: tuple[StateCount, ...]
    watchers: int
    store: StoreStatus | None
    loop_tasks: int
    now: datetime | None
    versions: Versions | None
    serving: bool
    store_problem: str | None
    last_commit_at: datetime | None
    open_requests: tuple[StateCount, ...]
    oldest_open_at: datetime | None
    config: ConfigStatus | None
    telemetry: TelemetryStatus | None
    doubted_ms: int | None


# Registered here, so that the converter finds the record of each message.
RECORDS.update({kind.__name__: kind for kind in (Versions, ConfigStatus, TelemetryStatus, Finding)})
RECORDS["ConfigChanges"] = Reload
for _noun in ("Server", "PendingRequest", "PendingRequestKind", "Call", "Task"):
    RECORDS[f"{_noun}Count"] = StateCount
RECORDS["GetStatusResponse"] = HubStatus


class Admin(HubService):
    """AdminService. Every method raises HubbubError."""

    async def status(self) -> HubStatus:
        """Return the state of the hub and its parts."""
        return read(
            HubStatus, await self._connection.call(lambda hub: hub.admin.GetStatus, admin_pb2.GetStatusRequest())
        )

    async def reload(self) -> Reload:
        """Make the hub read its configuration again, and return the changes.

        Raises FailedPrecondition (CONFIG_REJECTED) if the configuration is wrong; then nothing changes.
        """
        response = await self._connection.call(lambda hub: hub.admin.ReloadConfig, admin_pb2.ReloadConfigRequest())
        return read(Reload, response.changes)

    async def check(self) -> list[Finding]:
        """Make the hub check its configuration, its data directory and its servers, and return the findings."""
        response = await self._connection.call(lambda hub: hub.admin.CheckHub, admin_pb2.CheckHubRequest())
        return [read(Finding, each) for each in response.findings]

    async def whoami(self) -> Caller:
        """Return the caller's principal and grants."""
        response = await self._connection.call(lambda hub: hub.admin.GetSelf, admin_pb2.GetSelfRequest())
        return read(Caller, response.caller)

    async def well(self) -> bool:
        """Return whether the hub takes new work, from the standard health service (grpc.health.v1)."""
        response = await self._connection.call(lambda hub: hub.healthy, StringValue())
        return response.value == SERVING
