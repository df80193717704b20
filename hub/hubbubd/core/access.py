"""Who may do what: roles are sets of permissions, grants bind a role to servers, a principal has grants.

    permission   viewer  responder  caller  operator  admin
    browse         x         x        x        x        x      which servers there are, and what they offer
    see            x         x                 x        x      everybody's requests, calls, tasks, events and logs
    answer                   x                          x      claim and answer everybody's requests
    call                              x                 x      make calls; see, answer and cancel what is one's own
    operate                                    x        x      connect, disconnect, roots, queues, others' calls
    administer                                          x      servers, tokens, the audit log, the store

What is one's own: the calls one made, the tasks these became, and the requests that these caused *by the wire*; a
cause that was only inferred gives nobody a right.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from hubbubd.core.calls import Call
from hubbubd.core.inbox import CauseSource, PendingRequest
from hubbubd.core.tasks import Task

ANY = "*"
"""The pattern of all servers."""


class Permission(StrEnum):
    """What somebody may do with a server, and all that belongs to it."""

    BROWSE = "browse"
    SEE = "see"
    ANSWER = "answer"
    CALL = "call"
    OPERATE = "operate"
    ADMINISTER = "administer"


class Role(StrEnum):
    """What somebody is to a hub."""

    VIEWER = "viewer"
    RESPONDER = "responder"
    CALLER = "caller"
    OPERATOR = "operator"
    ADMIN = "admin"


ROLES: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.BROWSE, Permission.SEE}),
    Role.RESPONDER: frozenset({Permission.BROWSE, Permission.SEE, Permission.ANSWER}),
    Role.CALLER: frozenset({Permission.BROWSE, Permission.CALL}),
    Role.OPERATOR: frozenset({Permission.BROWSE, Permission.SEE, Permission.OPERATE}),
    Role.ADMIN: frozenset(Permission),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, for the servers whose names match one of the patterns (`*`, `?`, `[...]`, case counts)."""

    role: Role
    servers: tuple[str, ...] = (ANY,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls the API.

    Names of tokens are plain; those of certificates and of JWTs start with `cert:` and `oidc:`, so that no authority
    can speak in another's name. `credential` is what was shown, for revocation and the audit log, never a secret.
    `expires_at`, in seconds since the epoch, ends what is open with it, too. `groups` are the roles that an identity
    provider gives somebody, in its own words.
    """

    name: str
    grants: tuple[Grant, ...]
    credential: str
    expires_at: float | None = None
    may_name_others: bool = False
    groups: frozenset[str] = frozenset()

    def servers(self, permission: Permission) -> frozenset[str]:
        """The patterns of the servers for which this is permitted; just `*` when it is for all."""
        return _patterns(self.grants, permission)

    def may(self, permission: Permission, server: str) -> bool:
        """Whether this is permitted for a server."""
        return matches(self.servers(permission), server)

    def may_everywhere(self, permission: Permission) -> bool:
        """Whether this is permitted for the hub as a whole: for all servers, those to come included."""
        return ANY in self.servers(permission)


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a table somebody has to do with: all of some servers, and what is their own of others.

    Part of filters: hashable, and equal for all who may have everything.
    """

    servers: frozenset[str] = frozenset({ANY})
    own: str = ""
    own_servers: frozenset[str] = frozenset()

    def has_server(self, name: str) -> bool:
        """All that belongs to a server."""
        return matches(self.servers, name)

    def has_call(self, call: Call) -> bool:
        """A call."""
        return self.has_server(call.server) or self._is_own(call.principal, call.server)

    def has_request(self, request: PendingRequest) -> bool:
        """A pending request."""
        return self.has_server(request.server) or (
            request.cause_source is CauseSource.WIRE and self._is_own(request.principal, request.server)
        )

    def has_task(self, task: Task) -> bool:
        """A task."""
        return self.has_server(task.server) or self._is_own(task.principal, task.server)

    def __str__(self) -> str:
        """The same text in every process: a set has no order of its own."""
        return f"{sorted(self.servers)} {self.own!r} {sorted(self.own_servers)}"

    def _is_own(self, principal: str | None, server: str) -> bool:
        return principal is not None and principal == self.own and matches(self.own_servers, server)


EVERYTHING = Scope()


def scope(principal: Principal, permission: Permission) -> Scope:
    """What somebody may see (SEE), answer (ANSWER) or cancel (OPERATE), with what is their own."""
    servers = principal.servers(permission)
    if ANY in servers:
        return EVERYTHING
    own_servers = principal.servers(Permission.CALL)
    return Scope(servers, principal.name if own_servers else "", own_servers)


def servers_scope(principal: Principal, permission: Permission) -> Scope:
    """The servers for which somebody has a permission, and nothing of others."""
    servers = principal.servers(permission)
    return EVERYTHING if ANY in servers else Scope(servers)


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether a name matches one of the patterns."""
    return any(pattern == ANY or _match(pattern, name) for pattern in patterns)


@lru_cache(maxsize=1024)
def _patterns(grants: tuple[Grant, ...], permission: Permission) -> frozenset[str]:
    found = frozenset(p for grant in grants if permission in ROLES[grant.role] for p in grant.servers)
    return frozenset({ANY}) if ANY in found else found


@lru_cache(maxsize=4096)
def _match(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern)
