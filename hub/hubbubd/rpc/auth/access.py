"""Authorization: what the caller of an RPC may do with the server or record that its request names.

What the caller may not see is NOT_FOUND, exactly as if it did not exist; what it may see but not use is
PERMISSION_DENIED. Servers and principals of records never change, so one check is enough.
"""

from hubbubd.core.access import Permission, Scope, scope, servers_scope
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import PendingRequest, RequestKind
from hubbubd.core.tasks import Task
from hubbubd.errors import NotFound, PermissionDenied
from hubbubd.rpc.auth.permissions import denied
from hubbubd.rpc.context import LOCAL, current, principal


def visible_scope() -> Scope:
    """Return the scope of the requests, calls and tasks that the caller may see."""
    return scope(principal(), Permission.SEE)


def answerable_scope() -> Scope:
    """Return the scope of the requests that the caller may answer."""
    return scope(principal(), Permission.ANSWER)


def browsable_servers() -> Scope:
    """Return the scope of the servers that the caller may know of."""
    return servers_scope(principal(), Permission.BROWSE)


def observable_servers() -> Scope:
    """Return the scope of the servers whose events, logs and fault details the caller may see."""
    return servers_scope(principal(), Permission.SEE)


def check_server(server: str, *any_of: Permission) -> str:
    """Return the server's name if the caller has one of these permissions on it.

    Raises NotFound if the caller may not know of the server, else PermissionDenied, which names the first permission.
    """
    caller = principal()
    if not caller.may(Permission.BROWSE, server):
        raise NotFound("server", server)
    if not any(caller.may(permission, server) for permission in any_of):
        raise denied(any_of[0], server)
    return server


def check_administration(server: str) -> None:
    """Raise PermissionDenied unless the caller may administer a server of this name, whether it exists or not."""
    if not principal().may(Permission.ADMINISTER, server):
        raise denied(Permission.ADMINISTER, server)


def is_owner() -> bool:
    """Return whether the caller shows the token in the hub's data directory, and names no person for whom it calls.

    Only the owner of the hub's machine can read that file, and may start any program without the hub, too. A caller
    that names a person, even the owner, acts for somebody else: people at the web page choose their names themselves.
    """
    caller = principal()
    return caller.credential == caller.name == LOCAL and not current().names_caller


def check_call(record: Call, permission: Permission = Permission.SEE) -> Call:
    """Return the call if it is the caller's own, or on a server on which the caller has this permission.

    Raises NotFound if the caller may not see the call, else PermissionDenied.
    """
    if not visible_scope().has_call(record):
        raise NotFound("call", record.id)
    if not scope(principal(), permission).has_call(record):
        raise denied(permission, record.server)
    return record


def check_task(record: Task, permission: Permission = Permission.SEE) -> Task:
    """Return the task if it is the caller's own, or on a server on which the caller has this permission.

    Raises NotFound if the caller may not see the task, else PermissionDenied.
    """
    if not visible_scope().has_task(record):
        raise NotFound("task", record.id)
    if not scope(principal(), permission).has_task(record):
        raise denied(permission, record.server)
    return record


def check_request(record: PendingRequest, permission: Permission = Permission.SEE) -> PendingRequest:
    """Return the pending request if the caller caused it, or has this permission on its server.

    A request for approval can be answered only with APPROVE, even by the caller who caused it. Raises NotFound if the
    caller may not see the request, else PermissionDenied.
    """
    if not visible_scope().has_request(record):
        raise NotFound("request", record.id)
    if not scope(principal(), permission).has_request(record):
        is_approval = permission is Permission.ANSWER and record.kind is RequestKind.APPROVAL
        raise denied(Permission.APPROVE if is_approval else permission, record.server)
    return record


def approval_servers() -> Scope:
    """Return the scope of the servers whose rules and remembered approvals the caller may see."""
    return servers_scope(principal(), Permission.SEE, Permission.APPROVE)


def check_claim(record: PendingRequest, claim_id: str) -> None:
    """Raise PermissionDenied for the id of a claim (a lease on the request) that another principal holds.

    The inbox checks whether the claim is still valid. A caller with the hub's own credential that names no other person
    may use any claim whose id it knows.
    """
    claim, caller = record.claim, principal()
    is_trusted = caller.name == caller.credential == LOCAL
    if claim is not None and claim.id == claim_id and caller.name != claim.by and not is_trusted:
        raise PermissionDenied(
            f"this claim is of {claim.by}", reason="CLAIM_NOT_YOURS", metadata={"claimed_by": claim.by}
        )
