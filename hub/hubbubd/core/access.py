"""Role-based access control: a role is a set of permissions, a grant binds a role to servers, a principal has grants.

    permission  viewer responder approver caller operator admin
    browse        x        x        x       x       x       x    which servers there are, and what they offer
    see           x        x        x               x       x    everybody's requests, calls, tasks, events and logs
    answer                 x                                x    claim and answer everybody's requests
    approve                         x               x       x    approve and deny calls
    call                                    x               x    make calls; see, answer and cancel one's own
    operate                                         x       x    connect, disconnect, roots, queues, others' calls
    administer                                              x    servers, tokens, the audit log, the store

A principal's own records are the calls it made, the tasks these became, and the pending requests whose cause the wire
names (`CauseSource.WIRE`). An inferred cause gives no right. Nor does any cause give the right to approve a call: that
takes `approve` on the server, and `answer` is not enough. `rpc/auth/permissions.py` has the permission that each RPC
needs.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from hubbubd.core.calls.call_states import Call, CallOrigin
from hubbubd.core.inbox.request_states import CauseSource, PendingRequest, RequestKind
from hubbubd.core.tasks import Task

ANY = "*"
"""The pattern that matches every server."""


class Permission(StrEnum):
    """What a principal may do with a server and with the records that belong to it."""

    BROWSE = "browse"
    SEE = "see"
    ANSWER = "answer"
    APPROVE = "approve"
    CALL = "call"
    OPERATE = "operate"
    ADMINISTER = "administer"


class Role(StrEnum):
    """A named set of permissions; `ROLES` has the sets."""

    VIEWER = "viewer"
    RESPONDER = "responder"
    APPROVER = "approver"
    CALLER = "caller"
    OPERATOR = "operator"
    ADMIN = "admin"


ROLES: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.BROWSE, Permission.SEE}),
    Role.RESPONDER: frozenset({Permission.BROWSE, Permission.SEE, Permission.ANSWER}),
    Role.APPROVER: frozenset({Permission.BROWSE, Permission.SEE, Permission.APPROVE}),
    Role.CALLER: frozenset({Permission.BROWSE, Permission.CALL}),
    Role.OPERATOR: frozenset({Permission.BROWSE, Permission.SEE, Permission.APPROVE, Permission.OPERATE}),
    Role.ADMIN: frozenset(Permission),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on the servers whose names match one of the patterns: `*`, `?`, `[...]`, case-sensitive."""

    role: Role
    servers: tuple[str, ...] = (ANY,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The authenticated caller of the API.

    Names of tokens are plain; those of certificates and JWTs start with `cert:` and `oidc:`, so that no authority can
    issue another's names. `credential` identifies what was presented, for revocation and the audit log; it is never a
    secret. `expires_at` is in seconds since the epoch; streams that are open then are closed. `groups` are the identity
    provider's own names of roles.
    """

    name: str
    grants: tuple[Grant, ...]
    credential: str
    expires_at: float | None = None
    may_name_others: bool = False
    groups: frozenset[str] = frozenset()
    hold_s: float | None = None
    """Seconds for which requests of its hosts are held while people are asked; None for the profile's setting."""
    endpoint: str = ""
    """The path of the only endpoint for hosts that the credential is good for; "" for one that is good everywhere."""
    origin: CallOrigin | None = None
    """Where its calls come from, if another member of the fleet has found that out."""

    def servers(self, permission: Permission) -> frozenset[str]:
        """Return the patterns of the servers on which this is permitted; exactly `{"*"}` for all servers."""
        return _permitted_patterns(self.grants, permission)

    def may(self, permission: Permission, server: str) -> bool:
        """Return whether this is permitted on the server."""
        return _is_permitted(self.grants, permission, server)

    def call_origin(self, server: str) -> CallOrigin:
        """Return the origin (host, profile and roles) of calls that the principal makes to a server.

        Another member of the fleet may have found it out (`self.origin`). If not, no MCP host is between.
        """
        return self.origin or call_origin(self.grants, self.groups, server)

    def may_everywhere(self, permission: Permission) -> bool:
        """Return whether this is permitted on the whole hub: on all servers, later ones included."""
        return ANY in self.servers(permission)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which records a principal may see: all of `servers`, and on `own_servers` those of `own_principal`.

    `approval_servers`, if not None, alone decides about requests for approval: those of these servers are in scope. A
    scope is part of each filter, and so hashable. All principals that may see everything have equal scopes, so their
    watches share work.
    """

    servers: frozenset[str] = frozenset({ANY})
    own_principal: str = ""
    own_servers: frozenset[str] = frozenset()
    approval_servers: frozenset[str] | None = None

    def has_server(self, name: str) -> bool:
        """Return whether every record of the server is in scope."""
        return matches(self.servers, name)

    def has_call(self, call: Call) -> bool:
        """Return whether the call is in scope: by its server, or because the principal made the call."""
        return self.has_server(call.server) or self._is_own(call.principal, call.server)

    def has_request(self, request: PendingRequest) -> bool:
        """Return whether the request is in scope: by its server, or because a call of the principal caused it.

        That cause counts only if the protocol names it (`CauseSource.WIRE`). For a request for approval
        `approval_servers` alone decides, where it is given.
        """
        if request.kind is RequestKind.APPROVAL and self.approval_servers is not None:
            return matches(self.approval_servers, request.server)
        return self.has_server(request.server) or (
            request.cause_source is CauseSource.WIRE and self._is_own(request.principal, request.server)
        )

    def has_task(self, task: Task) -> bool:
        """Return whether the task is in scope: by its server, or because the principal's call became or caused it."""
        return self.has_server(task.server) or self._is_own(task.principal, task.server)

    def __str__(self) -> str:
        """Return the same text in every process (a set has no order): resume and page tokens contain a hash of it."""
        approvals = "" if self.approval_servers is None else f" {sorted(self.approval_servers)}"
        return f"{sorted(self.servers)} {self.own_principal!r} {sorted(self.own_servers)}{approvals}"

    def _is_own(self, principal: str | None, server: str) -> bool:
        """Return whether a record of this principal is of `own_principal`, on one of `own_servers`."""
        return principal is not None and principal == self.own_principal and matches(self.own_servers, server)


EVERYTHING = Scope()


def scope(principal: Principal, permission: Permission) -> Scope:
    """Return which records a principal may see (SEE), answer (ANSWER) or cancel (OPERATE).

    With ANSWER, requests for approval are in scope only on servers on which the principal has APPROVE as well. On
    servers that the principal may call (CALL), its own records are in scope, too.
    """
    servers = principal.servers(permission)
    # None: requests for approval are in scope like all other requests.
    approval_servers = principal.servers(Permission.APPROVE) if permission is Permission.ANSWER else None
    if ANY in servers:
        every_approval = approval_servers is None or ANY in approval_servers
        return EVERYTHING if every_approval else Scope(approval_servers=approval_servers)
    own_servers = principal.servers(Permission.CALL)
    return Scope(servers, principal.name if own_servers else "", own_servers, approval_servers)


def servers_scope(principal: Principal, *any_of: Permission) -> Scope:
    """Return the scope of the servers on which a principal has one of these permissions.

    The principal's own records on other servers are not in this scope.
    """
    servers = frozenset[str]().union(*map(principal.servers, any_of))
    return EVERYTHING if ANY in servers else Scope(servers)


def matches(patterns: Collection[str], name: str) -> bool:
    """Return whether a name matches one of the patterns."""
    return ANY in patterns or any(_matches_pattern(pattern, name) for pattern in patterns)


@lru_cache(maxsize=4096)
def call_origin(
    grants: tuple[Grant, ...], groups: frozenset[str], server: str, host: str = "", profile: str = ""
) -> CallOrigin:
    """Return the origin of calls to a server by a principal with these grants and groups.

    `host` is the program of the MCP host through which the principal makes the calls, `profile` that host's profile;
    both are "" without a host. The roles are those on the server, and those at the identity provider (`groups`).
    """
    roles = {grant.role.value for grant in grants if matches(grant.servers, server)}
    return CallOrigin(
        host=host, profile=profile, roles=(*sorted(roles), *sorted(f"oidc-role:{group}" for group in groups))
    )


@lru_cache(maxsize=1024)
def _permitted_patterns(grants: tuple[Grant, ...], permission: Permission) -> frozenset[str]:
    """Return the patterns of the servers on which the grants permit this; exactly `{"*"}` for all servers."""
    patterns = frozenset(p for grant in grants if permission in ROLES[grant.role] for p in grant.servers)
    return frozenset({ANY}) if ANY in patterns else patterns


@lru_cache(maxsize=4096)
def _is_permitted(grants: tuple[Grant, ...], permission: Permission, server: str) -> bool:
    """Return whether the grants permit this on the server."""
    return matches(_permitted_patterns(grants, permission), server)


@lru_cache(maxsize=4096)
def _matches_pattern(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern)
