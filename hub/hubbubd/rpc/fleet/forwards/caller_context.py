"""The opening of a forwarded request: its RPC, its caller, and the caller's trace."""

from functools import lru_cache

from google.protobuf.message import DecodeError

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbub.v1 import call_pb2
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.calls.call_states import CallOrigin
from hubbubd.errors import InvalidArgument
from hubbubd.rpc.context import amend_context
from hubbubd.telemetry.trace import CURRENT_TRACE, Trace, parse_trace


def make_opening(method: str, server: str, caller: Principal, trace: Trace | None) -> pb.Opening:
    """Return the opening of a forward, which goes ahead of the request: RPC, server, caller, and the caller's trace."""
    trace_headers = trace.headers() if trace is not None else {}
    return pb.Opening(
        method=method,
        server=server,
        principal=_pack(caller),
        traceparent=trace_headers.get("traceparent", ""),
        tracestate=trace_headers.get("tracestate", ""),
    )


def adopt_caller(opening: pb.Opening) -> None:
    """Make the caller in an opening the caller of the current RPC. Raises InvalidArgument.

    An opening goes ahead of a forwarded request. The caller may do what its grants allow, but it is never the
    owner of this member's machine (`access.is_owner`).
    """
    amend_context(principal=_unpack(opening.principal), names_caller=True, is_forwarded=True)
    CURRENT_TRACE.set(parse_trace({"traceparent": opening.traceparent, "tracestate": opening.tracestate}))


@lru_cache(maxsize=1024)
def _pack(caller: Principal) -> bytes:
    """Return a principal serialized, as another member reads it."""
    message = pb.Principal(
        name=caller.name,
        grants=[pb.Grant(role=grant.role, servers=grant.servers) for grant in caller.grants],
        credential=caller.credential,
        expires_at=caller.expires_at,
        groups=sorted(caller.groups),
        origin=_pack_origin(caller.origin),
    )
    return message.SerializeToString()


@lru_cache(maxsize=1024)
def _unpack(packed: bytes) -> Principal:
    """Return the principal that another member has packed. Raises InvalidArgument."""
    try:
        caller = pb.Principal.FromString(packed)
        grants = tuple(Grant(Role(grant.role), tuple(grant.servers)) for grant in caller.grants)
    except (DecodeError, ValueError):
        raise InvalidArgument.field("opening.principal", "is none that this version knows") from None
    return Principal(
        name=caller.name,
        grants=grants,
        credential=caller.credential,
        expires_at=caller.expires_at if caller.HasField("expires_at") else None,
        groups=frozenset(caller.groups),
        origin=_unpack_origin(caller.origin) if caller.HasField("origin") else None,
    )


def _pack_origin(origin: CallOrigin | None) -> call_pb2.CallOrigin | None:
    """Return where a call comes from as a message; None for None."""
    if origin is None:
        return None
    return call_pb2.CallOrigin(host=origin.host, profile=origin.profile, roles=origin.roles, app=origin.app)


def _unpack_origin(origin: call_pb2.CallOrigin) -> CallOrigin:
    """Return where a call comes from, as another member has packed it."""
    return CallOrigin(host=origin.host, profile=origin.profile, roles=tuple(origin.roles), app=origin.app)
