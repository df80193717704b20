"""The context of the RPC being served: its caller, from where, and whether the credential is still valid.

The gate (`auth/gate.py`) fills it in; anything within the RPC may read it. The RPC's trace is in `telemetry.trace`
instead, because the calls that an RPC starts outlive it and keep their trace.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hubbubd.core.access import Principal
from hubbubd.frozen import replaced

LOCAL = "local"
"""Name and credential of callers that show the token in the hub's client.json."""

ANONYMOUS = Principal(name="", grants=(), credential="")
"""The principal of callers without a valid credential."""


class CallerGroup(Enum):
    """The group that an RPC without a required credential is counted in."""

    KNOWN = "has shown a good one"
    LOCAL = "is on the hub's own machine"
    AWAY = "is anybody"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: whether it is on this machine, and its client certificate."""

    local: bool
    certificate: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcContext:
    """What is known of the RPC being served."""

    principal: Principal = ANONYMOUS
    """The caller."""

    names_caller: bool = False
    """Whether the caller has named the person or program for whom it calls (`hubbub-as`); it may be its own name."""

    is_forwarded: bool = False
    """Whether another member of the fleet has forwarded the RPC to this one, which then does not forward it again."""

    note_revision: Callable[[int], None] = lambda _: None
    """Called with the newest store revision of another member that has carried this RPC out, for the response."""

    caller_group: CallerGroup = CallerGroup.AWAY
    """Set for RPCs that need no credential."""

    is_credential_valid: Callable[[], bool] = lambda: True
    """Whether the caller's credential is still valid; checked before each effect on a stream."""

    address: str = ""
    """The caller's address, as its transport writes it, set early: gRPC does not return it once the RPC has ended."""

    remaining: Callable[[], float | None] = lambda: None
    """Returns the seconds until the caller gives the RPC up; None if it never does, or its transport does not say."""

    peer: Peer | None = None
    """The other end of the connection; None where only the transport has it (gRPC)."""

    on_admitted: Callable[[], None] = lambda: None
    """Called once the caller has shown a valid credential."""


_CURRENT: ContextVar[RpcContext] = ContextVar("hubbub_rpc", default=RpcContext())  # noqa: B039 - frozen


def current() -> RpcContext:
    """Return the context of the RPC being served."""
    return _CURRENT.get()


def amend_context(**fields: Any) -> None:
    """Replace fields of the current context for the rest of the RPC. Raises TypeError for an unknown field."""
    _CURRENT.set(replaced(_CURRENT.get(), **fields))


def principal() -> Principal:
    """Return the caller of the RPC being served."""
    return _CURRENT.get().principal
