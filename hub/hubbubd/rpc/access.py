"""What the caller of an RPC may do with the server or the record that its request names.

What the caller may not know of is NOT_FOUND, exactly as if it did not exist. What the caller may know of and not use is
PERMISSION_DENIED. Servers and principals of records never change, so what was checked holds.
"""

from hubbubd.core.access import Permission, Scope, scope, servers_scope
from hubbubd.core.calls import Call
from hubbubd.core.inbox import PendingRequest
from hubbubd.core.tasks import Task
from hubbubd.errors import NotFound, PermissionDenied
from hubbubd.rpc.context import LOCAL, principal
from hubbubd.rpc.permissions import denied


def reading() -> Scope:
    """Of requests, calls and tasks, those that the caller may see."""
    return scope(principal(), Permission.SEE)


def answering() -> Scope:
    """Of requests, those that the caller may answer."""
    return scope(principal(), Permission.ANSWER)


def browsing() -> Scope:
    """The servers that the caller may know of."""
    return servers_scope(principal(), Permission.BROWSE)


def listening() -> Scope:
    """The servers whose events the caller may see."""
    return servers_scope(principal(), Permission.SEE)


def use(server: str, *any_of: Permission) -> str:
    """The name of a server with which the caller may do this: one permission is enough.

    Raises NotFound and PermissionDenied.
    """
    caller = principal()
    if not caller.may(Permission.BROWSE, server):
        raise NotFound("server", server)
    if not any(caller.may(permission, server) for permission in any_of):
        raise denied(any_of[0], server)
    return server


def configure(server: str) -> None:
    """Raises PermissionDenied, whether there is such a server or not, unless the caller may decide what it is."""
    if not principal().may(Permission.ADMINISTER, server):
        raise denied(Permission.ADMINISTER, server)


def call(record: Call, permission: Permission = Permission.SEE) -> Call:
    """The call, if the caller has this permission for its server or has made it. Raises NotFound, PermissionDenied."""
    if not reading().has_call(record):
        raise NotFound("call", record.id)
    if not scope(principal(), permission).has_call(record):
        raise denied(permission, record.server)
    return record


def task(record: Task, permission: Permission = Permission.SEE) -> Task:
    """The task, if the caller has this permission for its server or it is the caller's own. Raises as `call`."""
    if not reading().has_task(record):
        raise NotFound("task", record.id)
    if not scope(principal(), permission).has_task(record):
        raise denied(permission, record.server)
    return record


def request(record: PendingRequest, permission: Permission = Permission.SEE) -> PendingRequest:
    """The request, if the caller has this permission for its server or has caused it. Raises as `call`."""
    if not reading().has_request(record):
        raise NotFound("request", record.id)
    if not scope(principal(), permission).has_request(record):
        raise denied(permission, record.server)
    return record


def claimed(record: PendingRequest, claim_id: str) -> None:
    """Raises PermissionDenied for a claim of somebody else; whether it is still good is the inbox's to say.

    The hub's own credential, when it speaks for nobody, may use any claim whose id it was told.
    """
    claim, caller = record.claim, principal()
    trusted = caller.name == caller.credential == LOCAL
    if claim is not None and claim.id == claim_id and caller.name != claim.by and not trusted:
        raise PermissionDenied(
            f"this claim is of {claim.by}", reason="CLAIM_NOT_YOURS", metadata={"claimed_by": claim.by}
        )
