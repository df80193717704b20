"""Who calls the RPC that is being served, from where, and whether they still may: one value, read anywhere in the RPC.

The gate (`auth.py`) fills it in. The trace that an RPC belongs to is not here but in `telemetry.trace`, because the
calls that an RPC starts outlive it and keep their trace.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from hubbubd.core.access import Principal

LOCAL = "local"
"""Name and credential of whoever can read the hub's client.json."""

NOBODY = Principal(name="", grants=(), credential="")
"""Whoever has shown no good credential."""


class Crowd(Enum):
    """The group whose limits apply to an RPC that needs no credential."""

    KNOWN = "has shown a good one"
    LOCAL = "is on the hub's own machine"
    AWAY = "is anybody"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: whether it is on this machine, and the certificate that it showed."""

    local: bool
    certificate: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcContext:
    """What is known of the RPC that is being served."""

    principal: Principal = NOBODY
    """The caller."""

    crowd: Crowd = Crowd.AWAY
    """Filled in for RPCs that need no credential."""

    standing: Callable[[], bool] = lambda: True
    """Whether the caller's credential can still be used; asked before each effect on a stream."""

    address: Callable[[], str] = lambda: ""
    """Returns the address that the RPC comes from, as its transport writes it."""

    peer: Peer | None = None
    """The other end; None where the transport has to be asked for it (gRPC)."""

    let_in: Callable[[], None] = lambda: None
    """Called once the caller has shown a good credential."""


_CURRENT: ContextVar[RpcContext] = ContextVar("hubbub_rpc", default=RpcContext())  # noqa: B039 - frozen


def current() -> RpcContext:
    """The context of the RPC that is being served."""
    return _CURRENT.get()


def amend(**known: Any) -> None:
    """Replaces fields of the current context, for what the RPC does from now on. Raises TypeError for no field."""
    _CURRENT.set(replace(_CURRENT.get(), **known))


def principal() -> Principal:
    """Who calls the RPC that is being served."""
    return _CURRENT.get().principal
