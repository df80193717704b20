"""The permission that each RPC needs: one table, to which a test holds docs/access.md.

The gate asks `RpcRule.admits` before a request is read. Whether the server or record that the request names is in the
caller's scope, the servicer checks (`access.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from hubbubd.core.access import ROLES, Permission, Principal, Role
from hubbubd.core.audit import AuditKind
from hubbubd.errors import PermissionDenied


class RpcReach(Enum):
    """The servers or records for which the caller needs the permission; `{}` stands for the rule's permissions."""

    OPEN = "nothing, not even a credential"
    KNOWN = "any credential"
    OWN_LOGINS = "`administer` for all servers; else one's own log-ins"
    HUB = "{} for all servers"
    SERVER = "{} for the server"
    ANY_SERVER = "{} for any server"
    VISIBLE = "{}; shows what is of servers for which one has it"
    OWN = "{} for its server, or `call` where it is one's own"
    VISIBLE_OR_OWN = "{}, or `call`; shows what is of servers for which one has it, and one's own"


class ExecutingMember(Enum):
    """The member of a fleet that carries an RPC out (`rpc/fleet/`). A hub without a fleet is the only member."""

    RECEIVER = "the one that it reaches: what it needs is in the store, which all share"
    OWNER = "the one that has the server"
    OWNERS = "all that have servers, and the one that it reaches merges what they say"


_OPEN_TO_CALLERS = frozenset({RpcReach.OWN, RpcReach.VISIBLE_OR_OWN})
"""For these, the permission to call is enough: callers may see and change the records of their own calls."""


@dataclass(frozen=True, slots=True)
class RpcRule:
    """What an RPC needs: one of the permissions `any_of`, for the servers or records that `reach` names."""

    reach: RpcReach
    any_of: tuple[Permission, ...] = ()
    audit: AuditKind | None = None
    executed_by: ExecutingMember = ExecutingMember.RECEIVER

    def admits(self, principal: Principal) -> bool:
        """Return whether a principal may use the RPC for anything at all."""
        match self.reach:
            case RpcReach.OPEN | RpcReach.KNOWN | RpcReach.OWN_LOGINS:
                return True
            case RpcReach.HUB:
                return all(map(principal.may_everywhere, self.any_of))
            case _:
                sufficient = (*self.any_of, Permission.CALL) if self.reach in _OPEN_TO_CALLERS else self.any_of
                return any(map(principal.servers, sufficient))

    def __str__(self) -> str:
        """Return the rule as text for the documentation."""
        return self.reach.value.format(" or ".join(f"`{permission}`" for permission in self.any_of))

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that may use the RPC when granted on all servers; none where no role is needed."""
        if self.reach in (RpcReach.OPEN, RpcReach.KNOWN, RpcReach.OWN_LOGINS):
            return ()
        sufficient = {*self.any_of, Permission.CALL} if self.reach in _OPEN_TO_CALLERS else {*self.any_of}
        return tuple(role for role, permissions in ROLES.items() if permissions & sufficient)


_OPEN = RpcRule(RpcReach.OPEN)
_BROWSE = RpcRule(RpcReach.VISIBLE, (Permission.BROWSE,))
_SEE = RpcRule(RpcReach.VISIBLE_OR_OWN, (Permission.SEE,))
_SEE_ONE = RpcRule(RpcReach.OWN, (Permission.SEE,))
_ANSWERERS = (Permission.ANSWER, Permission.APPROVE)
_ANSWER = RpcRule(RpcReach.OWN, _ANSWERERS, AuditKind.ANSWER)
_CANCEL = RpcRule(RpcReach.OWN, (Permission.OPERATE,), AuditKind.CHANGE)
_INSPECT = RpcRule(RpcReach.SERVER, (Permission.OPERATE,))
_OPERATE = RpcRule(RpcReach.SERVER, (Permission.OPERATE,), AuditKind.CHANGE)
_CALL = RpcRule(RpcReach.SERVER, (Permission.CALL, Permission.OPERATE))
_REFRESH = RpcRule(RpcReach.SERVER, (Permission.CALL, Permission.OPERATE), AuditKind.CHANGE)
_CONFIGURE = RpcRule(RpcReach.SERVER, (Permission.ADMINISTER,), AuditKind.CHANGE)
_INSPECT_HUB = RpcRule(RpcReach.HUB, (Permission.ADMINISTER,))
_CHANGE_HUB = RpcRule(RpcReach.HUB, (Permission.ADMINISTER,), AuditKind.CHANGE)


def _carried_out_at_owner(rule: RpcRule) -> RpcRule:
    """Return the rule for an RPC that the member with the server carries out."""
    return replace(rule, executed_by=ExecutingMember.OWNER)


_TABLE: Mapping[str, Mapping[str, RpcRule]] = {
    "hubbub.v1.AdminService": {
        "GetStatus": RpcRule(RpcReach.HUB, (Permission.SEE,)),
        "GetStoreStats": _INSPECT_HUB,
        "CompactStore": _CHANGE_HUB,
        "BackupStore": _CHANGE_HUB,
        "CreateToken": _CHANGE_HUB,
        "ListTokens": RpcRule(RpcReach.OWN_LOGINS),
        "RevokeToken": RpcRule(RpcReach.OWN_LOGINS, audit=AuditKind.CHANGE),
        "ReloadConfig": _CHANGE_HUB,
        "CheckHub": _INSPECT_HUB,
        "GetSelf": RpcRule(RpcReach.KNOWN),
        "ListAuditEntries": _INSPECT_HUB,
        "TrustClock": _CHANGE_HUB,
    },
    "hubbub.v1.ApprovalService": {
        "ListRememberedApprovals": RpcRule(RpcReach.VISIBLE, (Permission.SEE, Permission.APPROVE)),
        "RevokeRememberedApproval": RpcRule(RpcReach.SERVER, (Permission.APPROVE,), AuditKind.CHANGE),
        "GetApprovalRules": RpcRule(RpcReach.VISIBLE, (Permission.SEE, Permission.APPROVE)),
        "CheckApproval": RpcRule(RpcReach.SERVER, (Permission.SEE,)),
        "ReplayApprovals": RpcRule(RpcReach.VISIBLE, (Permission.SEE,)),
    },
    "hubbub.v1.CallService": {
        "CallMethod": _carried_out_at_owner(_CALL),
        "StreamCalls": _CALL,
        "StartCall": _carried_out_at_owner(_CALL),
        "WatchCalls": _SEE,
        "GetCall": _SEE_ONE,
        "ListCalls": _SEE,
        "CancelCall": _carried_out_at_owner(_CANCEL),
        "GetQueue": _carried_out_at_owner(_INSPECT),
        "ClearQueue": _carried_out_at_owner(_OPERATE),
    },
    "hubbub.v1.CatalogService": {
        "ListCatalogEntries": _BROWSE,
        "RefreshCatalog": _carried_out_at_owner(_REFRESH),
        "WatchCatalogLists": _BROWSE,
    },
    "hubbub.v1.EventService": {
        "WatchEvents": RpcRule(RpcReach.VISIBLE, (Permission.SEE,), executed_by=ExecutingMember.OWNERS),
        "TailLogs": RpcRule(RpcReach.SERVER, (Permission.SEE,), executed_by=ExecutingMember.OWNER),
        "WatchResource": RpcRule(RpcReach.SERVER, (Permission.CALL,), executed_by=ExecutingMember.OWNER),
    },
    "hubbub.v1.FleetService": {
        "GetFleet": RpcRule(RpcReach.HUB, (Permission.SEE,)),
        "MoveServer": _carried_out_at_owner(_CHANGE_HUB),
        "DrainMember": _CHANGE_HUB,
        "ResumeMember": _CHANGE_HUB,
        "ExpelMember": _CHANGE_HUB,
        "FinishUpgrade": _CHANGE_HUB,
        "RotateVaultKey": _CHANGE_HUB,
    },
    "hubbub.v1.InboxService": {
        "WatchPendingRequests": _SEE,
        "ListPendingRequests": _SEE,
        "GetPendingRequest": _SEE_ONE,
        "ClaimPendingRequest": _ANSWER,
        "RenewClaim": _ANSWER,
        "ReleasePendingRequest": _ANSWER,
        "AnswerPendingRequest": _ANSWER,
        "Work": RpcRule(RpcReach.VISIBLE_OR_OWN, _ANSWERERS, AuditKind.ANSWER),
    },
    "hubbub.v1.LoginService": {
        "CreateLoginCode": RpcRule(RpcReach.ANY_SERVER, (Permission.CALL,), AuditKind.CHANGE),
    },
    "hubbub.v1.McpService": {
        "Serve": RpcRule(RpcReach.SERVER, (Permission.CALL,)),
        "ListHosts": RpcRule(RpcReach.HUB, (Permission.SEE,)),
    },
    "hubbub.v1.ServerService": {
        "AddServer": _CONFIGURE,
        "UpdateServer": _carried_out_at_owner(_CONFIGURE),
        "RemoveServer": _carried_out_at_owner(_CONFIGURE),
        "GetServer": RpcRule(RpcReach.SERVER, (Permission.BROWSE,)),
        "ListServers": _BROWSE,
        "ConnectServer": _carried_out_at_owner(_OPERATE),
        "DisconnectServer": _carried_out_at_owner(_OPERATE),
        "LogOutServer": _carried_out_at_owner(_OPERATE),
        "GetRoots": _INSPECT,
        "SetRoots": _carried_out_at_owner(_OPERATE),
        "WatchServers": _BROWSE,
    },
    "hubbub.v1.TaskService": {
        "ListTasks": _SEE,
        "GetTask": _SEE_ONE,
        "GetTaskResult": _carried_out_at_owner(_SEE_ONE),
        "CancelTask": _carried_out_at_owner(_CANCEL),
        "WatchTasks": _SEE,
    },
    "grpc.health.v1.Health": {"Check": _OPEN, "List": _OPEN, "Watch": _OPEN},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": RpcRule(RpcReach.HUB, (Permission.SEE,))},
}

RULES: Mapping[str, RpcRule] = MappingProxyType(
    {f"/{service}/{method}": rule for service, methods in _TABLE.items() for method, rule in methods.items()}
)
"""Rules by path of the RPC."""

CALLER_METHODS = frozenset(
    {
        "completion/complete",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/directory/read",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "skills/get",
        "skills/list",
        "tools/call",
        "tools/list",
    }
)
"""MCP methods that, by the protocol, affect only their caller.

All others affect what callers share (log level, subscriptions, tasks by a server's ids, extensions) and need `operate`.
"""


def permission_to_send(method: str) -> Permission:
    """Return the permission that sending an MCP method needs.

    Case and outer space do not count: a careless server may take the method with them.
    """
    return Permission.CALL if method.strip().casefold() in CALLER_METHODS else Permission.OPERATE


def denied(permission: Permission, server: str = "*", *, everywhere: bool = False) -> PermissionDenied:
    """Return the error for a missing permission; `server` is `*` for a permission that is not about one server."""
    range_text = " for all servers" if everywhere else "" if server == "*" else f" for the server {server}"
    return PermissionDenied(
        f"this needs the permission `{permission}`{range_text}; `hubbub whoami` shows what you have",
        metadata={"permission": str(permission), "server": server},
    )
