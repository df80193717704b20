"""`hub.admin`: the hub itself."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from google.protobuf.wrappers_pb2 import StringValue

from hubbub.v1 import admin_pb2
from hubbub_client.link import Link
from hubbub_client.reading import read
from hubbub_client.records import RECORDS, Record, StateCount, StoreStatus
from hubbub_client.tokens import Caller

# grpc.health.v1.HealthCheckResponse.ServingStatus
SERVING = 1

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Versions(Record):
    """What a hub is made of; the revisions of MCP newest first."""

    python: str | None
    mcp: str | None
    grpc: str | None
    revisions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ConfigStatus(Record):
    """Where the settings of a hub come from; `problem` is why not what the files say now."""

    files: tuple[str, ...]
    loaded_at: datetime | None
    problem: str | None
    needs_restart: tuple[str, ...]
    watched: bool


@dataclass(frozen=True, kw_only=True)
class TelemetryStatus(Record):
    """Where a hub sends traces, metrics and logs, if it does."""

    on: bool
    endpoint: str | None


@dataclass(frozen=True, kw_only=True)
class Reload(Record):
    """What reading the configuration again was good for: servers, and settings of the hub, by name."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    settings: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """One thing that was looked at, and what to do about it."""

    about: str
    verdict: Verdict | None
    message: str | None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class HubStatus(Record):
    """The hub in numbers."""

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


# Where the converter looks for the record of a message.
RECORDS.update({kind.__name__: kind for kind in (Versions, ConfigStatus, TelemetryStatus, Finding)})
RECORDS["ConfigChanges"] = Reload
for _noun in ("Server", "PendingRequest", "PendingRequestKind", "Call", "Task"):
    RECORDS[f"{_noun}Count"] = StateCount
RECORDS["GetStatusResponse"] = HubStatus


class Admin:
    """AdminService."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def status(self) -> HubStatus:
        """The hub in numbers."""
        return read(HubStatus, await self._link.call(lambda hub: hub.admin.GetStatus, admin_pb2.GetStatusRequest()))

    async def reload(self) -> Reload:
        """Has the hub take over its configuration as it is now, and says what changed.

        Raises FailedPrecondition (CONFIG_REJECTED) when it is wrong; the hub then goes on as before.
        """
        answer = await self._link.call(lambda hub: hub.admin.ReloadConfig, admin_pb2.ReloadConfigRequest())
        return read(Reload, answer.changes)

    async def check(self) -> list[Finding]:
        """What the hub finds when it looks at its configuration, its directory, and the way to its servers."""
        answer = await self._link.call(lambda hub: hub.admin.CheckHub, admin_pb2.CheckHubRequest())
        return [read(Finding, each) for each in answer.findings]

    async def whoami(self) -> Caller:
        """Who one is to the hub, and what one may do."""
        answer = await self._link.call(lambda hub: hub.admin.GetSelf, admin_pb2.GetSelfRequest())
        return read(Caller, answer.caller)

    async def well(self) -> bool:
        """Whether the hub takes new work, as the standard health service says (grpc.health.v1)."""
        found = await self._link.call(lambda hub: hub.healthy, StringValue())
        return found.value == SERVING
