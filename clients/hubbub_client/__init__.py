"""The Hubbub client library.

async with hubbub_client.connect() as hub:
    result = await hub.call_tool("time", "get_current_time", {"timezone": "UTC"})
    async for event in hub.inbox.watch(states=["open"]):
        ...
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub_client.data.agent_questions import AgentQuestion, FileChange
    from hubbub_client.data.approvals import ApprovalRequest
    from hubbub_client.data.catalog import CatalogEntry, CatalogList
    from hubbub_client.data.hosts import ConnectedHost, HostRequest
    from hubbub_client.data.params import FormParams, PageParams, SamplingParams
    from hubbub_client.data.records import (
        Approval,
        Call,
        CallApproval,
        CallLog,
        CallOrigin,
        Claim,
        Fault,
        PendingRequest,
        Progress,
        QueueCounts,
        ResourceUpdate,
        Server,
        ServerEvent,
        Task,
    )
    from hubbub_client.data.results import ToolResult
    from hubbub_client.data.specs import ConfiguredServer, RevisionConflict, ServerSpec
    from hubbub_client.data.watch_events import (
        Bookmark,
        Logged,
        Progressed,
        Removed,
        Reset,
        Synced,
        Upsert,
        WatchEvent,
    )
    from hubbub_client.errors import (
        Aborted,
        AlreadyExists,
        Cancelled,
        ConnectionLost,
        DeadlineExceeded,
        FailedPrecondition,
        HubbubError,
        InvalidArgument,
        NotFound,
        PermissionDenied,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        UpstreamError,
    )
    from hubbub_client.hub import Hub, connect
    from hubbub_client.options import CallCallbacks, CallOptions
    from hubbub_client.services.admin import Finding, HubStatus, Reload
    from hubbub_client.services.approvals import (
        ApprovalCheck,
        ApprovalReplay,
        ApprovalRule,
        ApprovalRules,
        RememberedApproval,
        ReplayedCalls,
    )
    from hubbub_client.services.audit import AuditEntry
    from hubbub_client.services.calls import CallHandle
    from hubbub_client.services.fleet import FleetMember, FleetStatus, Moved, Rotation, UnownedServer
    from hubbub_client.services.hosts import LoginCode
    from hubbub_client.services.store import Backup, Compaction, StoreStatus
    from hubbub_client.services.tokens import Caller, Grant, NewToken, Token, TokenLogin

__all__ = [
    "Aborted",
    "AgentQuestion",
    "AlreadyExists",
    "Approval",
    "ApprovalCheck",
    "ApprovalReplay",
    "ApprovalRequest",
    "ApprovalRule",
    "ApprovalRules",
    "AuditEntry",
    "Backup",
    "Bookmark",
    "Call",
    "CallApproval",
    "CallCallbacks",
    "CallHandle",
    "CallLog",
    "CallOptions",
    "CallOrigin",
    "Caller",
    "Cancelled",
    "CatalogEntry",
    "CatalogList",
    "Claim",
    "Compaction",
    "ConfiguredServer",
    "ConnectedHost",
    "ConnectionLost",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Fault",
    "FileChange",
    "Finding",
    "FleetMember",
    "FleetStatus",
    "FormParams",
    "Grant",
    "HostRequest",
    "Hub",
    "HubStatus",
    "HubbubError",
    "InvalidArgument",
    "Logged",
    "LoginCode",
    "Moved",
    "NewToken",
    "NotFound",
    "PageParams",
    "PendingRequest",
    "PermissionDenied",
    "Progress",
    "Progressed",
    "QueueCounts",
    "Reload",
    "RememberedApproval",
    "Removed",
    "ReplayedCalls",
    "Reset",
    "ResourceExhausted",
    "ResourceUpdate",
    "RevisionConflict",
    "Rotation",
    "SamplingParams",
    "Server",
    "ServerEvent",
    "ServerSpec",
    "StoreStatus",
    "Synced",
    "Task",
    "Token",
    "TokenLogin",
    "ToolResult",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "UnownedServer",
    "Upsert",
    "UpstreamError",
    "WatchEvent",
    "connect",
]

_NAMES = {
    "services.admin": ("Finding", "HubStatus", "Reload"),
    "services.approvals": (
        "ApprovalCheck",
        "ApprovalReplay",
        "ApprovalRule",
        "ApprovalRules",
        "RememberedApproval",
        "ReplayedCalls",
    ),
    "services.audit": ("AuditEntry",),
    "services.calls": ("CallHandle",),
    "errors": (
        "Aborted",
        "AlreadyExists",
        "Cancelled",
        "ConnectionLost",
        "DeadlineExceeded",
        "FailedPrecondition",
        "HubbubError",
        "InvalidArgument",
        "NotFound",
        "PermissionDenied",
        "ResourceExhausted",
        "Unauthenticated",
        "Unavailable",
        "Unimplemented",
        "UpstreamError",
    ),
    "services.fleet": ("FleetMember", "FleetStatus", "Moved", "Rotation", "UnownedServer"),
    "data.hosts": ("ConnectedHost", "HostRequest"),
    "hub": ("Hub", "connect"),
    "options": ("CallCallbacks", "CallOptions"),
    "data.agent_questions": ("AgentQuestion", "FileChange"),
    "data.approvals": ("ApprovalRequest",),
    "data.catalog": ("CatalogEntry", "CatalogList"),
    "data.params": ("FormParams", "PageParams", "SamplingParams"),
    "data.records": (
        "Approval",
        "Call",
        "CallApproval",
        "CallLog",
        "CallOrigin",
        "Claim",
        "Fault",
        "PendingRequest",
        "Progress",
        "QueueCounts",
        "ResourceUpdate",
        "Server",
        "ServerEvent",
        "Task",
    ),
    "data.results": ("ToolResult",),
    "data.specs": ("ConfiguredServer", "RevisionConflict", "ServerSpec"),
    "services.hosts": ("LoginCode",),
    "services.store": ("Backup", "Compaction", "StoreStatus"),
    "services.tokens": ("Caller", "Grant", "NewToken", "Token", "TokenLogin"),
    "data.watch_events": ("Bookmark", "Logged", "Progressed", "Removed", "Reset", "Synced", "Upsert", "WatchEvent"),
}
"""Each module with its public names."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names}

# A module is imported with the first use of one of its names: gRPC takes longer than most programs that use only a
# part of the library. Type checkers see the imports above instead.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return a module, or a public name, which is imported now. Raises AttributeError."""
        if name in _NAMES:  # `hub`, `errors`, `options`
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        """Return all names, with those that are not imported yet."""
        return sorted({*globals(), *_NAMES, *__all__})
